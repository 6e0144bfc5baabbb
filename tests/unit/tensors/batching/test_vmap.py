"""``dmlgpu.vmap``: a function of one element on a batch equals the function on each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DmlError, Tensor, ops
from dmlgpu.tensors.batching.rules import RULES
from tests.unit.tensors.gradients.gradient_checks import Array, draw

d: Any = ops.directml


@pytest.fixture(autouse=True, scope="module")
def on_numpy() -> Any:
    with dmlgpu.device("numpy"):
        yield


def tensor(array: Array) -> Tensor:
    return Tensor(array.astype(np.float32) if array.dtype == np.float64 else array, device="numpy")


X, V, IMAGES = draw(4, 3, 5), draw(4, 5, seed=1), draw(3, 2, 3, 6, 6, seed=2)
WEIGHT, FILTER = draw(5, 2, seed=3).astype(np.float32), draw(4, 3, 3, 3, seed=4).astype(np.float32)
FILTERS, LABELS = draw(3, 4, 3, 3, 3), np.array([1, 0, 2, 1])


def weight() -> Tensor:
    return tensor(WEIGHT)


def assigned(x: Tensor) -> Tensor:
    copy = x.copy()
    copy[0, 1:] = 5
    return copy


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "numbers": (lambda x: 2 * x + 1, [X]),
    "scalars": (lambda x: ops.where(x > 0, x, -x), [V[:, 0]]),
    "broadcast of ranks": (lambda x, v: x * v + x[0], [X, V]),
    "two tables": (lambda a, b: a[:, None] * b, [V, V]),
    "shared tensor": (lambda x: x @ weight(), [X]),
    "vectors": (lambda v: v @ weight() @ weight().T @ v, [V]),
    "products": (lambda x: x.T @ x, [X]),
    "stacks of stacks": (lambda x: x @ x.transpose(0, 1, 3, 2), [IMAGES]),
    "transposed, not contiguous": (lambda x: (x.T + 1).reshape(-1), [X]),
    "slices": (lambda x: x[1:, ::2], [X]),
    "negative steps": (lambda x: x[::-1, 1], [X]),
    "list of indices": (lambda x: x[[0, 2]], [X]),
    "tables of indices": (
        lambda x: ops.take(ops.take(x, np.array([[0, 2], [1, 1]]), axis=0), np.array([[[4], [0]]]), axis=-1),
        [X],
    ),
    "windows": (lambda image: ops.adaptive_max_pool2d(image, 4), [IMAGES]),
    "indices of elements": (lambda x: ops.take(weight(), ops.argmax(x, axis=1)), [X]),
    "indices and table of elements": (lambda x: ops.take(x, ops.argmax(x, axis=1), axis=1), [X]),
    "along an axis": (lambda x: ops.take_along_axis(x, ops.argmax(x, axis=1, keepdims=True), axis=1), [X]),
    "sum": (ops.sum, [X]),
    "sum of an axis": (lambda x: ops.sum(x, axis=0, keepdims=True), [X]),
    "softmax": (lambda x: ops.softmax(x, axis=0), [X]),
    "softmax over all but one axis": (d.activation_softmax, [X]),
    "layer norm": (lambda x: ops.layer_norm(x, weight=weight()[:, 0]), [X]),
    "sort": (lambda x: ops.sort(x, axis=0), [X]),
    "topk": (lambda x: ops.topk(x, 2)[0], [X]),
    "cumulative": (lambda x: ops.cumsum(x, axis=0) + ops.cumprod(x, axis=1), [X]),
    "concatenate": (lambda x: ops.concatenate([x, weight().T], axis=0), [X]),
    "split": (lambda x: ops.split(x, [1, 4], axis=1)[1], [X]),
    "pad, tile": (lambda x: ops.pad(ops.tile(x, (2, 1)), ((1, 0), (0, 2))), [X]),
    "assignment": (assigned, [X]),
    "booleans": (lambda x: (x > 0) & (x < 1), [X]),
    "argmax": (lambda x: ops.argmax(x, axis=1), [X]),
    "integers": (lambda label: label * 2 + 1, [LABELS]),
    "cross entropy": (lambda v, label: ops.cross_entropy(v[None], label[None]), [V, LABELS]),
    "convolution": (lambda image: ops.conv2d(image, tensor(FILTER)), [IMAGES]),
    "convolution with filters of elements": (ops.conv2d, [IMAGES, FILTERS]),
    "pooling": (lambda image: ops.max_pool2d(image, 2) + ops.avg_pool2d(image, 2), [IMAGES]),
    "resize": (lambda image: ops.resize(image, (9, 12)), [IMAGES]),
    "attention": (lambda x: ops.attention(x[None], x[None], x[None], 1), [X]),
    "gradient": (dmlgpu.grad(lambda x: ops.sum(ops.tanh(x @ weight()))), [X]),
    "in itself": (dmlgpu.vmap(lambda row: row / ops.sum(row)), [X]),
    "compiled": (dmlgpu.compile(lambda x: ops.relu(x @ weight())), [X]),
}  # fmt: skip


def each(function: Callable[..., Any], arrays: list[Array]) -> Array:
    calls = [function(*(tensor(array[index]) for array in arrays)).numpy() for index in range(len(arrays[0]))]
    return np.stack(calls)


def test_a_batch_equals_its_elements() -> None:
    for name, (function, arrays) in FUNCTIONS.items():
        expected = each(function, arrays)
        batch = dmlgpu.vmap(function)(*map(tensor, arrays))
        assert isinstance(batch, Tensor) and batch.shape == expected.shape and batch.dtype == expected.dtype, name
        np.testing.assert_allclose(batch.numpy(), expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_batch_on_a_gpu() -> None:
    arrays = [X.astype(np.float32), V.astype(np.float32)]
    with dmlgpu.device(dmlgpu.default_device()):
        vectorized = dmlgpu.compile(dmlgpu.vmap(lambda x, v: ops.softmax(x * v @ Tensor(WEIGHT), axis=0)))
        expected = np.exp(arrays[0] * arrays[1][:, None] @ WEIGHT)
        batch = vectorized(*map(Tensor, arrays)).numpy()
    np.testing.assert_allclose(batch, expected / expected.sum(1, keepdims=True), rtol=1e-5)


def test_operators_run_once_but_for_those_without_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules themselves: without one, an operator is called for each of the elements."""

    def count(function: Callable[..., Any], *arrays: Array) -> int:
        return len(dmlgpu.compile(dmlgpu.vmap(function)).graph(*map(tensor, arrays)).nodes)

    assert count(ops.softmax, X) == 1
    assert count(lambda x: ops.sum(ops.exp(x), axis=0), X) == 2
    assert count(lambda image: ops.conv2d(image, tensor(FILTER)), IMAGES) == 1
    monkeypatch.delitem(RULES, "REDUCE")
    assert count(lambda x: ops.sum(ops.exp(x), axis=0), X) > len(X)
    assert count(d.activation_softmax, X) > len(X)


def test_gradients_of_a_batch() -> None:
    def loss(weight: Any) -> Any:
        return ops.sum(dmlgpu.vmap(lambda x, v: ops.tanh(x @ weight) * v[0])(tensor(X), tensor(V)))

    def expected(weight: Any) -> Any:
        return ops.sum(ops.tanh(tensor(X) @ weight) * tensor(V)[:, 0, None, None])

    for gradient in (dmlgpu.grad(loss), dmlgpu.compile(dmlgpu.grad(loss))):
        np.testing.assert_allclose(gradient(weight()).numpy(), dmlgpu.grad(expected)(weight()).numpy(), rtol=1e-5)


def test_axes_structures_and_shared_arguments() -> None:
    def function(x: Any, v: Any, *, scale: Any) -> Any:
        return {"product": x * v * scale, "shared": (v, None)}

    scale = V[:3, 0].astype(np.float32)
    batch = dmlgpu.vmap(function, in_axes=(-2, None), out_axes=1)(tensor(X), tensor(V[0]), scale=scale)
    expected = [X[:, index] * V[0] * scale[index] for index in range(3)]
    np.testing.assert_allclose(batch["product"].numpy(), np.stack(expected, axis=1), rtol=1e-5)
    assert (
        batch["shared"][1] is None
        and batch["shared"][0].tolist() == tensor(V[0])[:, None].broadcast_to((5, 3)).tolist()
    )
    batch = dmlgpu.vmap(lambda x: 3, in_axes=1)(tensor(X))
    assert batch.tolist() == [3, 3, 3]


def test_arrays_give_arrays_and_empty_batches() -> None:
    doubled = dmlgpu.vmap(lambda v: v * 2)(V.astype(np.float32))
    assert isinstance(doubled, np.ndarray) and doubled.tolist() == (V.astype(np.float32) * 2).tolist()
    empty = dmlgpu.vmap(lambda v: ops.sum(v * 2))(np.zeros((0, 5), np.float32))
    assert empty.shape == (0,) and empty.dtype == np.float32


def test_sizes_of_batches_share_a_trace() -> None:
    vectorized = dmlgpu.compile(dmlgpu.vmap(lambda x: ops.exp(x @ weight())))
    for size in (2, 3, 4, 3):
        np.testing.assert_allclose(vectorized(tensor(X[:size])).numpy(), np.exp(X[:size] @ WEIGHT), rtol=1e-5)
    assert vectorized.dynamic_sizes == ("x.shape[0]",)


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: dmlgpu.vmap(3), "vmap: function must be callable, got 3"),  # type: ignore[arg-type]
    (lambda: dmlgpu.vmap(len, in_axes="x"), "vmap: in_axes must be an integer, got 'x'"),  # type: ignore[arg-type]
    (lambda: dmlgpu.vmap(abs, in_axes=(0, 0))(tensor(X)), "in_axes must have an entry per argument, 1, got 2"),
    (lambda: dmlgpu.vmap(abs)(tensor(V[0, 0])), "argument 0 of `abs` must have an axis for the batch, got a scalar"),
    (lambda: dmlgpu.vmap(abs, in_axes=2)(tensor(V)), "in_axes of argument 0"),
    (lambda: dmlgpu.vmap(abs, in_axes=None)(tensor(V)), "no tensor has an axis for it"),
    (lambda: dmlgpu.vmap(lambda a, b: a + b)(tensor(X), tensor(IMAGES)), "got 4 in argument 0 and 3 in argument 1"),
    (lambda: dmlgpu.vmap(lambda x: float(ops.sum(x)))(tensor(X)), "must not read the elements"),
    (lambda: dmlgpu.vmap(lambda x: x if x > 0 else -x)(tensor(V[:, 0])), "a condition such as `if x`"),
    (lambda: dmlgpu.vmap(lambda x: x + GENERATOR.normal(size=5))(tensor(V)), "must not draw random numbers"),
    (lambda: dmlgpu.vmap(lambda x: ops.exp(x.reshape((1,) * 8)))(tensor(V[:, :1])), "must have at most 7 axes"),
    (lambda: dmlgpu.vmap(lambda x: x @ x)(tensor(X)), "a @ b: the last size of a must equal the first of b's"),
]
GENERATOR = dmlgpu.random.default_rng(0)


def test_errors_name_valid_arguments() -> None:
    for call, message in ERRORS:
        with pytest.raises(DmlError) as caught:
            call()
        assert message in str(caught.value), message
