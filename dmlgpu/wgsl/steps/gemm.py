"""Contract: sums of products, in tiles or one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dmlgpu.kernels.gemm import Contract, Form, Operand, small_body, spread
from dmlgpu.kernels.gemm_schedules import UNIT, Schedule
from dmlgpu.kernels.grid import Launch, fold, loop_launch
from dmlgpu.kernels.sources import leaves
from dmlgpu.kernels.walk import WORD_BITS, choose_walk
from dmlgpu.plan import Source, Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import scalar_of, vector

_FETCH = {
    Form.ACROSS: ("gemm_across", "gemm_block"),
    Form.ALONG: ("gemm_along",),
    Form.SINGLE: ("gemm_single", "gemm_block"),
}
"""The files that give the units of one step, and those of four."""


@dataclass(frozen=True)
class _Fetch:
    """How a slab is filled: steps that one task brings, and whether its neighbours lie along the inner dimension."""

    steps: int
    inner_fastest: bool


@render_step.register
def _contract(step: Contract, builder: Builder, target: Target) -> Rendered:
    return _one_by_one(step, builder, target) if step.schedule is Schedule.SMALL else _tiled(step, builder, target)


def _one_by_one(step: Contract, builder: Builder, target: Target) -> Rendered:
    body, output = small_body(step), step.output
    walk = choose_walk(output, step.keeps_neighbours)
    store, values = builder.store(output, body.portable, atomic=walk.exchange)
    launch = loop_launch(walk.items(output), target)
    text = store + builder.body(body) + templates.render("schedules/map", walk=walk, launch=launch, **values)
    return Rendered(text, launch, (output, *leaves(body)))


def _tiled(step: Contract, builder: Builder, target: Target) -> Rendered:
    tile, output, shape = step.tile, step.output, step.space.shape
    across, down = tile.groups(shape)
    total = across * down * shape.batch * step.parts
    launch = Launch(tile.workgroup, 1, fold(total, target), total)
    kind = scalar_of(step.accumulator, target, portable=True)
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    values |= {
        "launch": launch,
        "tile": tile,
        "sum_t": vector(kind, UNIT),
        "across": across,
        "down": down,
        "batches": shape.batch,
        "rows": shape.rows,
        "columns": shape.columns,
        "digits": _output_digits(step),
        "inner": step.space.inner,
        "inner_rest": math.prod(step.space.inner[1:]),
        "inner_names": _inner_names(step),
        "inner_digits": ", ".join(spread("step", step.space.inner)),
        "parts": step.parts,
        "share": step.share,
        "chunk": step.chunk,
        "steps": _steps(step),
        "depth": tile.depth,
        "width": min(tile.rows, UNIT),
    }
    text = store + builder.epilogue(step.epilogue, step.accumulator)
    for name, operand in (("a", step.a), ("b", step.b)):
        values[f"{name}_fetch"] = _fetch(operand)
        text += _operand(step, builder, target, name)
    text += templates.render(f"schedules/gemm_keep_{'unit' if output.lanes == UNIT else 'lanes'}", **values)
    text += templates.render(f"schedules/gemm_{step.schedule}", **values)
    return Rendered(text, launch, (output, *_tensors(step.a.source, step.b.source, step.epilogue)), output.lanes)


def _tensors(*sources: Source) -> list[Tensor]:
    return [tensor for source in sources for tensor in leaves(source)]


def _inner_names(step: Contract) -> str:
    return ", ".join(f"k{dimension}" for dimension in range(len(step.space.inner)))


def _output_digits(step: Contract) -> list[str]:
    """The coordinates of the output."""
    space = step.space
    columns = (*space.columns[:-1], space.columns[-1] // step.output.lanes)
    parts = ["part"] if step.parts > 1 else []
    return [*parts, *spread("batch", space.batch), *spread("row", space.rows), *spread("column", columns)]


def _operand(step: Contract, builder: Builder, target: Target, name: str) -> str:
    """The accessor of an operand, and the units, of one step or of four, that tiles are made of."""
    operand, width = (step.a, min(step.tile.rows, UNIT)) if name == "a" else (step.b, UNIT)
    lanes = UNIT if operand.form is Form.ACROSS else 1
    inner = [f"k{dimension}" for dimension in range(len(step.space.inner))]
    values: dict[str, Any] = {
        "name": name,
        "unit_t": vector(scalar_of(step.accumulator, target, portable=True), width),
        "width": width,
        "count": math.prod(operand.own),
        "batch_digits": spread("batch", operand.batch),
        "own_digits": spread("own", (*operand.own[:-1], operand.own[-1] // lanes)),
        "own_at": operand.own_at,
        "inner_at": operand.inner_at,
        "inner_steps": [*inner[:-1], inner[-1] + (" / 4u" if operand.form is Form.ALONG else "")],
        "parameters": ", ".join(f"{k}: u32" for k in inner),
        "arguments": ", ".join(inner),
    }
    text = builder.source(name, operand.source, raw=False, portable=True)
    text += templates.render("schedules/gemm_operand", **values)
    by_four = _steps(step) == UNIT if step.schedule is Schedule.REGISTER else operand.form is Form.ALONG
    files = _FETCH[operand.form][: 2 if by_four else 1]
    return text + "".join(templates.render(f"schedules/{file}", **values) for file in files)


def _steps(step: Contract) -> int:
    """Steps along the inner dimension that a tile in registers takes at a time."""
    return UNIT if Form.ALONG in (step.a.form, step.b.form) else 1


def _fetch(operand: Operand) -> _Fetch:
    """Neighbouring tasks read neighbours in memory."""
    if operand.form is not Form.SINGLE:
        return _Fetch(UNIT if operand.form is Form.ALONG else 1, operand.form is Form.ALONG)
    source, last_inner = operand.source, operand.inner_at + _inner_rank(operand) - 1
    return _Fetch(1, isinstance(source, Tensor) and source.strides[last_inner] == 1)


def _inner_rank(operand: Operand) -> int:
    return len(operand.source.sizes) - len(operand.batch) - len(operand.own)
