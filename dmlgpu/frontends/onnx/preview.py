"""What will run where, found without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, read, unsupported
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.rewriting import bodies_in
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, Segment, Weights
from dmlgpu.runtime.device import Device


@dataclass(frozen=True)
class Preview:
    """What is known of a model for shapes of inputs.

    Attributes:
        name: the model's.
        shapes: of inputs, by name.
        outputs: names.
        versions: of operator sets by domain.
        operators: of the nodes, in order.
        in_bodies: of the nodes in bodies of If, Loop and Scan, but for constants.
        weight_bytes: bytes of weights, those in bodies included.
        unsupported: names of nodes that cannot be computed, by operator.
        placement: of the nodes up to where elements decide how it goes on; all where nothing does.
        segments: the graphs up to there.
        stopped: why it is not known how it goes on; empty where everything is known.
        fails: whether that is because the model cannot be computed for these shapes.
        guessed: inputs some of whose dimensions are taken as 1.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
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
    """Find out what of a model would run where.

    Args:
        source: as for ``load``.
        device: where it would run; nothing does.
        shapes: of inputs; dimensions that the model gives no number are else 1.

    Raises:
        ModelError, NotSupported: as ``load``, but for operators that are not supported: these are listed.
        InvalidArgument: a shape of no input, or one that does not fit the model.
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
            stopped, fails = f"not for these shapes: {error}", True
    bodies = bodies_in(attribute for node in model.nodes for attribute in node.attribute)
    inner = [node for graph in bodies for node in graph.node]
    return Preview(
        model.name,
        chosen,
        model.outputs,
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
    """Translate the model up to where it must run to go on; return why it stops there, or nothing."""
    nothing = np.zeros(0)
    inputs = [
        RunInput(shapes[declared.name], declared.data_type, declared.is_bool, nothing) for declared in model.inputs
    ]
    replaced = [None] * len(model.variable)
    stage = Runner(device, model.graph, Weights(device)).first_stage([*inputs, *replaced])
    if stage.segment is not None:
        segments.append(stage.segment)
    placement += stage.placements()
    if stage.action is None:
        return ""
    last = placement[-1] if placement else None
    return "how it goes on is decided while it runs" + (f", from {last.op_type} {last.node!r} on" if last else "")
