"""Indices and classes that the host knows are checked before anything runs; those of tensors are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Graph, InvalidArgument, Tensor, ops

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
SCORES = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

Form = Callable[[Any], Any]

FORMS: dict[str, Form] = {
    "list": lambda indices: indices,
    "int64": lambda indices: np.array(indices, np.int64),
    "int32": lambda indices: np.array(indices, np.int32),
    "int8": lambda indices: np.array(indices, np.int8),
    "strided": lambda indices: np.repeat(np.array(indices), 2, -1)[..., ::2],
}
"""What users pass for integers that the host knows."""


@pytest.fixture(autouse=True)
def _numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def raises(what: str, call: Callable[[], Any], *parts: object) -> None:
    """Expect an InvalidArgument, which is an IndexError as well, whose message has some parts."""
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert isinstance(caught.value, IndexError), what
    assert all(str(part) in str(caught.value) for part in parts), (what, str(caught.value))


def gathers(x: Any) -> Iterator[tuple[str, int, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Yield functions of two indices of an axis: name, size of the axis, the function, NumPy's."""
    yield "take", 4, lambda i: ops.take(x, i, axis=0), lambda i: np.take(ROWS, i, axis=0)
    yield "take", 3, lambda i: ops.take(x, i, axis=-1), lambda i: np.take(ROWS, i, axis=-1)
    yield "take", 12, lambda i: ops.take(x, i), lambda i: np.take(ROWS, i)
    yield (
        "take_along_axis",
        3,
        lambda i: ops.take_along_axis(x, np.asarray(i)[None], 1),
        (lambda i: np.take_along_axis(ROWS, np.asarray(i)[None], 1)),
    )
    yield "take_along_axis", 12, lambda i: ops.take_along_axis(x, i, None), lambda i: ROWS.reshape(-1)[np.asarray(i)]
    yield "embedding", 4, lambda i: ops.embedding(i, x), lambda i: ROWS[np.asarray(i)]


def test_gathers_along_axes() -> None:
    for x in (ROWS, Tensor(ROWS), Tensor(ROWS.T).T):
        for (name, size, call, expected), form in ((gather, form) for gather in gathers(x) for form in FORMS.values()):
            for indices in ([0, size - 1], [-size, -1]):
                np.testing.assert_array_equal(np.asarray(call(form(indices))), expected(indices), name)
            for indices, worst in (([0, size], size), ([-size - 1, 0], -size - 1), ([size + 5, -size - 7], size + 5)):
                permitted = f"{name}: indices must be between {-size} and {size - 1} for axis"
                raises(name, lambda call=call, f=form, i=indices: call(f(i)), permitted, f"got {worst}")


def test_wide_and_unsigned_indices() -> None:
    for dtype, value in (
        (np.uint8, 255),
        (np.uint16, 65535),
        (np.int64, 2**40),
        (np.int64, -(2**63)),
        (np.uint64, 2**64 - 1),
    ):
        raises(str(dtype), lambda v=value, d=dtype: ops.take(Tensor(ROWS), np.array([0, v], d), axis=0), f"got {value}")
    assert ops.take(ROWS, np.array([3], np.uint8), axis=0).tolist() == [ROWS[3].tolist()]


def test_indices_of_no_or_several_dimensions() -> None:
    x = Tensor(ROWS)
    for number in (2, -4, np.int64(3), np.array(1)):
        np.testing.assert_array_equal(ops.take(x, number, axis=0).numpy(), ROWS[int(number)])
        np.testing.assert_array_equal(ops.take(ROWS, number, axis=0), ROWS[int(number)])
    for number in (4, -5, 2**70, np.int64(7), np.array(9), [[0, 1], [2, 8]]):
        raises(repr(number), lambda n=number: ops.take(x, n, axis=0), "take: indices must be between -4 and 3")
    assert ops.take(x, np.zeros((0, 2), np.int64), axis=0).shape == (0, 2, 3)
    assert ops.embedding(1, x).tolist() == ROWS[1].tolist()
    raises("empty axis", lambda: ops.take(Tensor(np.zeros((0, 3), np.float32)), [0], axis=0), "must be absent")
    raises("empty result", lambda: ops.take(Tensor(np.zeros((0, 3), np.float32)), [3], axis=1), "got 3")


def test_bad_dtypes_are_rejected_as_before() -> None:
    for indices in ([0.5], [True], np.array([1.0])):
        with pytest.raises(InvalidArgument, match="indices must be of a type of kind integer"):
            ops.take(Tensor(ROWS), indices, axis=0)


def test_assignment_and_indexing() -> None:
    for index in (10, -5, [0, 10], np.array([4]), (0, 3), (slice(None), [3])):
        raises(repr(index), lambda i=index: Tensor(ROWS)[i], "an index must be between")
        raises(
            repr(index), lambda i=index: Tensor(ROWS).__setitem__(i, 1), "Tensor[...] = value: index", "out of bounds"
        )


def test_classes_of_losses() -> None:
    probabilities = ops.log_softmax(SCORES)
    for loss, scores in ((ops.cross_entropy, SCORES), (ops.nll_loss, probabilities)):
        for scores_form in (scores, Tensor(scores)):
            for target, worst in (
                ([0, 7], 7),
                ([-1, 0], -1),
                (np.array([3, 2], np.uint8), 3),
                (np.array([2, -101]), -101),
            ):
                text = f"{loss.__name__}: target must be between 0 and 2 for 3 classes, or -100, got {worst}"
                raises(text, lambda s=scores_form, t=target, f=loss: f(s, t), text)
            expected = -probabilities[1, 2]
            np.testing.assert_allclose(np.asarray(loss(scores_form, [-100, 2])), expected, rtol=1e-6)
            np.testing.assert_allclose(np.asarray(loss(scores_form, [9, 2], ignore_index=9)), expected, rtol=1e-6)
            raises("ignored", lambda s=scores_form, f=loss: f(s, [9, -100], ignore_index=9), "or 9, got -100")
            np.testing.assert_allclose(np.asarray(loss(scores_form[0], 1)), -probabilities[0, 1], rtol=1e-6)
            raises("one row", lambda s=scores_form, f=loss: f(s[0], 3), "got 3")
    images = np.zeros((1, 3, 2, 2), np.float32)
    raises("pixels", lambda: ops.cross_entropy(images, [[[0, 1], [2, 3]]]), "got 3")
    assert np.isnan(ops.cross_entropy(np.zeros((0, 3), np.float32), np.zeros(0, np.int64)))


def test_one_hot() -> None:
    for form in FORMS.values():
        np.testing.assert_array_equal(ops.one_hot(form([0, 2]), 3), np.eye(3)[[0, 2]])
        for indices, worst in (([0, 3], 3), ([-1, 2], -1)):
            text = f"one_hot: indices must be between 0 and 2 for a depth of 3, got {worst}"
            raises(text, lambda f=form, i=indices: ops.one_hot(f(i), 3), text)


def test_sorters_and_lengths() -> None:
    raises("sorter", lambda: ops.searchsorted([1, 2, 3], [2], sorter=[0, 1, 3]), "sorter must be between -3 and 2")
    x, lengths = np.ones((5, 2, 3), np.float32), np.array([5, 6], np.uint32)
    weight, recurrence = np.ones((1, 6, 3), np.float32), np.ones((1, 6, 2), np.float32)
    raises("gru", lambda: ops.gru(x, weight, recurrence, lengths=lengths), "lengths must be between 0 and 5", "got 6")
    weight, recurrence = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
    raises("lstm", lambda: ops.lstm(x, weight, recurrence, lengths=lengths), "lengths must be between 0 and 5", "got 6")


def test_constants_of_compiled_functions_graphs_and_gradients() -> None:
    x = Tensor(ROWS)
    assert dmlgpu.compile(lambda a: ops.take(a, [0, -1], axis=0))(x).tolist() == ROWS[[0, -1]].tolist()
    raises("compiled", lambda: dmlgpu.compile(lambda a: ops.take(a, [0, 4], axis=0))(x), "indices must be between -4")
    raises("loss", lambda: dmlgpu.compile(lambda a: ops.cross_entropy(a, [0, 1, 2, 3]))(x), "got 3")

    def picked(a: Tensor) -> Any:
        return ops.sum(ops.take(a, [1, 4], axis=0))

    raises("gradient", lambda: dmlgpu.grad(picked)(x), "got 4")
    graph = Graph(device="numpy")
    node = graph.input(dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (4, 3)))
    raises("graph", lambda: ops.take(node, [0, 4], axis=0), "got 4")

    compiled = dmlgpu.compile(lambda a: ops.take(a, [2], axis=0))
    for rows in (5, 6, 7, 3):  # a symbol from the second size on
        assert compiled(Tensor(np.ones((rows, 2), np.float32))).shape == (1, 2)
    raises("smaller size", lambda: compiled(Tensor(np.ones((2, 2), np.float32))), "between -2 and 1 for axis 0, got 2")


def test_indices_of_tensors_are_not_read() -> None:
    x = Tensor(ROWS)
    assert ops.take(x, Tensor([0, 10]), axis=0).tolist() == [ROWS[0].tolist(), [0, 0, 0]]
    assert ops.one_hot(Tensor([5]), 3).tolist() == [[0, 0, 0]]
    compiled = dmlgpu.compile(lambda a, i: ops.take(a, i, axis=0))  # arguments are inputs of the graph
    assert compiled(x, Tensor([4])).tolist() == [[0, 0, 0]]


def test_arrays_among_arguments_of_compiled_functions() -> None:
    """Each call checks its own array, against the sizes of the call, which are symbols from the second one on."""
    scores = np.linspace(-1, 1, 27, dtype=np.float32).reshape(9, 3)
    functions: dict[str, tuple[Callable[[Any, Any], Any], str, int]] = {
        "take": (lambda x, i: ops.take(x, i, axis=0), "between {low} and {high} for axis 0", -1),
        "row": (lambda x, i: x[i, 0], "between {low} and {high} for axis 0", -1),
        "reshaped": (lambda x, i: ops.take(x, i.reshape(1, -1), axis=0), "between {low} and {high} for axis 0", -1),
        "embedding": (lambda x, i: ops.embedding(i, x), "between {low} and {high} for axis 0", -1),
        "classes": (lambda x, i: ops.nll_loss(x.T[: i.shape[0]], i), "between 0 and {high} for {count} classes", -100),
    }
    for name, (function, text, least) in functions.items():
        compiled = dmlgpu.compile(function)
        for count in (4, 6, 7, 9):
            x, permitted = scores[:count], text.format(low=-count, high=count - 1, count=count)
            compiled(Tensor(x), np.array([0, count - 1, least]))
            compiled(Tensor(x), Tensor(np.array([0, count, 1])))
            for number in (count, -count - 1):
                indices = np.array([0, number, 1])
                raises(name, lambda x=x, c=compiled, i=indices: c(Tensor(x), i), permitted, f"got {number}")
    part = dmlgpu.compile(lambda x, i: ops.take(x, i[:1], axis=0))
    assert part(Tensor(scores), np.array([0, 99])).tolist() == scores[:1].tolist(), "indices that are not used"


def test_arrays_among_arguments_of_differentiated_and_vectorized_functions() -> None:
    def loss(scores: Any, batch: Any) -> Any:
        return ops.cross_entropy(scores * 2, batch["target"])

    functions = [dmlgpu.value_and_grad(loss), dmlgpu.grad(loss), dmlgpu.vmap(loss)]
    for function in (*functions, *map(dmlgpu.compile, functions), dmlgpu.vmap(functions[1])):
        function(Tensor(SCORES), {"target": np.array([2, -100])})
        raises("grad", lambda f=function: f(Tensor(SCORES), {"target": np.array([0, 3])}), "for 3 classes", "got 3")
