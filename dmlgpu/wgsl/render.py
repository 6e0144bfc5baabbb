"""From a plan's steps to kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.errors import NotSupported
from dmlgpu.kernels.collapse import collapse
from dmlgpu.kernels.grid import Launch, group_launch, item_launch, loop_launch, map_launch, row_launch
from dmlgpu.kernels.packing import pack
from dmlgpu.kernels.rows import apply_to_row
from dmlgpu.kernels.sources import computed, fold_views, folded_views, leaves, settle_views
from dmlgpu.kernels.transpose import Transpose, find_transpose
from dmlgpu.kernels.walk import Walk, choose_walk
from dmlgpu.plan import (
    Binding,
    Kernel,
    Map,
    Plan,
    Program,
    Reduce,
    ReduceSchedule,
    Role,
    Rows,
    Scatter,
    ScatterSchedule,
    Slot,
    Stage,
    Step,
    Tensor,
    View,
    mapping,
)
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.expressions import Value
from dmlgpu.wgsl.linker import prefix
from dmlgpu.wgsl.types import LANE_NAMES, Scalar, raw_lane, raw_unit, scalar_of

ALIGNMENT = 256
"""Alignment in bytes of the ranges of the temporary and the persistent resource."""


def render(plan: Plan, target: Target) -> Program:
    """A plan's kernels as text, with their bindings and grids.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that the plan needs.
    """
    arena, size = _arrange(plan.temporaries)
    immediates = target.has("immediates")
    try:
        kernels = tuple(_kernel(plan.operator, step, target, immediates, arena) for step in plan.steps)
    except NotSupported as error:
        raise NotSupported(f"{plan.operator}: {error}") from None
    return Program(plan.operator, kernels, temporary_size=size, immediates=immediates)


def _arrange(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Offsets of byte ranges laid one after the other at 256-byte boundaries, and the size of the whole."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return tuple(offsets), end


def _kernel(operator: str, step: Step, target: Target, immediates: bool, arena: tuple[int, ...]) -> Kernel:
    builder = Builder(target)
    if isinstance(step, Map):
        text, launch, lanes, tensors = _map(builder, step, target)
    elif isinstance(step, Reduce):
        text, launch, lanes, tensors = _reduce(builder, step, target)
    elif isinstance(step, Rows):
        text, launch, lanes, tensors = _rows(builder, step, target)
    else:
        text, launch, lanes, tensors = _scatter(builder, step, target)
    label = f"{operator.lower()} {step.label}" + (f" x{lanes}" if lanes > 1 else "")
    slots = tuple(_slot(buffer.binding, tensors, target, arena) for buffer in builder.buffers)
    if len(slots) > target.max_storage_buffers:
        raise NotSupported(
            f"{len(slots)} buffers in one kernel exceed what {target.name!r} binds ({target.max_storage_buffers})"
        )
    return Kernel(label, builder.finish(text, immediates), slots, launch.grid)


def _reach(tensor: Tensor) -> int:
    """Bytes from the start of a tensor's resource to the end of its last unit, rounded up to words."""
    unit_bits = tensor.unit_bits
    last = tensor.offset + sum(
        (size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True) if stride > 0
    )
    return -(-(last + 1) * unit_bits // 32) * 4


def _slot(binding: Binding, tensors: list[Tensor], target: Target, arena: tuple[int, ...]) -> Slot:
    size = max(_reach(tensor) for tensor in tensors if tensor.binding == binding)
    if size > target.max_binding_size:
        raise NotSupported(
            f"{binding.role} {binding.index} takes {size:,} bytes,"
            f" but {target.name!r} binds at most {target.max_binding_size:,} at once"
        )
    if binding.role is Role.TEMPORARY:
        return Slot(Role.TEMPORARY, 0, arena[binding.index], size)
    return Slot(binding.role, binding.index, 0, size)


Rendered = tuple[str, Launch, int, list[Tensor]]
"""Text, launch, lanes of a unit, every tensor in memory that the kernel touches."""


def _map(builder: Builder, step: Map, target: Target) -> Rendered:
    body, output = collapse(settle_views(fold_views(step.body)), step.output)
    transpose = find_transpose(body, output)
    if transpose is not None:
        return _transpose(builder, transpose, target)
    body, output = pack(body, output)
    output = replace(output, view=View.RAW if body.moves else View.COMPUTE)
    walk = choose_walk(output)
    store, values = builder.store(output, body.words, atomic=walk.exchange)
    launch = map_launch(_items(walk, output), target)
    text = store + builder.body(body) + templates.render("schedules/map", walk=walk, launch=launch, **values)
    return text, launch, output.lanes, [output, *leaves(body)]


def _transpose(builder: Builder, transpose: Transpose, target: Target) -> Rendered:
    output, bits, lanes = transpose.output, transpose.output.data_type.bits, transpose.lanes
    store, values = builder.store(output)
    columns = [
        raw_unit([raw_lane(f"row{row}", column, bits, output.unit_bits) for row in range(lanes)], bits)
        for column in range(lanes)
    ]
    launch = item_launch(transpose.count, target)
    text = store + builder.load("input", transpose.source)
    text += templates.render("schedules/transpose", transpose=transpose, columns=columns, launch=launch, **values)
    return text, launch, lanes, [output, transpose.source]


def _items(walk: Walk, output: Tensor) -> int:
    """Work items of a walk: words, or units."""
    return -(-walk.count * output.unit_bits // 32) if walk.by_words else walk.count


def _reduce(builder: Builder, step: Reduce, target: Target) -> Rendered:
    step = replace(step, source=computed(folded_views(step.source)))
    output, walk = step.output, choose_walk(step.output)
    store, values = builder.store(output, step.words, atomic=walk.exchange)
    text = store + _items_of_row(builder, step, target) + _monoid(step, target)
    count = step.source.sizes[-1] if step.of_partials else math.prod(step.source.sizes[axis] for axis in step.axes)
    items = _items(walk, output)
    if step.schedule is ReduceSchedule.TREE:
        launch = group_launch(items, target)
        text += templates.render("schedules/reduce_tree", count=count, walk=walk, launch=launch, **values)
    else:
        launch = loop_launch(items, target)
        text += templates.render(
            f"schedules/reduce_{step.schedule}", count=count, output=output, parts=output.sizes[-1]
        )
        text += templates.render("schedules/map", walk=walk, launch=launch, **values)
    return text, launch, 1, [output, *leaves(step.source)]


def _items_of_row(builder: Builder, step: Reduce, target: Target) -> str:
    """The accessor of what is reduced, and ``item``, which enumerates a row of it."""
    if step.of_partials:
        scalar = scalar_of(step.element, target, step.words).wgsl
        text = builder.source("partials", step.source, raw=False, words=step.words) + f"alias input_s = {scalar};\n"
        return text + templates.render("schedules/reduce_item_of_partials", partials=step.source)
    text = builder.source("input", step.source, raw=False, words=step.words)
    return text + templates.render("schedules/reduce_item", input=step.source, axes=step.axes)


_OPERANDS = {"input": "value", "a": "a", "b": "b"}
"""What the functions of a monoid call the values that templates know as ``input``, ``a`` and ``b``."""


def _monoid(step: Reduce, target: Target) -> str:
    """The body with ``lift``, ``merge`` and ``finish``."""
    kind = scalar_of(step.element, target, step.words)
    output_kind = scalar_of(step.output.data_type, target, step.words)
    values: dict[str, Any] = dict(mapping(step.constants))
    values["output"] = Result(step.output.data_type, output_kind, step.words, step.output.sizes, target)
    for name, text in _OPERANDS.items():
        values[name] = Value(text, kind, step.element, target)
    return templates.render(step.file, **values)


MOST_HELD = 32
"""Numbers of a row that one invocation keeps in registers."""


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and what follows the name of a result for it."""

    number: int
    part: str
    result: str


def _rows(builder: Builder, step: Rows, target: Target) -> Rendered:
    source, output = step.source, step.output
    units = math.prod(output.sizes[axis] for axis in step.axes)
    sizes = tuple(1 if axis in step.axes else size for axis, size in enumerate(output.sizes))
    walk = choose_walk(replace(output, sizes=sizes))
    store, values = builder.store(output, words=True)
    text = store + builder.load("input", source, words=True)
    text += "".join(_stage_monoid(stage, target) for stage in step.stages)
    values |= {
        "walk": walk,
        "output": output,
        "axes": step.axes,
        "units": units,
        "across": step.across,
        "lanes": _lanes(output.lanes, step.across),
        "stages": _stages(builder, step),
        "names": [stage.name for stage in step.stages],
        "apply": _row_function(builder, step, step.file, output.data_type, step.stages),
    }
    if step.schedule is ReduceSchedule.SERIAL:
        launch = loop_launch(walk.count, target)
        text += templates.render("schedules/rows_serial", launch=launch, **values)
    else:
        launch = row_launch(walk.count, units, target)
        held = -(-units // launch.workgroup)
        held = held if held * output.lanes <= MOST_HELD else 0
        text += templates.render("schedules/rows_tree", launch=launch, held=held, **values)
    return text, launch, output.lanes, [output, source]


def _lanes(count: int, across: bool) -> list[_Lane]:
    """The lanes of a unit; neighbouring rows have results of their own."""
    if count == 1:
        return [_Lane(0, "", "")]
    return [_Lane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _stage_monoid(stage: Stage, target: Target) -> str:
    """A stage's ``lift``, ``merge`` and ``finish`` under its name."""
    named = {name: Value(text, Scalar.F32, DataType.FLOAT32, target) for name, text in _OPERANDS.items()}
    result = Result(DataType.FLOAT32, Scalar.F32, True, (), target)
    return prefix(templates.render(stage.file, output=result, **named), f"{stage.name}_")


def _stages(builder: Builder, step: Rows) -> list[dict[str, Any]]:
    """What the schedules know of the stages: a name, a function, the results that this function takes."""
    found = []
    for number, stage in enumerate(step.stages):
        before = step.stages[:number]
        prepare = _row_function(builder, step, stage.prepare, DataType.FLOAT32, before) if stage.prepare else ""
        found.append({"name": stage.name, "prepare": prepare, "before": [earlier.name for earlier in before]})
    return found


def _row_function(builder: Builder, step: Rows, file: str, data_type: DataType, before: tuple[Stage, ...]) -> str:
    """The name of the function that computes an element from itself and the results of stages."""
    results = {stage.name: replace(step.source, data_type=DataType.FLOAT32) for stage in before}
    body = apply_to_row(file, data_type, step.source, results)
    return builder.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})


_SCATTER_FILES = {
    ScatterSchedule.STORE: "schedules/scatter",
    ScatterSchedule.MARK: "schedules/scatter_mark",
    ScatterSchedule.STORE_MARKED: "schedules/scatter_marked",
}


def _scatter(builder: Builder, step: Scatter, target: Target) -> Rendered:
    marking = step.schedule is ScatterSchedule.MARK
    atomic = marking or step.output.unit_bits < 32
    store, values = builder.store(step.output, atomic=atomic)
    text = store + builder.load("source", step.source)
    text += "".join(builder.load(name, tensor) for name, tensor in step.inputs)
    text += templates.render(step.file, output=step.output, **mapping(step.constants))
    launch = item_launch(math.prod(step.source.sizes), target)
    text += templates.render(_SCATTER_FILES[step.schedule], source=step.source, launch=launch, **values)
    return text, launch, 1, [step.output, step.source, *(tensor for _, tensor in step.inputs)]
