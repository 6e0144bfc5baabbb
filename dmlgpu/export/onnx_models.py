"""ONNX models, translated for fixed sizes of inputs and compiled for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument, NotSupported, abridged, shown
from dmlgpu.compiler.program import Program
from dmlgpu.export.compiling import Choice, compile_for_web, needs_clearing
from dmlgpu.export.exportable import Exportable, Port, Result
from dmlgpu.frontends.onnx.elements import as_held
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, check_supported, read
from dmlgpu.frontends.onnx.registry import is_control
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import Output, RunInput, RunStage, Segment, Weights
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.adapter import NUMPY_ADAPTER

_SHAPE = kinds.tuple_of(kinds.between(1, 2**32 - 1), "positive integers")


def exportable_model(
    source: Source, shapes: Mapping[str, Sequence[int]] | None, choice: Choice, provenance: Mapping[str, Any]
) -> Exportable:
    """Return a model ready to be exported. The arguments and exceptions are those of ``write_onnx``."""
    model = read(source)
    check_supported(model)
    sizes = _sizes(model, shapes)
    weights = Weights(Device(NUMPY_ADAPTER))
    stage = _only_stage(model, sizes, weights)
    given = tuple(
        Port(one.name, TensorDesc(one.data_type, shape or (1,)), shape, one.is_bool)
        for one, shape in zip(model.inputs, sizes, strict=True)
    )
    program: Program | None = None
    feeds: tuple[int | bytes | None, ...] = ()
    bytes_of: tuple[int, ...] = ()
    fills: list[int] = []
    clears = False
    if stage.segment is not None:
        graph = stage.segment.graph.desc(stage.segment.all_outputs)
        network, program = compile_for_web(graph, choice)
        feeds, fills = _feeds(stage.segment, weights), stage.segment.fills
        bytes_of = tuple(desc.byte_size for desc in network.output_tensors)
        clears = needs_clearing(graph)
    results = tuple(_result(one, len(given), fills) for one in stage.outputs)
    made = choice.provenance(**provenance, onnx_operator_sets=dict(model.versions.numbers))
    return Exportable(model.name, program, given, feeds, bytes_of, results, clears, made)


def _sizes(model: OnnxModel, shapes: Mapping[str, Sequence[int]] | None) -> list[tuple[int, ...]]:
    """Return the shape of each input.

    Raises:
        InvalidArgument: one is missing, does not fit, or is of no input.
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise InvalidArgument(f"write_onnx: shapes must be a mapping from names to sizes, got {shown(shapes)}")
    names = [one.name for one in model.inputs]
    for name in shapes or {}:
        if name not in names:
            raise InvalidArgument(f"write_onnx: shapes must be of the inputs {', '.join(names)}, got {shown(name)}")
    return [_shape(one, (shapes or {}).get(one.name)) for one in model.inputs]


def _shape(one: Declared, given: Sequence[int] | None) -> tuple[int, ...]:
    declared = None if one.shape is None else [size if isinstance(size, int) else size or "?" for size in one.shape]
    if given is None:
        if one.shape is None or not all(isinstance(size, int) for size in one.shape):
            what = "no sizes" if declared is None else f"sizes {declared}"
            raise InvalidArgument(
                f"write_onnx: a folder is for fixed sizes, and input {one.name!r} has {what}; give a shape for it"
            )
        given = [size for size in one.shape if isinstance(size, int)]
    chosen = kinds.argument("write_onnx", f"shapes[{one.name!r}]", _SHAPE, given)
    fits = one.shape is None or (
        len(one.shape) == len(chosen)
        and all(not isinstance(own, int) or own == size for own, size in zip(one.shape, chosen, strict=True))
    )
    if not fits:
        raise InvalidArgument(f"write_onnx: input {one.name!r} must have sizes {declared}, got {list(chosen)}")
    return chosen


def _only_stage(model: OnnxModel, sizes: Sequence[tuple[int, ...]], weights: Weights) -> RunStage:
    """Return the translated model.

    Raises:
        NotSupported: something is decided, or computed by the host, while it runs; the message names the nodes.
    """
    runner = Runner(Device(NUMPY_ADAPTER), model.graph, weights)
    nothing = np.zeros(0)
    inputs = [
        RunInput(shape, declared.data_type, declared.is_bool, nothing)
        for declared, shape in zip(model.inputs, sizes, strict=True)
    ]
    stage = runner.first_stage([*inputs, *[None] * len(model.variable)])
    if stage.action is not None or stage.fills:
        placements = list(stage.placements())
        deciding = {placement.node for placement in placements if placement.where == "read"}
        deciding |= {fill.node for fill in stage.fills}
        if stage.action is not None and placements:
            deciding.add(placements[-1].node)
        nodes = [node for node in model.nodes if is_control(node) or _name(node) in deciding]
        raise NotSupported(
            f"model {model.name!r} cannot be exported: the host would have to decide or compute something while it"
            f" runs, at {', '.join(f'{node.op_type} {abridged(_name(node))!r}' for node in nodes)}"
        )
    late = [output.name for output in stage.outputs if output.recipe is not None]
    if late:
        raise NotSupported(f"model {model.name!r} cannot be exported: the host computes the outputs {', '.join(late)}")
    return stage


def _name(node: NodeProto) -> str:
    return node.name or (node.output[0] if node.output else "")


def _feeds(segment: Segment, weights: Weights) -> tuple[int | bytes | None, ...]:
    """Return what feeds each input of a segment: the number of the model's input, or the bytes of a weight."""
    return tuple(
        weights.data(number) if slot is None and number is not None else slot
        for slot, number in zip(segment.feeds, segment.weights, strict=True)
    )


def _result(one: Output, inputs: int, fills: Sequence[int]) -> Result:
    desc = TensorDesc(one.data_type, one.shape or (1,))
    port = Port(one.name, desc, one.shape, one.is_bool)
    if one.slot is None:
        assert one.array is not None
        held = as_held(one.array, one.data_type).reshape(desc.sizes)
        return Result(port, data=desc.encode(held).tobytes() if held.size else b"")
    return Result(port, given=one.slot) if one.slot < inputs else Result(port, output=list(fills).index(one.slot))
