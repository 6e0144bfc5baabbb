"""Compiled functions of arguments that differ in sizes: results equal NumPy's, from few traces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from dmlgpu.compiler.sizes.arithmetic import Recording, Replay, hint_of
from dmlgpu.tensors.layout import select

SIZES = [*range(3, 21), 33, 50]
"""20 sizes of the dimension that varies."""

Function = Callable[..., Any]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


FIRST, SECOND = normal(16, 24) / 4, normal(24, 8) / 4
QUERY, KEY, VALUE = normal(3, 16, 16) / 4
TAPS, LAST_TAPS = normal(4, 3, 3, 3) / 4, normal(8, 4, 3, 3) / 4


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def perceptron(x: Any, first: Any, second: Any) -> Any:
    return ops.relu(x @ first) @ second


def perceptron_in_numpy(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ FIRST, 0) @ SECOND


def attention(x: Any, query: Any, key: Any, value: Any) -> Any:
    """Return causal attention of two heads, and x."""
    batch, length, width = x.shape
    heads = [(x @ weight).reshape(batch, length, 2, width // 2).transpose(0, 2, 1, 3) for weight in (query, key, value)]
    scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) / math.sqrt(width // 2)
    mixed = ops.softmax(scores) @ heads[2]
    return x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width)


def attention_in_numpy(x: np.ndarray) -> np.ndarray:
    query, key, value = ((x @ weight).reshape(*x.shape[:2], 2, 8).swapaxes(1, 2) for weight in (QUERY, KEY, VALUE))
    mixed = softmax(query @ key.swapaxes(2, 3) / math.sqrt(8)) @ value
    return x + mixed.swapaxes(1, 2).reshape(x.shape)


def convolutions(x: Any, taps: Any, last: Any) -> Any:
    """Return the means of channels after two convolutions, the first at half the size."""
    hidden = ops.relu(ops.conv2d(x, taps, stride=2, padding=1))
    return ops.mean(ops.conv2d(hidden, last, padding=1), axis=(2, 3))


def convolved(x: np.ndarray, taps: np.ndarray, stride: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bchwyx,ocyx->bohw", windows, taps, optimize=True)


def convolutions_in_numpy(x: np.ndarray) -> np.ndarray:
    return convolved(np.maximum(convolved(x, TAPS, 2), 0), LAST_TAPS, 1).mean((2, 3))


NETWORKS: dict[str, tuple[Function, Function, Function, tuple[np.ndarray, ...]]] = {
    "perceptron": (perceptron, perceptron_in_numpy, lambda size: (size, 16), (FIRST, SECOND)),
    "attention": (attention, attention_in_numpy, lambda size: (2, size, 16), (QUERY, KEY, VALUE)),
    "convolutions": (convolutions, convolutions_in_numpy, lambda size: (2, 3, 2 * size, size), (TAPS, LAST_TAPS)),
}
"""Functions, the same in NumPy, shapes by size, and weights."""


def counted(function: Function) -> tuple[Function, list[Any]]:
    """Return a compiled function, and a list with an entry for each time that it is traced."""
    traces: list[Any] = []

    def noting(*args: Any) -> Any:
        traces.append(None)
        return function(*args)

    return dmlgpu.compile(noting), traces


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_twenty_sizes_are_traced_twice(name: str) -> None:
    function, in_numpy, shape_of, weights = NETWORKS[name]
    compiled, traces = counted(function)
    tensors = [Tensor(weight, device="numpy") for weight in weights]
    for size in SIZES:
        x = normal(*shape_of(size))
        result = compiled(Tensor(x, device="numpy"), *tensors).numpy()
        np.testing.assert_allclose(result, in_numpy(x), rtol=1e-4, atol=1e-5)
    assert len(traces) == 2


# ---- sizes in Python


def halves(x: Any) -> Any:
    """Return views of a result and of an argument that begin in the middle."""
    middle = x.shape[0] // 2
    return (x * 2)[middle:], x[middle:, :2].T


def positions(x: Any) -> Any:
    return x + np.arange(x.shape[0], dtype=np.float32)[:, None]


def steps(x: Any) -> Any:
    total = x[0]
    for index in range(1, x.shape[0]):
        total = total * 0.5 + x[index]
    return total


def odd(x: Any) -> Any:
    return x + 1 if x.shape[0] % 2 else x - 1


TABLE = {f"of {size}": float(size) for size in (3, 5, 8)}

OUTSIDE = Tensor(normal(250, 4), device="numpy")
"""Not an argument of a function."""


@pytest.fixture(autouse=True)
def outside_on_a_living_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of devices may have removed the one that it is on."""
    monkeypatch.setitem(globals(), "OUTSIDE", Tensor(normal(250, 4), device="numpy"))


FUNCTIONS: dict[str, Function] = {
    "rows from outside": lambda x: x + OUTSIDE[: x.shape[0]],
    "later rows from outside": lambda x: x + OUTSIDE[x.shape[0] : 2 * x.shape[0]] * OUTSIDE[x.shape[0]],
    "a column from outside": lambda x: x * OUTSIDE[: x.shape[0], 1:2] + OUTSIDE[-x.shape[0] :],
    "a half that is read": lambda x: x[x.shape[0] // 2 :] * 2 + x[-1],
    "halves": halves,
    "positions": positions,
    "steps": steps,
    "odd": odd,
    "a threshold": lambda x: x * 2 if x.shape[0] > 8 else x * 3,
    "a text": lambda x: x * TABLE.get(f"of {x.shape[0]}", 0.5),
    "a text of the shape": lambda x: x * float(len(str(x.shape))),
    "an entry": lambda x: x * {3: 2.0, 8: 4.0}.get(x.shape[0], 1.0),
    "a set": lambda x: x * (2.0 if x.shape in {(5, 4), (8, 4)} else 1.0),
    "an average": lambda x: ops.sum(x, axis=0) / x.shape[0],
    "a square root": lambda x: x / math.sqrt(x.shape[0]),
    "a power": lambda x: x * x.shape[0] ** -0.5,
    "numpy": lambda x: x * np.float32(np.sqrt(float(x.shape[0]))),
    "a type": lambda x: x * 2 if isinstance(x.shape[0], int) else x,
    "length": lambda x: x * float(len(x)),
    "numbers": lambda x: (x + 1, x.shape, x.shape[0] * 2, x.size, x.shape[0] / 2, f"{x.shape[0]:03d}", len(x) > 4),
    "an argument": lambda x: {"same": x, "first": x[0], "more": x + x.ndim},
    "the largest": lambda x: x * max(x.shape),
    "a rounded quotient": lambda x: x[: math.ceil(x.shape[0] / 3), round(x.shape[0] / 100) :],
    "numpy's product": lambda x: x.reshape(int(np.prod(x.shape))),
    "numpy's shape": lambda x: x * float(np.zeros(x.shape).size),
    "numpy's number": lambda x: x * (np.float32(2) * x.shape[0]),
    "a hash": lambda x: x + hash(x.shape) % 7,
    "bits": lambda x: x * (x.shape[0] & (x.shape[0] - 1)) + x.shape[0].bit_length(),
    "a remainder": lambda x: x[: -(x.shape[0] % 3) or None],
    "an index": lambda x: x[x.shape[0] - 1] + x[-1] + x[x.shape[0] // 2],
    "a step": lambda x: x[:: max(1, x.shape[0] // 4)],
    "integers": lambda x: x.astype("int32") * x.shape[0],
    "padding": lambda x: ops.concatenate([x, x[:1] * 0], axis=0),
    "square": lambda x: x @ x.T,
    "turned": lambda x: x.T.reshape(-1),
    "rows": lambda x: [row * 2 for row in x],
    "one row": lambda x: ops.softmax(x.reshape(1, -1), axis=-1),
    "sorted": lambda x: ops.sort(x, axis=0),
    "sums": lambda x: ops.cumsum(x, axis=0),
    "taken": lambda x: x[np.array([0, -1])],
    "repeated": lambda x: ops.broadcast_to(x[:, None], (x.shape[0], 3, x.shape[1])) + 1,
    "means": lambda x: x - ops.mean(x, axis=0),
    "gradients": dmlgpu.grad(lambda x: ops.mean(ops.tanh(x @ x.T))),
}


def same(result: Any, expected: Any) -> None:
    """Compare results, tensors by their elements, sizes and strides."""
    assert type(result) is type(expected)
    if isinstance(expected, dict):
        assert list(result) == list(expected)
        result, expected = [*result.values()], [*expected.values()]
    if isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for part, other in zip(result, expected, strict=True):
            same(part, other)
    elif isinstance(expected, Tensor):
        assert (result.sizes, result.strides, result.dtype) == (expected.sizes, expected.strides, expected.dtype)
        assert result.is_view == expected.is_view
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    else:
        assert result == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_python_arithmetic_on_sizes_is_not_frozen(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = dmlgpu.compile(function)
    for size in (3, 5, 8, 13, 8, 4, 2, 1, 7, 12, 21, 3, 100):
        x = Tensor(normal(size, 4), device="numpy")
        same(compiled(x), function(x))


@pytest.mark.slow
def test_traces_follow_decisions() -> None:
    """Sizes on the same side of a condition share a trace; those that Python reads as numbers do not."""
    traced = {}
    for name in ("a threshold", "odd", "an average", "halves", "an entry"):
        compiled, traces = counted(FUNCTIONS[name])
        for size in SIZES:
            compiled(Tensor(normal(size, 4), device="numpy"))
        traced[name] = len(traces)
    assert traced == {"a threshold": 3, "odd": 3, "an average": 2, "halves": 2, "an entry": len(SIZES)}


@pytest.mark.parametrize("mutant", ["guards", "values", "results"])
def test_tests_notice_mutants(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without guards, with other symbols, or with numbers of other sizes, results differ or calls fail."""
    if mutant == "guards":
        monkeypatch.setattr(Recording, "decide", lambda self, function, *operands: function(*map(hint_of, operands)))
    elif mutant == "values":
        replayed = Replay.__call__
        monkeypatch.setattr(Replay, "__call__", lambda self, values: replayed(self, [value + 1 for value in values]))
    else:
        replay = Recording.replay
        monkeypatch.setattr(Recording, "replay", lambda self, results: replay(self, results[::-1]))
    with pytest.raises(Exception):  # noqa: B017 - any exception of the mutant
        for name in ("odd", "halves", "numbers", "an average"):
            test_python_arithmetic_on_sizes_is_not_frozen(name)


def test_several_dimensions_become_symbols_one_after_the_other() -> None:
    compiled, traces = counted(lambda x, y: ops.concatenate([x, y], axis=1) * 2)
    for rows, left, right in [(4, 5, 6), (7, 5, 6), (8, 5, 6), (8, 9, 6), (10, 11, 6), (10, 11, 7), (12, 12, 13)]:
        x, y = normal(rows, left), normal(rows, right)
        result = compiled(Tensor(x, device="numpy"), Tensor(y, device="numpy")).numpy()
        np.testing.assert_array_equal(result, np.concatenate([x, y], axis=1) * 2)
    assert len(traces) == 4


@pytest.mark.parametrize(("mode", "most"), [("nearest", 2), ("bilinear", 2), ("bicubic", 4)])
def test_sizes_that_become_scales(mode: str, most: int) -> None:
    """Images are resized as by calls; products with a matrix of weights depend on each size."""
    resized, traces = counted(lambda x: ops.interpolate(x, (2 * x.shape[2] + 1, 7), mode=mode))
    for height in (4, 6, 7, 9):
        x = Tensor(normal(2, 3, height, 5), device="numpy")
        expected = ops.interpolate(x, (2 * height + 1, 7), mode=mode)
        np.testing.assert_array_equal(resized(x).numpy(), expected.numpy())
    assert len(traces) <= most


def test_dynamic_sizes_are_named() -> None:
    compiled = dmlgpu.compile(lambda x, *, y: (x["first"] @ y).T)
    for rows, columns in [(3, 4), (3, 4), (5, 4), (8, 4), (8, 6)]:
        x = {"first": Tensor(normal(rows, 7), device="numpy")}
        compiled(x, y=Tensor(normal(7, columns), device="numpy"))
        if columns == 4:
            expected = "x['first'].shape[0]"
            assert compiled.dynamic_sizes == (() if rows == 3 else (expected,))
    assert compiled.dynamic_sizes == (expected, "y.shape[1]")
    assert repr(compiled).endswith(f": 4 graphs, dynamic in {expected}, y.shape[1]>")
    compiled.cache_clear()
    assert compiled.dynamic_sizes == ()


def test_arrays_and_views_are_arguments() -> None:
    compiled, traces = counted(lambda x, y: x + y)
    whole = normal(40, 40)
    for size in SIZES:
        view, array = Tensor(whole, device="numpy")[:size, 8:12].T, whole[:4, :size]
        np.testing.assert_array_equal(compiled(view, array).numpy(), whole[:size, 8:12].T + array)
        if size == 33:
            break
    assert len(traces) == 2


def test_graphs_are_those_of_the_sizes() -> None:
    compiled, _ = counted(lambda x: ops.relu(x @ x.T))
    for size in (3, 5, 8):
        x = Tensor(normal(size, 4), device="numpy")
        compiled(x)
        assert compiled.desc(x).nodes[0].desc.output_tensor.sizes[-2:] == (size, size)
    assert compiled.cache_info().entries == 3


def test_errors_are_those_of_the_sizes() -> None:
    compiled = dmlgpu.compile(lambda x, y: x + y)
    for size in (3, 5, 8):
        x, y = (Tensor(normal(count), device="numpy") for count in (size, size + 1))
        compiled(x, x)
        with pytest.raises(InvalidArgument, match=rf"\[{size}\].*\[{size + 1}\]"):
            compiled(x, y)


def test_a_variable_may_hold_another_tensor() -> None:
    weight = Tensor(normal(4), device="numpy")
    compiled = dmlgpu.compile(lambda x: x * weight)
    for index, size in enumerate((3, 5, 8, 9, 3, 5)):
        weight = Tensor(normal(4) + index, device="numpy")
        x = normal(size, 4)
        np.testing.assert_array_equal(compiled(Tensor(x, device="numpy")).numpy(), x * weight.numpy())


def test_stored_sizes_are_plain_after_the_trace() -> None:
    """As without symbols, they are those of the trace; they mix with symbols of later traces."""
    stored: list[Any] = []

    def function(x: Any) -> Any:
        stored.append(x.shape[0])
        return x.reshape(-1, stored[-1]) * (stored[0] + x.shape[0] * stored[-1])

    compiled = dmlgpu.compile(function)
    other = dmlgpu.compile(lambda x: x * (x.shape[0] + stored[1]) + max(stored[1], x.shape[0]))
    for size in (3, 5, 8, 13):
        x = normal(size, 4)
        result = compiled(Tensor(x, device="numpy")).numpy()
        np.testing.assert_allclose(result, x.reshape(-1, size) * (3 + size * size), rtol=1e-6)
    assert stored == [3, 5]
    assert (stored[1] + 1, 2 * stored[1], f"{stored[1]}", [*range(stored[1])]) == (6, 10, "5", [0, 1, 2, 3, 4])
    for size in (3, 5, 8, 13):
        x = normal(size, 4)
        result = other(Tensor(x, device="numpy")).numpy()
        np.testing.assert_allclose(result, x * (size + 5) + max(5, size), rtol=1e-6)


def test_a_size_is_no_dimension_of_another_kind() -> None:
    compiled, traces = counted(lambda x, n: x + n)
    for n in (1, 2):
        for size in (3, 5, 8):
            x = normal(size)
            np.testing.assert_array_equal(compiled(Tensor(x, device="numpy"), n).numpy(), x + n)
    assert len(traces) == 4


def test_random_numbers_continue_at_all_sizes() -> None:
    first, second = (dmlgpu.random.default_rng(7, device="numpy") for _ in range(2))
    compiled, traces = counted(lambda x: x + first.random(x.shape))
    for size in (3, 5, 8, 13, 8):
        x = Tensor(normal(size, 4), device="numpy")
        np.testing.assert_array_equal(compiled(x).numpy(), (x + second.random(x.shape)).numpy())
    assert len(traces) == 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_slices_take_the_same_positions_as_python(size: int) -> None:
    places = [None, *range(-size - 2, size + 3)]
    for start, stop, step in itertools.product(places, places, (None, -3, -2, -1, 1, 2, 3)):
        expected = range(size)[start:stop:step]
        for number in (size, Recording([size]).symbols[0]):
            selection = select("x", (number,), (10,), (slice(start, stop, step),))
            (count,) = selection.sizes
            first = expected[-1] if expected and expected.step < 0 else expected.start
            assert count == len(expected)
            assert not count or (selection.offset, selection.strides) == (10 * first, (10 * abs(expected.step),))
            assert bool(selection.reversed_axes) == (bool(expected) and expected.step < 0)
