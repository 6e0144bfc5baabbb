"""ONNX models for one or several sizes, and DxDispatch models with initial values, compiled for web pages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto

from dmlgpu.catalog.enums import BFLOAT16, ExecutionFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, NotSupported, abridged, shown
from dmlgpu.compiler.program import Program
from dmlgpu.export.compiling import (
    Exportable,
    ExportChoices,
    ExportPort,
    ExportResult,
    as_graph,
    combined,
    compile_for_web,
    exportable,
    needs_clearing,
)
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import (
    BindPoint,
    BoundTensor,
    DxModel,
    GraphDispatchable,
    OperatorDispatchable,
)
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, check_supported, read
from dmlgpu.frontends.onnx.registry import is_control
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import Output, RunInput, RunStage, Segment
from dmlgpu.frontends.onnx.tensor_proto import as_held
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

Sizes: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Sequence[int | Sequence[int]]]
"""Shapes by input; a dimension has one size or several."""

_SHAPE = coercion.tuple_of(coercion.between(1, 2**32 - 1), "positive integers")


def exportable_models(
    source: Source, shapes: Shapes | None, choice: ExportChoices, provenance: Mapping[str, Any]
) -> list[Exportable]:
    """Return a model ready for export, for each combination of sizes. Arguments and exceptions are those of
    ``write_onnx``."""
    model = read(source)
    check_supported(model)
    combinations = _combinations(model, shapes)
    choice = replace(choice, shares_kernels=len(combinations) > 1)
    weights = Weights(Device(NUMPY_ADAPTER))
    choices = choice.provenance(**provenance, onnx_operator_sets=dict(model.versions.numbers))
    return [_exportable(model, sizes, weights, choice, choices) for sizes in combinations]


def _exportable(
    model: OnnxModel, sizes: Sequence[Sizes], weights: Weights, choice: ExportChoices, provenance: Mapping[str, Any]
) -> Exportable:
    """Return a model ready for export with inputs of some sizes."""
    stage = _only_stage(model, sizes, weights)
    ports = tuple(
        ExportPort(declared.name, TensorDesc(declared.data_type, shape or (1,)), shape, declared.is_bool)
        for declared, shape in zip(model.inputs, sizes, strict=True)
    )
    program: Program | None = None
    feeds: tuple[int | bytes | None, ...] = ()
    bytes_of: tuple[int, ...] = ()
    fills: list[int] = []
    clears = False
    if stage.segment is not None:
        graph = stage.segment.desc
        network, program = compile_for_web(graph, choice)
        feeds, fills = _feeds(stage.segment, weights), stage.segment.fills
        bytes_of = tuple(desc.byte_size for desc in network.output_tensors)
        clears = needs_clearing(graph)
    results = tuple(_result(output, len(ports), fills) for output in stage.outputs)
    return Exportable(model.name, program, ports, feeds, bytes_of, results, clears, provenance)


def _combinations(model: OnnxModel, shapes: Shapes | None) -> list[list[Sizes]]:
    """Return all combinations of the sizes of the inputs. Dimensions with the same symbol have the same size.

    Raises:
        InvalidArgument: If a shape is missing, does not fit, or is of no input; if there are too many combinations.
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise InvalidArgument(f"write_onnx: shapes must be a mapping from names to sizes, got {shown(shapes)}")
    names = [declared.name for declared in model.inputs]
    for name in shapes or {}:
        if name not in names:
            raise InvalidArgument(f"write_onnx: shapes must be of the inputs {', '.join(names)}, got {shown(name)}")
    dimensions = [_dimensions(declared, (shapes or {}).get(declared.name)) for declared in model.inputs]
    varying: dict[Any, Sizes] = {}
    for key, sizes in itertools.chain.from_iterable(dimensions):
        if len(sizes) > 1 and varying.setdefault(key, sizes) != sizes:
            raise InvalidArgument(
                f"write_onnx: dimensions {key!r} must have the same sizes, got {list(varying[key])} and {list(sizes)}"
            )
    return [
        [tuple(chosen[key] if len(sizes) > 1 else sizes[0] for key, sizes in each) for each in dimensions]
        for chosen in combined("write_onnx", varying)
    ]


def _dimensions(declared: Declared, shape: Sequence[int | Sequence[int]] | None) -> list[tuple[Any, Sizes]]:
    """Return the key and the possible sizes of each dimension of an input; equal keys have equal sizes."""
    parameter = f"shapes[{declared.name!r}]"
    if isinstance(shape, Sequence) and not isinstance(shape, str) and any(isinstance(size, Sequence) for size in shape):
        sizes = [
            coercion.argument("write_onnx", parameter, _SHAPE, size if isinstance(size, Sequence) else (size,))
            for size in shape
        ]
    else:
        sizes = [(size,) for size in _shape(declared, shape)]
    if not all(sizes):
        raise InvalidArgument(f"write_onnx: {parameter} must have at least one size per dimension, got {shown(shape)}")
    first = [each[0] for each in sizes]
    for axis, each in enumerate(sizes):
        for size in each:
            _shape(declared, [*first[:axis], size, *first[axis + 1 :]])
    dimensions = declared.shape or (None,) * len(sizes)
    return [
        (dimension if isinstance(dimension, str) else f"{declared.name}[{axis}]", tuple(dict.fromkeys(each)))
        for axis, (dimension, each) in enumerate(zip(dimensions, sizes, strict=True))
    ]


def _shape(declared: Declared, shape: Sequence[Any] | None) -> Sizes:
    sizes = (
        None if declared.shape is None else [size if isinstance(size, int) else size or "?" for size in declared.shape]
    )
    if shape is None:
        if declared.shape is None or not all(isinstance(size, int) for size in declared.shape):
            what = "no sizes" if sizes is None else f"sizes {sizes}"
            raise InvalidArgument(
                f"write_onnx: a folder is for given sizes, and input {declared.name!r} has {what}; give a shape for it"
            )
        shape = [size for size in declared.shape if isinstance(size, int)]
    chosen = coercion.argument("write_onnx", f"shapes[{declared.name!r}]", _SHAPE, shape)
    fits = declared.shape is None or (
        len(declared.shape) == len(chosen)
        and all(not isinstance(own, int) or own == size for own, size in zip(declared.shape, chosen, strict=True))
    )
    if not fits:
        raise InvalidArgument(f"write_onnx: input {declared.name!r} must have sizes {sizes}, got {list(chosen)}")
    return chosen


def _only_stage(model: OnnxModel, sizes: Sequence[tuple[int, ...]], weights: Weights) -> RunStage:
    """Return the translated model.

    Raises:
        NotSupported: If it needs the host while it runs; the message names the nodes.
    """
    for declared in (*model.inputs, *model.declared_outputs):
        is_bfloat16 = declared.data_type is BFLOAT16  # which JavaScript has no arrays of
        if declared.kind != "tensor" or declared.coded not in (0, TensorProto.BOOL) or is_bfloat16:
            raise NotSupported(
                f"model {model.name!r} cannot be exported: inputs and outputs must be tensors of DirectML's types, got "
                f"'{declared}'"
            )
    runner = Runner(Device(NUMPY_ADAPTER), model.graph, weights)
    nothing = np.zeros(0)
    inputs = [
        RunInput(shape, declared.data_type, declared.coded, nothing)
        for declared, shape in zip(model.inputs, sizes, strict=True)
    ]
    stage = runner.first_stage([*inputs, *[None] * len(model.variable)])
    if stage.action is not None or stage.fills:
        placements = list(stage.placements())
        deciding = {placement.node for placement in placements if placement.where == "read"}
        deciding |= {fill.node for fill in stage.fills if fill.node is not None}
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
    """Return the source of each input of a segment: index of an input of the model, or bytes of a weight."""
    return tuple(
        weights.data(weight).tobytes() if slot is None and weight is not None else slot
        for slot, weight in zip(segment.feeds, segment.weights, strict=True)
    )


def _result(output: Output, inputs: int, fills: Sequence[int]) -> ExportResult:
    desc = TensorDesc(output.data_type, output.shape or (1,))
    port = ExportPort(output.name, desc, output.shape, output.coded == TensorProto.BOOL)
    if output.slot is None:
        assert output.array is not None
        array = as_held(output.array, output.data_type).reshape(desc.sizes)
        return ExportResult(port, data=desc.encode(array).tobytes() if array.size else b"")
    return (
        ExportResult(port, input=output.slot)
        if output.slot < inputs
        else ExportResult(port, output=list(fills).index(output.slot))
    )


def exportable_dispatchable(path: Path, name: str | None, schedules: str, provenance: Mapping[str, Any]) -> Exportable:
    """Return a dispatchable ready for export. Arguments and exceptions are those of ``write_dxdispatch``."""
    model = dxdispatch.load(path)
    chosen = _chosen(model, path.name, name)
    choice = ExportChoices(schedules, bool(chosen.flags & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION))
    graph = as_graph(chosen.desc) if isinstance(chosen, OperatorDispatchable) else chosen.graph
    all_there = isinstance(chosen, GraphDispatchable)
    named = zip(_names(chosen.inputs), chosen.initial_inputs, strict=True)
    bound = {name: tensor for (name, _), tensor in named if tensor is not None}
    weights = {name: _content(model, tensor) for name, tensor in bound.items()}
    inputs, outputs = (
        [name for name, is_there in _names(points) if is_there or all_there]
        for points in (chosen.inputs, chosen.outputs)
    )
    choices = choice.provenance(**provenance, dispatchable=chosen.name)
    return exportable(graph, choice, weights=weights, inputs=inputs, outputs=outputs, provenance=choices)


def _chosen(model: DxModel, file: str, name: str | None) -> OperatorDispatchable | GraphDispatchable:
    known = {dispatchable.name: dispatchable for dispatchable in model.dispatchables.values()}
    if name is None and len(known) != 1:
        raise InvalidArgument(f"{file} has {len(known)} dispatchables ({', '.join(known)}); name one of them")
    if name is not None and name not in known:
        raise InvalidArgument(f"{file} has the dispatchables {', '.join(known)}, got {shown(name)}")
    dispatchable = known[name] if name is not None else next(iter(known.values()))
    if not isinstance(dispatchable, OperatorDispatchable | GraphDispatchable):
        raise NotSupported(f"{file}: {dispatchable.name} is no operator and no graph of DirectML")
    return dispatchable


def _names(points: Sequence[BindPoint]) -> list[tuple[str, bool]]:
    """Return the name of each tensor, DirectML's name of the field with an index if the field has several, and whether
    it is present."""
    return [
        (point.name if len(point.tensors) == 1 else f"{point.name}{index}", tensor is not None)
        for point in points
        for index, tensor in enumerate(point.tensors)
    ]


def _content(model: DxModel, bound: BoundTensor) -> bytes:
    """Return the bytes bound to a tensor at initialization."""
    resource = model.resources[bound.buffer]
    content = np.zeros(max(resource.size, bound.end), np.uint8)
    values = resource.values.to_bytes()
    content[resource.offset : resource.offset + values.size] = values
    return content[bound.offset : bound.offset + bound.tensor.byte_size].tobytes()
