"""Products over chosen axes, diagonals, differences and repetitions against NumPy; methods of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import InvalidArgument, InvalidState, Tensor, ops

DTYPES = ("float32", "float16", "int8", "uint8", "int32", "int64")
RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def draw(dtype: str, *shape: int) -> Any:
    """Return small integers, as floats with fractions."""
    numbers = RNG.integers(0 if dtype[0] == "u" else -3, 4, shape)
    return np.asarray(numbers / 2 if dtype[0] == "f" else numbers).astype(dtype)


def check(result: Any, expected: Any, case: str) -> None:
    assert isinstance(result, Tensor), case
    assert (result.shape, result.dtype) == (np.shape(expected), np.asarray(expected).dtype), case
    np.testing.assert_allclose(result.numpy(), expected, 1e-3 if result.dtype == np.float16 else 1e-6, err_msg=case)


PAIRS = (((), ()), ((), (3,)), ((4,), (4,)), ((2, 4), (4,)), ((2, 4), (3, 4)), ((2, 3, 4), (5, 4)), ((0,), (0,)))


@pytest.mark.slow
def test_products() -> None:
    for dtype, (left, right) in itertools.product(DTYPES, PAIRS):
        a, b = draw(dtype, *left), draw(dtype, *right)
        transposed = np.moveaxis(b, -1, -2 if b.ndim > 1 else -1) if b.ndim else b
        x, y, z = Tensor(a), Tensor(b), Tensor(transposed)
        case = f"{dtype} {left} {right}"
        check(ops.inner(x, y), np.inner(a, b), f"inner {case}")
        check(ops.dot(x, z), np.dot(a, transposed), f"dot {case}")
        check(x.dot(z), np.dot(a, transposed), f"method dot {case}")
        check(ops.outer(x, y), np.outer(a, b), f"outer {case}")
        check(ops.kron(x, y), np.kron(a, b), f"kron {case}")
    for dtype in DTYPES:
        a, b = draw(dtype, 2, 3, 4), draw(dtype, 4, 3, 5)
        for axes in (((1, 2), (1, 0)), ((-1,), (0,)), (2, 0), ([0], [0])):
            second = b if axes != ([0], [0]) else b[:2]
            check(ops.tensordot(Tensor(a), Tensor(second), axes), np.tensordot(a, second, axes), f"{dtype} {axes}")
        check(ops.tensordot(Tensor(a), Tensor(b.T[0]), 0), np.tensordot(a, b.T[0], 0), f"{dtype} 0")
        check(ops.tensordot(Tensor(a), Tensor(a[0, :0]), 0), np.tensordot(a, a[0, :0], 0), dtype)
        check(ops.vecdot(Tensor(a), Tensor(a[0])), np.vecdot(a, a[0]), dtype)
    strided = draw("float32", 6, 8)
    views = strided[::2, 1:5], strided.T[::2]
    check(ops.tensordot(Tensor(strided)[::2, 1:5], Tensor(strided.T)[::2], 1), np.tensordot(*views, 1), "strided")


@pytest.mark.slow
def test_diagonals() -> None:
    for dtype in (*DTYPES, "bool"):
        for k in range(-4, 5):
            for array in (draw(dtype, 3), draw(dtype, 0), draw(dtype, 3, 4), draw(dtype, 4, 2).T):
                check(ops.diag(Tensor(array), k), np.diag(array, k), f"diag {array!r} {k}")
            array = draw(dtype, 3, 2, 4)
            for axes in ((0, 1), (2, 0), (-1, 1)):
                x = Tensor(array)
                case = f"{dtype} {k} {axes}"
                check(ops.diagonal(x, k, *axes), np.diagonal(array, k, *axes), case)
                check(x.diagonal(k, *axes)[..., :1], np.diagonal(array, k, *axes)[..., :1], case)
                check(ops.trace(x, k, *axes), np.trace(array, k, *axes), case)
    matrix = Tensor(draw("float32", 3, 3))
    assert dmlgpu.grad(ops.trace)(matrix).tolist() == np.eye(3).tolist()
    assert dmlgpu.grad(lambda x: (ops.diag(x) * matrix).sum())(matrix[0]).tolist() == np.diag(matrix.numpy()).tolist()


@pytest.mark.slow
def test_differences_and_repetitions() -> None:
    for dtype in (*DTYPES, "bool"):
        array, row = draw(dtype, 3, 5), draw(dtype, 1, 5)
        x = Tensor(array)
        for n, axis in itertools.product(range(4), (0, 1, -1)):
            check(ops.diff(x, n, axis), np.diff(array, n, axis), f"diff {dtype} {n} {axis}")
        check(ops.diff(x, axis=0, prepend=Tensor(row)), np.diff(array, axis=0, prepend=row), f"diff {dtype}")
        check(ops.diff(x, append=1), np.diff(array, append=array.dtype.type(1)), f"diff {dtype} append")
        for repeats, axis in ((2, None), (0, 1), (3, 0), ([1, 0, 2], 0), ([2], 1), ([1, 2, 3, 0, 1], -1)):
            check(ops.repeat(x, repeats, axis), np.repeat(array, repeats, axis), f"repeat {dtype} {repeats} {axis}")
            check(x.repeat(repeats, axis), np.repeat(array, repeats, axis), f"method {dtype} {repeats} {axis}")
        check(ops.swapaxes(x, 0, -1), array.swapaxes(0, -1), f"swapaxes {dtype}")
    with pytest.raises(InvalidState):
        dmlgpu.compile(lambda x: ops.repeat(x, (x > 0).astype("int32")))(Tensor([1.0, 2.0]))
    assert dmlgpu.compile(lambda x: ops.repeat(x, [1, 2]))(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0, 2.0]


def test_array_and_ops_share() -> None:
    a, b = Tensor(draw("float32", 2, 3)), Tensor(draw("float32", 3, 4))
    for name, args, options in (
        ("tensordot", (a, b), {"axes": 1}),
        ("vecdot", (a, a), {}),
        ("diff", (a,), {"axis": 0}),
        ("repeat", (a, 2), {"axis": 1}),
        ("expm1", (a,), {}),
        ("log1p", (a * 0.2,), {}),
    ):
        np.testing.assert_array_equal(getattr(ops, name)(*args, **options), getattr(xp, name)(*args, **options))


def test_exponentials_near_zero() -> None:
    numbers = np.array([0, -0.0, 1e-7, -1e-7, 1e-3, 0.3, -0.3, 0.6, 5, 80, -5, -200, np.inf, -np.inf, np.nan])
    for dtype, tolerance in (("float32", 1e-6), ("float16", 2e-3)):
        array = numbers.astype(dtype)
        with np.errstate(all="ignore"):
            for name in ("expm1", "log1p"):
                expected = getattr(np, name)(array.astype(np.float64)).astype(dtype)
                result = getattr(ops, name)(Tensor(array))
                assert result.dtype == array.dtype
                np.testing.assert_allclose(result.numpy(), expected, tolerance, err_msg=name)
    points = Tensor(np.array([-0.9, -0.3, 0, 1e-6, 0.7, 50], np.float32))
    for function, slopes in ((ops.log1p, 1 / (1 + points.numpy())), (ops.expm1, np.exp(points.numpy()))):
        gradient = dmlgpu.grad(lambda x, function=function: function(x).sum())(points)
        np.testing.assert_allclose(gradient.numpy(), slopes, 1e-5)


def test_methods() -> None:
    array = np.array([[3.0, 1.0, 2.5], [0.0, -4.0, 6.0]], np.float32)
    x = Tensor(array)
    for name, args in (
        *(("var", ()), ("std", (0,)), ("all", (1,)), ("any", ()), ("cumsum", ()), ("cumprod", (1,))),
        *(("argsort", (0,)), ("round", ()), ("round", (-1,)), ("trace", ()), ("diagonal", (1,)), ("swapaxes", (0, 1))),
        *(("take", ([2, 0],)), ("take", ([1], 0)), ("ravel", ()), ("repeat", (2,))),
    ):
        expected = getattr(array, name)(*args)
        np.testing.assert_allclose(getattr(x, name)(*args).numpy(), expected, 1e-6, err_msg=name)
    assert x.sort(axis=0).tolist() == np.sort(array, 0).tolist() and x.tolist() == array.tolist()
    assert [places.tolist() for places in x.nonzero()] == [places.tolist() for places in array.nonzero()]
    assert (x.nbytes, x.itemsize, Tensor([True]).itemsize) == (array.nbytes, array.itemsize, 1)
    assert x.std(ddof=1).item() == pytest.approx(array.std(ddof=1)) and x.var(dim=0, keepdim=True).shape == (1, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'unbiased'; it is called 'correction'"):
        x.var(unbiased=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it is called 'correction'"):
        ops.std(x, unbiased=True)  # type: ignore[call-arg]
    assert ops.var(x, ddof=1).item() == pytest.approx(array.var(ddof=1))  # type: ignore[call-arg]


def test_divmod() -> None:
    x = Tensor([7, -7, 3])
    for results, expected in (
        (divmod(x, 4), divmod(x.numpy(), 4)),
        (divmod(20, x), divmod(20, x.numpy())),
        (divmod(x, Tensor([2, 2, 2])), divmod(x.numpy(), 2)),
    ):
        assert [part.tolist() for part in results] == [part.tolist() for part in expected]
    with pytest.raises(TypeError):
        divmod(x, "a")


def test_wrong_arguments() -> None:
    x = Tensor([[1.0, 2.0]])
    for call, words in (
        (lambda: ops.tensordot(x, x, 1), "tensordot: axes must have equal sizes in both operands, got [2] and [1]"),
        (lambda: ops.tensordot(x, x, 3), "tensordot: axes must be between 0 and 2, got 3"),
        (lambda: ops.tensordot(x, x, "ab"), "tensordot: axes must be an integer or a pair of sequences, got 'ab'"),
        (lambda: ops.kron(Tensor(np.ones((1,) * 5)), x), "kron: a and b must have at most 4 dimensions, got 5"),
        (lambda: ops.diag(Tensor(1.0)), "diag: x must have 1 or 2 dimensions, got 0"),
        (lambda: ops.diagonal(x[0]), "diagonal: x must have at least 2 dimensions, got 1"),
        (lambda: ops.trace(x, 0, 1, -1), "trace: axis1 and axis2 must differ, got 1 and -1"),
        (lambda: ops.diff(x, -1), "diff: n must be at least 0, got -1"),
        (
            lambda: ops.repeat(x, [1, 2, 3], 1),
            "repeat: repeats must be an integer, or 2 in a row, one for each slice",
        ),
        (lambda: ops.repeat(x, -1), "repeat: repeats must be at least 0, got -1"),
        (lambda: ops.repeat(x, 1.5), "repeat: repeats must"),
    ):
        with pytest.raises(InvalidArgument) as error:
            call()
        assert str(error.value).startswith(words), str(error.value)
