"""Precise devices: their programs use neither Winograd's filtering nor 16-bit arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import Device, Graph, TensorDesc, descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.registry import observed_choices
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.ops import directml as functions

FAST = Target("adapter", features=frozenset({"shader-f16"}))
STRICT = (FAST.with_policies(precise=True), FAST.with_policies(deterministic=True))


def dense(direction: ConvolutionDirection = ConvolutionDirection.FORWARD) -> descs.Convolution:
    """Return a convolution that suits Winograd's filtering."""
    tensor = TensorDesc(DataType.FLOAT32, (1, 64, 16, 16))
    return descs.Convolution(
        input_tensor=tensor,
        output_tensor=tensor,
        filter_tensor=TensorDesc(DataType.FLOAT32, (64, 64, 3, 3)),
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=direction,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        output_padding=(0, 0),
        group_count=1,
    )


def graph(channels: int) -> Network:
    """Return three convolutions in a row with activations, which passes fuse, with channels innermost."""
    built = Graph()
    x = built.input((1, channels, 16, 16))
    for _ in range(3):
        weights = built.input((channels, channels, 3, 3))
        x = functions.activation_relu(functions.convolution(x, weights, start_padding=(1, 1), end_padding=(1, 1)))
    return resolve(built.desc([x]))


def has_winograd(program: Program) -> bool:
    kernels = (*program.kernels, *program.initialization)
    return any("winograd" in kernel.label for kernel in kernels)


def has_halves(program: Program) -> bool:
    return any("enable f16;" in kernel.wgsl for kernel in program.kernels)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("direction", ConvolutionDirection)
def test_no_operator_goes_through_winograd_s_filtering(profile: Profile, direction: ConvolutionDirection) -> None:
    desc = dense(direction)
    assert has_winograd(compiler.compile_operator(desc, replace(FAST, profile=profile)))
    for target in STRICT:
        assert not has_winograd(compiler.compile_operator(desc, replace(target, profile=profile)))


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("channels", [32, 64])
def test_no_graph_goes_through_winograd_s_filtering(profile: Profile, channels: int) -> None:
    network = graph(channels)
    assert has_winograd(compile_network(network, replace(FAST, profile=profile)).program)
    for target in STRICT:
        assert not has_winograd(compile_network(network, replace(target, profile=profile)).program)


def test_winograd_s_filtering_is_rejected_by_name() -> None:
    for target in STRICT:
        for name in ("winograd-2", "winograd-4"):
            with pytest.raises(InvalidArgument, match="does not fit, it loses digits"):
                compiler.compile_operator(dense(), target.with_overrides(schedule=name))


def test_the_reason_is_given() -> None:
    with observed_choices() as choices:
        compiler.stages(dense(), STRICT[0])
    tried = {tried.name: str(tried) for choice in choices if choice.kind == "convolution" for tried in choice.tried}
    assert tried["winograd-4"] == "does not fit: it loses digits, which the device forbids"


def test_half_precision_has_no_effect() -> None:
    tensor = TensorDesc(DataType.FLOAT16, (8,))
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    assert has_halves(compiler.compile_operator(desc, FAST.for_operators(half_precision=True)))
    assert not has_halves(compiler.compile_operator(desc, FAST.for_operators(half_precision=False)))
    for target in STRICT:
        assert not has_halves(compiler.compile_operator(desc, target.for_operators(half_precision=True)))


@pytest.mark.parametrize("options", [{"precise": True}, {"deterministic": True}])
def test_devices_pass_it_to_their_targets(options: dict[str, bool]) -> None:
    assert Device("numpy", **options).backend.target.keeps_digits
    assert not Device("numpy").backend.target.keeps_digits


def test_precise_is_a_boolean() -> None:
    with pytest.raises(InvalidArgument, match="Device: precise must be a bool"):
        Device("numpy", precise=1)  # type: ignore[arg-type]
