"""Parts of a network with a state instead of keys and values: the state space of Mamba-2, and short convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.generation.gguf.architectures import StateSpace
from dmlgpu.frontends.generation.language_model import NEW_LENGTH, PAST_LENGTH
from dmlgpu.frontends.onnx.operators import DMLGPU

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.gguf.network import NetworkWriter


def state_space(writer: NetworkWriter, layer: int, x: str) -> str:
    """Return the result of Mamba-2: a convolution, a scan whose result is gated and normalized, and a product."""
    space, hidden = _sizes(writer, layer), writer.config.hidden
    prefix, name = f"blk.{layer}", f"layers.{layer}.state_space"
    width = space.inner + space.channels + space.heads
    projected = writer.product(x, f"{prefix}.ssm_in", width, hidden, f"{name}.projected")
    gate, values, steps = _split(writer, projected, name, gate=space.inner, values=space.channels, steps=space.heads)
    values = _convolved(writer, layer, values, "ssm_conv1d", activation="silu")
    shared = space.groups * space.entries
    values, keys, queries = _split(writer, values, name, channels=space.inner, keys=shared, queries=shared)
    per_head = (
        writer.vector(f"{prefix}.ssm_a", space.heads, 1, flat=True),
        writer.vector(f"{prefix}.ssm_d", space.heads, 1, flat=True),
        writer.vector(f"{prefix}.ssm_dt.bias", space.heads),
    )
    past, present = _state(
        writer, layer, "scan", (space.heads, space.inner // space.heads, space.entries), is_wide=True
    )
    inputs = [values, keys, queries, steps, *per_head, past, PAST_LENGTH, NEW_LENGTH]
    result = writer.node_of("SelectiveScan", inputs, [f"{name}.scanned", present], DMLGPU)
    active = writer.node("Mul", [gate, writer.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.active")
    result = writer.node("Mul", [result, active], f"{name}.gated")
    result = _normalized(writer, space, result, f"{prefix}.ssm_norm.weight", name)
    result = writer.product(result, f"{prefix}.ssm_out", hidden, space.inner, f"{name}.output")
    return writer.scaled(result, writer.config.residual_scale, f"{name}.scaled")


def short_convolution(writer: NetworkWriter, layer: int, x: str) -> str:
    """Return the result of a convolution of gated inputs, which is gated as well."""
    hidden = writer.config.hidden
    prefix, name = f"blk.{layer}.shortconv", f"layers.{layer}.convolution"
    projected = writer.product(x, f"{prefix}.in_proj", 3 * hidden, hidden, f"{name}.projected")
    before, after, values = _split(writer, projected, name, before=hidden, after=hidden, values=hidden)
    values = writer.node("Mul", [before, values], f"{name}.gated")
    values = _convolved(writer, layer, values, "shortconv.conv")
    values = writer.node("Mul", [after, values], f"{name}.result")
    return writer.product(values, f"{prefix}.out_proj", hidden, hidden, f"{name}.output")


def _sizes(writer: NetworkWriter, layer: int) -> StateSpace:
    space = writer.config.state_space
    if space is None:
        raise ModelError(writer.file.name, f"layer {layer} has a state, but the metadata have no sizes of states")
    return space


def _split(writer: NetworkWriter, x: str, name: str, **sizes: int) -> list[str]:
    """Return parts of the last dimension, by their names and sizes."""
    parts = [f"{name}.{part}" for part in sizes]
    writer.node_of("Split", [x, writer.integers(*sizes.values())], parts, axis=-1)
    return parts


def _convolved(writer: NetworkWriter, layer: int, x: str, tensor_name: str, *, activation: str = "none") -> str:
    """Return a causal convolution of each channel."""
    space = _sizes(writer, layer)
    prefix = f"blk.{layer}.{tensor_name}"
    weight = writer.vector(f"{prefix}.weight", space.channels, space.taps)
    bias = writer.vector(f"{prefix}.bias", space.channels) if writer.has(f"{prefix}.bias") else ""
    past, present = _state(writer, layer, "rows", (space.taps - 1, space.channels))
    inputs = [x, weight, bias, past, PAST_LENGTH, NEW_LENGTH]
    outputs = [f"layers.{layer}.convolved", present]
    return writer.node_of("CausalConvolution", inputs, outputs, DMLGPU, activation=activation)


def _state(
    writer: NetworkWriter, layer: int, part: str, sizes: tuple[int, ...], *, is_wide: bool = False
) -> tuple[str, str]:
    """Add a state {batch, sizes..}; return the names of its input and output."""
    name = f"{layer}.{part}"
    writer.states[name] = TensorProto.FLOAT if is_wide else writer.element, ["batch", *sizes]
    return f"past_state.{name}", f"present_state.{name}"


def _normalized(writer: NetworkWriter, space: StateSpace, x: str, tensor_name: str, name: str) -> str:
    """Normalize each group of heads, if the file has a weight for this."""
    if not writer.has(tensor_name):
        return x
    size = space.inner // space.groups
    weight = writer.vector(tensor_name, space.groups, size)
    by_group = writer.node("Reshape", [x, writer.integers(0, 0, space.groups, size)], f"{name}.groups")
    normalized = writer.normalized_by(by_group, writer.ones(size), f"{name}.normalized")
    scaled = writer.node("Mul", [normalized, weight], f"{name}.weighted")
    return writer.node("Reshape", [scaled, writer.integers(0, 0, space.inner)], f"{name}.rows")
