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
        fails: whether that is since the model cannot be computed for these shapes.
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
    chosen = {one.name: _shape(one, (shapes or {}).get(one.name)) for one in model.inputs}
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
    inner = [one for graph in bodies for one in graph.node]
    return Preview(
        model.name,
        chosen,
        model.outputs,
        model.versions.numbers,
        tuple(one.op_type for one in model.nodes),
        tuple(one.op_type for one in inner if one.op_type != "Constant"),
        sum(one.array.nbytes for one in model.weights.values() if one.array is not None),
        missing,
        (*(Placement(one.node, one.op_type, "none", why=one.why) for one in model.folded), *placement),
        tuple(segments),
        stopped,
        fails,
        tuple(one.name for one in model.inputs if one.name not in (shapes or {}) and _is_open(one)),
    )


def _is_open(one: Declared) -> bool:
    return one.shape is None or not all(isinstance(size, int) for size in one.shape)


def _shape(one: Declared, given: tuple[int, ...] | None) -> tuple[int, ...]:
    declared = one.shape or ()
    if given is None:
        return tuple(size if isinstance(size, int) else 1 for size in declared)
    fits = one.shape is None or len(given) == len(declared)
    if not fits or any(isinstance(size, int) and size != own for size, own in zip(declared, given, strict=False)):
        raise InvalidArgument(f"input {one.name!r} must have sizes {list(declared)}, got {list(given)}")
    return given


def _walk(
    model: OnnxModel,
    device: Device,
    shapes: Mapping[str, tuple[int, ...]],
    segments: list[Segment],
    placement: list[Placement],
) -> str:
    """Translate the model up to where it must run to go on; return why it stops there, or nothing."""
    nothing = np.zeros(0)
    inputs = [RunInput(shapes[one.name], one.data_type, one.is_bool, nothing) for one in model.inputs]
    replaced = [None] * len(model.variable)
    stage = Runner(device, model.graph, Weights(device)).first_stage([*inputs, *replaced])
    if stage.segment is not None:
        segments.append(stage.segment)
    placement += stage.placements()
    if stage.action is None:
        return ""
    last = placement[-1] if placement else None
    return "how it goes on is decided while it runs" + (f", from {last.op_type} {last.node!r} on" if last else "")
