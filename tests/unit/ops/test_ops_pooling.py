"""Pooling, activations, attention of grouped queries and dropout against PyTorch's CPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import InvalidArgument, InvalidState, Tensor, ops

torch = pytest.importorskip("torch", reason="PyTorch, with which these are compared, is not installed")
functional: Any = torch.nn.functional

RNG = np.random.default_rng(13)


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def floats(*sizes: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(sizes).astype(dtype)


def check(result: Tensor, expected: Any, case: str) -> None:
    tolerance = 2e-3 if result.dtype == np.float16 else 1e-5
    assert result.shape == tuple(expected.shape), case
    np.testing.assert_allclose(result.numpy(), expected.numpy(), tolerance, tolerance, err_msg=case)


SIZES = {1: (2, 3, 11), 2: (2, 3, 8, 11), 3: (1, 2, 5, 6, 7)}
WINDOWS = ((2, None, 0), (3, 2, 1), (3, 1, 1), (2, 3, 1), (5, 4, 2))


@pytest.mark.slow
def test_sliding_windows() -> None:
    for rank, (kernel, stride, padding), ceil, dtype in itertools.product(
        SIZES, WINDOWS, (False, True), (np.float32, np.float16)
    ):
        x = floats(*SIZES[rank], dtype=dtype)
        operands = Tensor(x), torch.from_numpy(x)
        case = f"{rank} {kernel} {stride} {padding} {ceil}"
        arguments = kernel, stride, padding
        result = getattr(ops, f"max_pool{rank}d")(operands[0], *arguments, ceil_mode=ceil)
        check(result, getattr(functional, f"max_pool{rank}d")(operands[1], *arguments, ceil_mode=ceil), f"max {case}")
        for counted in (False, True):
            options = {"ceil_mode": ceil, "count_include_pad": counted}
            result = getattr(ops, f"avg_pool{rank}d")(operands[0], *arguments, **options)
            wide = operands[1].float() if dtype == np.float16 else operands[1]
            expected = getattr(functional, f"avg_pool{rank}d")(wide, *arguments, **options)
            check(result, expected, f"mean {case} {counted}")
    x = floats(2, 3, 9, 9)
    result = ops.max_pool2d(Tensor(x), 3, 2, 1, dilation=2, ceil_mode=True)
    check(result, functional.max_pool2d(torch.from_numpy(x), 3, 2, 1, 2, True), "dilation")
    assert ops.avg_pool2d(Tensor(np.ones((1, 1, 2, 2), np.float32)), 3, padding=1).tolist() == [[[[1.0]]]]
    assert ops.max_pool1d(Tensor(np.empty((0, 2, 5), np.float32)), 2).shape == (0, 2, 2)


@pytest.mark.slow
def test_adaptive_windows() -> None:
    for rank, dtype in itertools.product(SIZES, (np.float32, np.float16)):
        x = floats(*SIZES[rank], dtype=dtype)
        tensor, wide = Tensor(x), torch.from_numpy(x.astype(np.float32))
        outputs: list[Any] = [1, 2, 3, 5, 13]
        if rank > 1:
            outputs += [(None, *([4] * (rank - 1))), (1, *([None] * (rank - 1)))]
        for output, kind in itertools.product(outputs, ("avg", "max")):
            name = f"adaptive_{kind}_pool{rank}d"
            check(getattr(ops, name)(tensor, output), getattr(functional, name)(wide, output), f"{name} {output}")
    whole = RNG.integers(-100, 100, (1, 2, 5, 7)).astype(np.int32)
    expected = functional.adaptive_max_pool2d(torch.from_numpy(whole.astype(np.float32)), 3).int()
    check(ops.adaptive_max_pool2d(Tensor(whole), 3), expected, "int32")
    with_nan = floats(1, 1, 4, 4)
    with_nan[0, 0, 0, 0] = np.nan
    for size in (2, 3):
        expected = functional.adaptive_max_pool2d(torch.from_numpy(with_nan), size)
        check(ops.adaptive_max_pool2d(Tensor(with_nan), size), expected, "NaN")


def test_gradients_of_pooling() -> None:
    x = floats(1, 2, 7, 5)
    calls: tuple[tuple[str, tuple[int, ...], dict[str, bool]], ...] = (
        ("avg_pool2d", (3, 2, 1), {"ceil_mode": True, "count_include_pad": True}),
        ("max_pool2d", (3, 2, 1), {"ceil_mode": True}),
        ("adaptive_avg_pool2d", (3,), {}),
        ("adaptive_avg_pool2d", (1,), {}),
        ("adaptive_max_pool2d", (3,), {}),
    )
    for name, arguments, options in calls:
        theirs = torch.from_numpy(x).requires_grad_()
        (getattr(functional, name)(theirs, *arguments, **options) ** 2).sum().backward()

        def loss(x: Any, name: str = name, arguments: Any = arguments, options: Any = options) -> Any:
            return (getattr(ops, name)(x, *arguments, **options) ** 2).sum()

        np.testing.assert_allclose(dmlgpu.grad(loss)(Tensor(x)).numpy(), theirs.grad.numpy(), 1e-4, 1e-5, err_msg=name)


def test_activations() -> None:
    x = np.concatenate([floats(40) * 4, [0, 3, -3, 6, 7, 30, -30, np.inf, -50]]).astype(np.float32)
    for name in ("hardswish", "hardsigmoid", "relu6", "mish", "selu"):
        for dtype in (np.float32, np.float16):
            values = x[:-2].astype(dtype)
            check(getattr(ops, name)(Tensor(values)), getattr(functional, name)(torch.from_numpy(values)), name)
        theirs = torch.from_numpy(x[:40]).requires_grad_()
        getattr(functional, name)(theirs).sum().backward()
        ours = dmlgpu.grad(lambda x, name=name: getattr(ops, name)(x).sum())(Tensor(x[:40]))
        np.testing.assert_allclose(ours.numpy(), theirs.grad.numpy(), 1e-5, 1e-5, err_msg=name)
    assert ops.relu6(Tensor([-3, 4, 9])).tolist() == [0, 4, 6]


@pytest.mark.slow
def test_attention_of_grouped_queries() -> None:
    mask = RNG.random((5, 7)) < 0.8
    mask[:, 0] = True
    for heads, shared, batch in ((4, 2, 2), (4, 1, 1), (6, 3, 2), (2, 2, 1)):
        q, k, v = floats(batch, heads, 5, 8), floats(batch, shared, 7, 8), floats(batch, shared, 7, 6)
        for options in (
            {},
            {"mask": mask},
            {"mask": floats(batch, heads, 5, 7)},
            {"mask": floats(batch, 1, 5, 7)},
            {"mask": floats(heads, 5, 7)[None]},
            {"causal": True},
        ):
            theirs = {"attn_mask": torch.from_numpy(options["mask"])} if "mask" in options else {}
            if "causal" in options:
                theirs = {"attn_mask": torch.tril(torch.ones(5, 7, dtype=torch.bool))}
            expected = functional.scaled_dot_product_attention(
                *map(torch.from_numpy, (q, k, v)), **theirs, enable_gqa=True
            )
            ours = {name: Tensor(value) if name == "mask" else value for name, value in options.items()}
            case = f"{heads} {shared} {list(options)}"
            check(ops.attention(Tensor(q), Tensor(k), Tensor(v), **ours), expected, case)
            flat = [np.moveaxis(x, 1, 2).reshape(batch, x.shape[2], -1) for x in (q, k, v)]
            if "mask" in ours and ours["mask"].ndim == 2:
                ours["mask"] = ours["mask"].expand_dims((0, 1))
            result = ops.attention(*map(Tensor, flat), num_heads=heads, **ours)
            check(result, expected.transpose(1, 2).reshape(batch, 5, -1), f"rank 3 {case}")
    q, k = floats(1, 4, 3, 8), floats(1, 2, 5, 8)
    theirs = [torch.from_numpy(x).requires_grad_() for x in (q, k, k * 2)]
    (functional.scaled_dot_product_attention(*theirs, enable_gqa=True) ** 2).sum().backward()
    gradients = dmlgpu.grad(lambda q, k, v: (ops.attention(q, k, v) ** 2).sum(), argnums=(0, 1, 2))
    for ours, other in zip(gradients(Tensor(q), Tensor(k), Tensor(k * 2)), theirs, strict=True):
        np.testing.assert_allclose(ours.numpy(), other.grad.numpy(), 1e-4, 1e-5)
    for sizes in (((1, 4, 3, 8), (1, 3, 5, 8)), ((1, 2, 3, 8), (1, 4, 5, 8)), ((1, 4, 3, 8), (1, 2, 5, 6))):
        with pytest.raises(InvalidArgument, match="attention: "):
            ops.attention(*(Tensor(floats(*size)) for size in (*sizes, sizes[1])))
    with pytest.raises(InvalidArgument, match="attention: last sizes must be whole heads"):
        ops.attention(*(Tensor(floats(1, 3, width)) for width in (32, 20, 20)), num_heads=4)


@dmlgpu.compile
def compiled_dropout(x: Any) -> Any:
    return ops.dropout(x)


def test_dropout_without_a_generator() -> None:
    x = Tensor(np.ones(2000, np.float32))
    draws = []
    for _ in range(2):
        dmlgpu.random.seed(3)
        draws.append([ops.dropout(x).tolist(), ops.dropout(x, 0.1).tolist(), compiled_dropout(x).tolist()])
        draws[-1].append(compiled_dropout(x).tolist())
    assert draws[0] == draws[1]
    assert len({tuple(draw) for draw in draws[0]}) == 4
    assert 900 < sum(value == 2.0 for value in draws[0][0]) < 1100
    dmlgpu.random.seed()
    assert ops.dropout(x).tolist() != draws[0][0]
    for call, error, words in (
        (lambda: dmlgpu.random.seed(-1), InvalidArgument, "seed: seed must"),
        (lambda: ops.dropout(x, generator=3), InvalidArgument, "dropout: generator must be"),
        (lambda: dmlgpu.compile(lambda x: (dmlgpu.random.seed(1), x)[1])(x), InvalidState, "seed: must not be called"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_wrong_arguments() -> None:
    x = Tensor(floats(1, 1, 4, 4))
    for call, words in (
        (lambda: ops.avg_pool2d(x, 2, count_include_pad=1), "avg_pool2d: include_padding must"),
        (lambda: ops.max_pool2d(x, 2, ceil_mode=1), "max_pool2d: ceil_mode must"),
        (lambda: ops.max_pool2d(x, 2, 0), "max_pool2d: kernel_size, stride and dilation must be at least 1"),
        (lambda: ops.max_pool1d(x, 2), "max_pool1d: x must have 3 dimensions"),
        (lambda: ops.adaptive_avg_pool2d(x, (1, 2, 3)), "adaptive_avg_pool2d: output_size must"),
        (lambda: ops.adaptive_avg_pool2d(x.astype("int32"), 1), "adaptive_avg_pool2d: x must be of a type of kind"),
        (lambda: ops.adaptive_max_pool2d(x[:, :, :0], 1), "adaptive_max_pool2d: x must have elements"),
    ):
        with pytest.raises(InvalidArgument, match="^" + words):
            call()
