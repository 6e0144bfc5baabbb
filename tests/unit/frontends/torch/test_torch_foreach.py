"""Operators on lists of tensors on the PyTorch device, which optimizers call, against PyTorch's CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.frontends.torch import adapters, foreach  # noqa: E402
from dmlgpu.tensors.session import session_of  # noqa: E402

SHAPES = ((3,), (2, 4), (), (5, 1, 2))


def tensors(seed: int, dtype: Any = torch.float32, shapes: Any = SHAPES) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=generator) + 0.5).to(dtype) for shape in shapes]


def arguments(name: str, dtype: Any, shapes: Any = SHAPES) -> tuple[Any, ...]:
    """Return arguments of an overload on the CPU."""
    packet, _, kind = name.partition(".")
    operator = packet.removeprefix("_foreach_").removesuffix("_")
    values: list[Any] = [tensors(0, dtype, shapes)]
    others = 2 if operator in {"addcmul", "addcdiv"} else 1 if operator == "lerp" or kind == "List" else 0
    values += [tensors(index + 1, dtype, shapes) for index in range(others)]
    if kind == "Scalar":
        values.append(0.375)
    if kind == "ScalarList":
        values.append([0.25 * (index + 1) for index in range(len(shapes))])
    return tuple(values)


def call(name: str, values: tuple[Any, ...], device: str, **options: Any) -> list[Any]:
    """Return an overload's results, or its changed first argument, on the CPU."""
    packet, _, kind = name.partition(".")
    moved = [
        [x.to(device, copy=True) if isinstance(x, torch.Tensor) else x for x in value]
        if isinstance(value, list)
        else value
        for value in values
    ]
    results = getattr(getattr(torch.ops.aten, packet), kind or "default")(*moved, **options)
    return [x.cpu() for x in (results if results is not None else moved[0])]


@pytest.mark.parametrize("name", sorted(foreach.kernels()))
def test_lists_follow_the_cpu(name: str) -> None:
    for dtype in (torch.float32, torch.float16):
        values = arguments(name, dtype)
        theirs = call(name, values, "cpu")
        for _ in range(2):  # the second time by a plan
            torch.testing.assert_close(call(name, values, "dml"), theirs)


def test_numbers_may_differ_from_call_to_call() -> None:
    for index in range(4):
        values = tensors(0), tensors(1), tensors(2), [index + 0.5 * i for i in range(4)]
        name = "_foreach_addcdiv_.ScalarList"
        torch.testing.assert_close(call(name, values, "dml"), call(name, values, "cpu"))


def test_long_lists_are_computed_in_parts() -> None:
    shapes = ((2,),) * (foreach.MAX_TENSORS + 3)
    values = arguments("_foreach_mul.ScalarList", torch.float32, shapes)
    torch.testing.assert_close(
        call("_foreach_mul.ScalarList", values, "dml"), call("_foreach_mul.ScalarList", values, "cpu")
    )


def test_lists_of_several_dtypes_and_shapes_are_pytorchs_loops() -> None:
    values = ([*tensors(0), torch.ones(2, dtype=torch.int64)], [*tensors(1), torch.ones(3, 1)])
    torch.testing.assert_close(call("_foreach_add.List", values, "dml"), call("_foreach_add.List", values, "cpu"))


def test_wrong_lists_are_rejected_in_pytorchs_words() -> None:
    for device in ("cpu", "dml"):
        with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors"):
            call("_foreach_add.List", (tensors(0), tensors(1)[:2]), device)


@pytest.mark.slow
def test_steps_of_an_optimizer_are_recorded_once() -> None:
    """Memory alternates between the same buffers, so that later steps bind nothing again."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("dml")
    x = torch.randn(16, 4, device="dml")
    optimizer = torch.optim.Adam(model.parameters())
    session = session_of(adapters.device_of(0))

    def steps(count: int) -> int:
        before = session.bindings
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return session.bindings - before

    steps(30)
    assert steps(10) <= 10 * 2
