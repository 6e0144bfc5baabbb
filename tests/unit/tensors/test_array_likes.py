"""What people type after the first example: lists, float64, other libraries' arrays, NumPy's functions, methods."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import Float64Warning, InvalidArgument, Tensor, ops
from dmlgpu.common.suggestions import EQUIVALENTS
from dmlgpu.tensors import array_like

X = np.random.default_rng(35).random((2, 5))
T = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    dmlgpu.set_float64("convert")
    yield
    dmlgpu.set_float64("warn")
    array_like._Policy.has_warned = False


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda: ops.softmax(X), softmax(X)),
        (lambda: ops.softmax(X.tolist()), softmax(X)),
        (lambda: ops.matmul(X, X.T), X @ X.T),
        (lambda: ops.layer_norm(X), (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)),
        (lambda: np.asarray(Tensor(X) + 1), X + 1),
        (lambda: np.asarray(Tensor(T) + np.ones(3)), T + 1),
        (lambda: np.asarray(Tensor(T) * [1, 2, 3]), T * [1, 2, 3]),
        (lambda: np.asarray([1.5, 2, 3] - Tensor(T)), [1.5, 2, 3] - T),
        (lambda: dmlgpu.compile(lambda x: ops.softmax(x) + X)(Tensor(X)).numpy(), softmax(X) + X),
        (lambda: ops.where([True, False, True], T, 0), np.where([True, False, True], T, 0)),
    ],
)
def test_float64_and_lists_are_computed_in_float32(compute: Callable[[], np.ndarray], expected: np.ndarray) -> None:
    result = compute()
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_elements_that_only_move_stay_float64() -> None:
    result = ops.flip(X)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, X[::-1, ::-1])
    assert Tensor(X, "float64").T.dtype == np.float64


def test_integers_in_lists_stay_integers() -> None:
    total = ops.sum([1, 2, 3])
    assert total.dtype.kind == "i"
    assert total == 6


def test_one_warning_per_process_at_the_users_line() -> None:
    dmlgpu.set_float64("warn")
    with pytest.warns(
        Float64Warning, match=r"softmax: .* in float32; convert them with x.astype\('float32'\)"
    ) as record:
        ops.softmax(X)
        ops.exp(X)
    assert [Path(warning.filename) for warning in record] == [Path(__file__)]


def test_conversion_can_be_silent_or_forbidden() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.softmax(X)
    dmlgpu.set_float64("refuse")
    with pytest.raises(InvalidArgument, match=r"softmax: float64 is not computed on GPUs; .*x.astype\('float32'\)"):
        ops.softmax(X)
    with pytest.raises(InvalidArgument, match="set_float64: mode must be one of warn, convert, refuse, got 'no'"):
        dmlgpu.set_float64("no")  # type: ignore[arg-type]


def test_assignment_and_asarray_follow_the_same_choice() -> None:
    """float64 is never converted silently unless that was chosen: neither where it is stored nor where it is read."""
    cases: dict[str, Callable[[Tensor], object]] = {
        "Tensor[...] = value": lambda x: x.__setitem__((slice(None), 1), np.full(2, 0.1)),
        "asarray": lambda x: xp.asarray(np.full(2, 0.1)),
    }
    for caller, act in cases.items():
        dmlgpu.set_float64("warn")
        with pytest.warns(
            Float64Warning,
            match=re.escape(f"{caller}: float64 values are stored as float32; convert them with x.astype('float32')"),
        ) as record:
            act(Tensor(T))
        assert [Path(warning.filename) for warning in record] == [Path(__file__)]
        dmlgpu.set_float64("refuse")
        with pytest.raises(InvalidArgument, match=re.escape(f"{caller}: float64 is not converted to float32")) as error:
            act(Tensor(T))
        assert "x.astype('float32')" in str(error.value)
    dmlgpu.set_float64("refuse")
    x = Tensor(T)
    x[0] = [0.5, 1.5, 2.5]  # lists and numbers have no dtype
    x[1, 0] = 0.25
    x[1, 1] = np.float32(3)
    assert x.tolist() == [[0.5, 1.5, 2.5], [0.25, 3, -6]]
    with pytest.raises(InvalidArgument, match=r"float64 is not converted to float16 .*x.astype\('float16'\)"):
        x.half()[0] = np.ones(3)
    assert xp.asarray(np.full(2, 0.1), dtype=xp.float32).dtype == np.float32


def test_wrong_arguments_of_float64_are_reported_without_a_warning() -> None:
    dmlgpu.set_float64("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidArgument, match="axis"):
            ops.softmax(X, axis=5)


class Foreign:
    """An array of another library, which may be on its own GPU."""

    device = "cuda:0"

    def __init__(self, values: Any):
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.values is None:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return np.asarray(self.values, dtype)


def test_arrays_of_other_libraries() -> None:
    np.testing.assert_allclose(ops.relu(Foreign(T)), np.maximum(T, 0))
    np.testing.assert_allclose((Tensor(T) + Foreign(T)).numpy(), T + T)
    refusals: dict[str, Callable[[], object]] = {
        "relu: x must be a Tensor or an array": lambda: ops.relu(Foreign(None)),
        "Tensor: values must be an array of real numbers": lambda: Tensor(Foreign(None)),
        "asarray: obj must be of real numbers": lambda: xp.asarray(Foreign(None)),
    }
    for expected, call in refusals.items():
        with pytest.raises(
            InvalidArgument, match=expected + r", got a \w+\.Foreign on cuda:0 that NumPy cannot read \(can"
        ):
            call()


def test_foreign_bfloat16_is_rejected_with_a_replacement() -> None:
    foreign = Foreign(None)
    foreign.dtype = "torch.bfloat16"  # type: ignore[attr-defined]
    for call in (ops.relu, Tensor, xp.asarray):
        with pytest.raises(InvalidArgument, match=r"; x.float\(\) converts it$"):
            call(foreign)


@pytest.mark.parametrize("value", ["text", [[1], [1, 2]], ["a"]])
def test_values_that_are_no_arrays(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="softmax: x must be"):
        ops.softmax(value)


@pytest.mark.parametrize(
    "function",
    [
        np.exp,
        np.abs,
        np.sinh,
        np.negative,
        np.floor,
        lambda x: np.add(x, 1),
        lambda x: np.float32(2) * x,
        lambda x: np.ones(3, np.float32) + x,
        lambda x: np.float32(2) < x,
        lambda x: np.greater_equal(x, T),
        lambda x: np.matmul(x, T.T),
        lambda x: np.power(x, 2),
    ],
)
def test_numpys_functions(function: Callable[[Any], Any]) -> None:
    result = function(Tensor(T))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(result.numpy(), function(T), rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        np.sum,
        np.mean,
        np.argmax,
        lambda x: np.max(x, axis=1),
        lambda x: np.std(x, axis=0, keepdims=True),
        lambda x: np.concatenate([x, x], axis=1),
        np.transpose,
        lambda x: np.reshape(x, (3, 2)),
        lambda x: np.clip(x, -1, 2),
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.sort(x, axis=0),
    ],
)
def test_numpys_functions_that_are_no_ufuncs(function: Callable[[Any], Any]) -> None:
    result = function(Tensor(T))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(result.numpy(), function(T), rtol=1e-5)


def test_other_functions_of_numpy_run_on_the_host(tmp_path: Path) -> None:
    assert np.allclose(Tensor(T), T)
    assert np.array_equal(np.vstack([Tensor(T), T]), np.vstack([T, T]))
    np.save(tmp_path / "x.npy", Tensor(T))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), T)


def test_pytorchs_keywords() -> None:
    np.testing.assert_allclose(ops.softmax(T, dim=0), ops.softmax(T, axis=0))
    assert ops.mean(T, dim=1, keepdim=True).shape == (2, 1)
    np.testing.assert_allclose(Tensor(T).sum(dim=0, keepdim=True).numpy(), T.sum(0, keepdims=True))
    np.testing.assert_allclose(Tensor(T).softmax(dim=0).numpy(), softmax(T.T).T, rtol=1e-6)
    assert Tensor(T).argmax(dim=1).tolist() == [2, 1]
    with pytest.raises(TypeError, match=r"Tensor.sum\(\) got an unexpected keyword argument 'dims'"):
        Tensor(T).sum(dims=0)  # type: ignore[call-arg]


def test_pytorchs_modes_of_interpolation() -> None:
    square = T[None, None]
    expected = ops.resize(square, (4, 6), mode="linear")
    np.testing.assert_array_equal(ops.resize(square, (4, 6), mode="bilinear"), expected)
    with pytest.raises(InvalidArgument, match="mode must be one of nearest_neighbor, linear, got 'bicubic'"):
        ops.resize(square, (4, 6), mode="bicubic")


def test_misspelled_functions() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'sofmax'; did you mean ops.softmax\?"):
        ops.sofmax  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'Tensr'; did you mean Tensor\?"):
        dmlgpu.Tensr  # type: ignore[attr-defined]  # noqa: B018


def test_names_of_other_libraries_lead_to_ours() -> None:
    with pytest.raises(AttributeError, match=r"'randn'; use dmlgpu.random.default_rng\(seed\).normal$"):
        ops.randn  # type: ignore[attr-defined]  # noqa: B018
    for target in EQUIVALENTS.values():
        for name in target.split(", or "):
            module, _, attribute = name.removeprefix("dmlgpu.").rpartition(".")
            if "default_rng" in module:
                assert hasattr(dmlgpu.random.default_rng(0), attribute)
            elif "default_rng" not in attribute:
                assert hasattr({"": dmlgpu, "ops": ops, "array": xp, "random": dmlgpu.random}[module], attribute), (
                    target
                )
    assert EQUIVALENTS.keys().isdisjoint(ops.__all__)


def test_functions_that_tensors_lack_are_named() -> None:
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'relu'; use dmlgpu.ops.relu$"):
        Tensor(T).relu()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'softmx'$"):
        Tensor(T).softmx()  # type: ignore[attr-defined]


def test_functions_that_ops_lacks_are_named() -> None:
    with pytest.raises(TypeError, match=r"^numpy.spacing of a Tensor is not computed on the device; pass x.numpy\(\)"):
        np.spacing(Tensor(T))
    with pytest.raises(TypeError, match=r"^numpy.add of a Tensor takes no 'out'; use dmlgpu.ops.add, or pass x.numpy"):
        np.add(Tensor(T), 1, out=np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lambda x: x.sum(), T.sum()),
        (lambda x: x.mean(axis=1), T.mean(axis=1)),
        (lambda x: x.prod(0), T.prod(0)),
        (lambda x: x.max(axis=0, keepdims=True), T.max(axis=0, keepdims=True)),
        (lambda x: x.min(), T.min()),
        (lambda x: x.argmax(axis=1), T.argmax(axis=1)),
        (lambda x: x.argmin(), T.argmin()),
        (lambda x: x.softmax(), softmax(T)),
        (lambda x: x.exp(), np.exp(T)),
        (lambda x: (x * x).log(), np.log(T * T)),
        (lambda x: (x * x).sqrt(), np.abs(T)),
        (lambda x: x.clip(-1, 2), T.clip(-1, 2)),
        (lambda x: x.permute(1, 0), T.T),
        (lambda x: x.flatten(), T.ravel()),
        (lambda x: x.reshape(1, 2, 3).flatten(1), T.reshape(1, 6)),
        (lambda x: x.view(3, -1), T.reshape(3, 2)),
        (lambda x: x.cpu(), T),
        (np.arcsinh, np.arcsinh(T)),
        (lambda x: np.arctan2(x, 2), np.arctan2(T, 2)),
        (lambda x: x.half().float(), T),
    ],
)
def test_methods(method: Callable[[Tensor], Tensor], expected: Any) -> None:
    np.testing.assert_allclose(method(Tensor(T)).numpy(), expected, rtol=1e-5)


def test_a_view_never_copies() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^view: \[3, 2\] with strides \[1, 3\] cannot be viewed as \[6\]; reshape"
    ):
        Tensor(T).T.view(6)


def test_formats_and_booleans() -> None:
    assert f"{ops.sum(Tensor(T)):.3f}" == "5.000"
    assert f"{Tensor(T)}".startswith("Tensor(FLOAT32 [2, 3]")
    with pytest.raises(InvalidArgument, match=r"a tensor of 6 elements is ambiguous; use dmlgpu.ops.any\(x\) or all"):
        bool(Tensor(T) > 0)
