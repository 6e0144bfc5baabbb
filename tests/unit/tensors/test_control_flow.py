"""``dmlgpu.cond`` and ``dmlgpu.scan``: eager, compiled, differentiated, and in ``dmlgpu.vmap``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DmlError, Tensor, ops


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    with dmlgpu.device("numpy"):
        yield


def chosen(x: Any) -> Any:
    return dmlgpu.cond(
        ops.sum(x) > 3, lambda x: {"y": ops.sqrt(x), "m": x > 1}, lambda x: {"y": -x, "m": x < 1}, x
    )  # fmt: skip


def test_cond_chooses_a_function() -> None:
    for function in (chosen, dmlgpu.compile(chosen)):
        result = function(Tensor([4.0, 9.0]))
        assert result["y"].tolist() == [2, 3] and result["m"].tolist() == [True, True]
        result = function(Tensor([1.0, 0.5]))
        assert result["y"].tolist() == [-1, -0.5] and result["m"].tolist() == [False, True]
    called = []
    dmlgpu.cond(Tensor([0]), called.append, lambda x: called.append(-x), 5)
    assert called == [-5] and dmlgpu.cond(True, lambda: 1, lambda: 2) == 1


def test_cond_of_each_element_and_gradients() -> None:
    each = dmlgpu.vmap(lambda x: dmlgpu.cond(x > 5, ops.sqrt, lambda x: -x, x))
    assert each(Tensor([4.0, 9.0])).tolist() == [-4, 3]
    loss = lambda x: ops.sum(dmlgpu.cond(ops.sum(x) > 3, lambda x: x * x, lambda x: 5 * x, x))  # noqa: E731
    for gradient in (dmlgpu.grad(loss), dmlgpu.compile(dmlgpu.grad(loss))):
        assert gradient(Tensor([1.0, 3.0])).tolist() == [2, 6]
        assert gradient(Tensor([1.0, 0.0])).tolist() == [5, 5]


def decayed(carry: Any, x: Any) -> Any:
    carry = carry * 0.5 + x["value"]
    return carry, (carry, carry > 1, None)


def expected(values: list[float], reverse: bool = False) -> list[float]:
    carry, results = 0.0, []
    for value in reversed(values) if reverse else values:
        carry = carry * 0.5 + value
        results.append(carry)
    return results[::-1] if reverse else results


def test_scan_passes_the_carry_on_and_stacks_results() -> None:
    values = [1.0, 2.0, -4.0]

    def forward(xs: Any) -> Any:
        return dmlgpu.scan(decayed, Tensor(0.0), {"value": xs})

    def backward(xs: Any) -> Any:
        return dmlgpu.scan(decayed, Tensor(0.0), {"value": xs}, reverse=True)

    for function, is_reversed in ((forward, False), (backward, True)):
        sums = expected(values, is_reversed)
        for run in (function, dmlgpu.compile(function)):
            carry, (results, above, nothing) = run(Tensor(values))
            assert carry.item() == sums[0 if is_reversed else -1] and results.tolist() == sums and nothing is None
            assert above.tolist() == [value > 1 for value in sums]
    assert dmlgpu.scan(lambda carry, _: (carry + 1, carry), Tensor(0.0), length=3)[1].tolist() == [0, 1, 2]
    assert dmlgpu.scan(lambda c, x: (c, x), None, np.arange(6).reshape(3, 2))[1].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_scan_with_a_compiled_step_and_gradients() -> None:
    weight = Tensor(np.random.default_rng(1).uniform(-1, 1, (4, 4)).astype(np.float32))
    xs = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)
    step = dmlgpu.compile(lambda state, x: (ops.tanh(state @ weight + x), None))
    state, _ = dmlgpu.scan(step, Tensor(np.zeros(4, np.float32)), Tensor(xs))
    right = np.zeros(4)
    for x in xs:
        right = np.tanh(right @ weight.numpy() + x)
    np.testing.assert_allclose(state.numpy(), right, rtol=1e-5)
    assert step.cache_info().misses == 1
    gradient = dmlgpu.grad(lambda xs: dmlgpu.scan(lambda c, x: (c * 0.5 + x, None), Tensor(0.0), xs)[0])
    assert gradient(Tensor([1.0, 2.0, 3.0])).tolist() == [0.25, 0.5, 1]


X = np.ones(2, np.float32)
ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: dmlgpu.cond(Tensor(X) > 1, ops.sqrt, ops.exp, X), "condition must have one element, got sizes [2]"),
    (lambda: dmlgpu.cond(True, 3, ops.exp, X), "cond: true_function must be callable, got 3"),  # type: ignore[arg-type]
    (
        lambda: dmlgpu.compile(lambda x: dmlgpu.cond(ops.sum(x) > 1, ops.sqrt, ops.sum, x))(Tensor(X)),
        "must return the same shapes and dtypes, got float32 [2] and float32 []",
    ),
    (lambda: dmlgpu.scan(3, X, X), "scan: function must be callable, got 3"),  # type: ignore[arg-type]
    (lambda: dmlgpu.scan(lambda c, x: c, X, X), "must return a pair (carry, result)"),
    (lambda: dmlgpu.scan(lambda c, x: (c, x), X), "xs or length must say how many steps there are"),
    (lambda: dmlgpu.scan(lambda c, x: (c, x), X, X, length=3), "must be equal, got 2 of xs and 3 of length"),
    (lambda: dmlgpu.scan(lambda c, x: (c, x), X, X[:0]), "at least one step"),
    (lambda: dmlgpu.scan(lambda c, x: (c, x), X, Tensor(1.0)), "xs must have an axis for the steps, got a scalar"),
]  # fmt: skip


def test_errors_name_valid_arguments() -> None:
    for call, message in ERRORS:
        with pytest.raises(DmlError) as caught:
            call()
        assert message in str(caught.value), message
