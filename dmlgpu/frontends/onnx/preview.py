"""Preview of placements, without running the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, read, unsupported
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.rewriting import bodies_in
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, Segment
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.device import Device


@dataclass(frozen=True)
class Preview:
    """Facts about a model for given input shapes.

    Attributes:
        name: Name of the model.
        shapes: Shapes of inputs, by name.
        outputs: Declarations of outputs.
        versions: Operator set versions, by domain.
        operators: Operators of the nodes, in order.
        in_bodies: Operators of nodes in bodies of If, Loop and Scan, without constants.
        weight_bytes: Bytes of weights, including those in bodies.
        unsupported: Names of unsupported nodes, by operator.
        placement: Placement of the nodes up to the first decision that depends on elements.
        segments: Graphs up to there.
        stopped: Why later placements are unknown; empty if all are known.
        fails: Whether the model cannot be computed for these shapes.
        guessed: Inputs with free dimensions that were set to 1.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    outputs: tuple[Declared, ...]
    versions: Mapping[str, int]
    operators: tuple[str, ...]
    in_bodies: tuple[str, ...]
    weight_bytes: int
    unsupported: Mapping[str, Sequence[str]]
    placement: tuple[Placement, ...] = ()
    segments: tuple[Segment, ...] = ()
    stopped: str = ""
    fails: bool = False
    guessed: tuple[str, ...] = ()


def preview(source: Source, device: Device, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Preview:
    """Determine where each node of a model would run.

    Args:
        source: As for ``load``.
        device: Device to run on; nothing is executed.
        shapes: Shapes of inputs; free dimensions default to 1.

    Raises:
        ModelError, NotSupported: As ``load``, but unsupported operators are listed in the result.
        InvalidArgument: If a shape is of no input, or does not fit the model.
    """
    model = read(source)
    chosen = {declared.name: _shape(declared, (shapes or {}).get(declared.name)) for declared in model.inputs}
    unknown = [name for name in shapes or {} if name not in chosen]
    if unknown:
        raise InvalidArgument(f"model {model.name!r}: inputs are named {', '.join(chosen)}, got {unknown[0]!r}")
    missing = unsupported(model.nodes, model.versions)
    segments: list[Segment] = []
    placement: list[Placement] = []
    stopped, fails = "", False
    if not missing:
        try:
            stopped = _walk(model, device, chosen, segments, placement)
        except DmlError as error:
            stopped, fails = f"not supported for these shapes: {error}", True
    bodies = bodies_in(attribute for node in model.nodes for attribute in node.attribute)
    inner = [node for graph in bodies for node in graph.node]
    return Preview(
        model.name,
        chosen,
        model.declared_outputs,
        model.versions.numbers,
        tuple(node.op_type for node in model.nodes),
        tuple(node.op_type for node in inner if node.op_type != "Constant"),
        sum(weight.array.nbytes for weight in model.weights.values() if weight.array is not None),
        missing,
        (*(Placement(folded.node, folded.op_type, "none", why=folded.why) for folded in model.folded), *placement),
        tuple(segments),
        stopped,
        fails,
        tuple(declared.name for declared in model.inputs if declared.name not in (shapes or {}) and _is_open(declared)),
    )


def _is_open(declared: Declared) -> bool:
    return declared.shape is None or not all(isinstance(size, int) for size in declared.shape)


def _shape(info: Declared, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    declared = info.shape or ()
    if shape is None:
        return tuple(size if isinstance(size, int) else 1 for size in declared)
    fits = info.shape is None or len(shape) == len(declared)
    if not fits or any(isinstance(size, int) and size != own for size, own in zip(declared, shape, strict=False)):
        raise InvalidArgument(f"input {info.name!r} must have sizes {list(declared)}, got {list(shape)}")
    return shape


def _walk(
    model: OnnxModel,
    device: Device,
    shapes: Mapping[str, tuple[int, ...]],
    segments: list[Segment],
    placement: list[Placement],
) -> str:
    """Translate the model until it must run to continue; return why it stops, or nothing."""
    nothing = np.zeros(0)
    inputs = [RunInput(shapes[declared.name], declared.data_type, declared.coded, nothing) for declared in model.inputs]
    replaced = [None] * len(model.variable)
    stage = Runner(device, model.graph, Weights(device)).first_stage([*inputs, *replaced])
    if stage.segment is not None:
        segments.append(stage.segment)
    placement += stage.placements()
    if stage.action is None:
        return ""
    last = placement[-1] if placement else None
    return "the remaining nodes depend on values computed at run time" + (
        f", from {last.op_type} {last.node!r} on" if last else ""
    )
