"""Products in tiles, attention and time steps of recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import PlanTensor
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps.products import (
    Operand,
    OperandLayout,
    ProductSchedule,
    ScheduledAttend,
    ScheduledContract,
    ScheduledRecurrence,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.parameters import quotient, remainder
from dmlgpu.compiler.wgsl.types import Scalar, scalar_of, vector
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step

_FETCH = {
    OperandLayout.ACROSS: ("gemm_operand", "gemm_across"),
    OperandLayout.ALONG: ("gemm_operand", "gemm_along"),
    OperandLayout.SINGLE: ("gemm_operand", "gemm_single"),
    OperandLayout.WINDOW: ("gemm_window",),
    OperandLayout.SEEN: ("gemm_seen", "gemm_single"),
}
"""Shader files that return the units of a step, or of several at once (ALONG, WINDOW)."""

PIECE = 2
"""Number of adjacent steps in workgroup memory, of an operand in units along the inner dimension: with four, the eight
rows of a tile take 16 registers more, with one, compilers that do not join loads make twice as many."""


def operand(
    writer: ShaderWriter,
    name: str,
    operand: Operand,
    *,
    width: int,
    accumulator: DataType,
    transposes: bool = True,
    in_float16: bool = False,
    apart: int = 1,
) -> str:
    """Return the accessor of an operand, and the function that returns units of tiles.

    Args:
        name: name of the operand.
        width: width of the units.
        accumulator: data type of their numbers.
        transposes: units along the inner dimension become units along the operand's own one as they are read.
        in_float16: numbers are of the type f16, not of the accumulator's.
        apart: rows or columns between the lanes of a unit, if they are read one by one.
    """
    files = _FETCH[operand.layout] if transposes or operand.layout is not OperandLayout.ALONG else ("gemm_operand",)
    kind = Scalar.F16 if in_float16 else scalar_of(accumulator, writer.target, portable=True)
    values = operand_values(name, operand, vector(kind, width), width, apart)
    text = writer.source(name, operand.source, raw=False, portable=not in_float16)
    return text + "".join(templates.render(f"schedules/{file}", **values) for file in files)


def operand_values(name: str, operand: Operand, unit: str, width: int, apart: int = 1) -> dict[str, Any]:
    """Return the template values of an operand by its name, and by the WGSL type and the width of its units, whose
    lanes are that far apart."""
    lanes = UNIT if operand.layout in (OperandLayout.ACROSS, OperandLayout.WINDOW) else 1
    names = [f"k{dimension}" for dimension in range(operand.inner)]
    return {
        "name": name,
        "unit_t": unit,
        "width": width,
        "places": _places("unit", width, apart),
        "paired": is_paired(operand.source),
        "count": math.prod(operand.own),
        "batch_digits": spread("batch", operand.batch),
        "own_digits": spread("own", (*operand.own[:-1], operand.own[-1] // lanes)),
        "own_at": operand.own_at,
        "inner_at": operand.inner_at,
        "inner_steps": [*names[:-1], names[-1] + (" / 4u" if operand.layout is OperandLayout.ALONG else "")],
        "parameters": ", ".join(f"{name}: u32" for name in names),
        "arguments": ", ".join(names),
        "windows": operand.windows,
        "window": operand.window,
        "padding": f"{name}_t()",
        "last": len(operand.source.sizes) - 1,
    }


def keep(output: PlanTensor, values: dict[str, Any], apart: int = 1) -> str:
    """Return the text that stores the outputs of an invocation, in pairs of units, in units or lane by lane."""
    how = "pair" if is_paired(output) else "unit" if output.lanes == UNIT else "lanes"
    return templates.render(f"schedules/gemm_keep_{how}", places=_places("column", UNIT, apart), **values)


def _places(unit: str, width: int, apart: int) -> list[str]:
    """Return the row or column of each lane of a unit: adjacent, or ``apart`` within tiles of that many units."""
    first = f"{unit} * {width}u" if apart == 1 else f"{unit} / {apart}u * {width * apart}u + {unit} % {apart}u"
    return [f"{first} + {lane * apart}u" for lane in range(width)]


def spread(index: str, sizes: Sequence[int]) -> list[str]:
    """Return WGSL expressions of the coordinates of a flat index over dimensions of these sizes."""
    digits, rest = [], 1
    for position in reversed(range(len(sizes))):
        text = index if rest == 1 else quotient(index, rest)
        digits.append(text if position == 0 else remainder(text, sizes[position]))
        rest *= sizes[position]
    return digits[::-1]


def store_of(step: ScheduledContract, writer: ShaderWriter) -> tuple[str, dict[str, Any]]:
    """Return the accessor of the output and the epilogue of a product in tiles, and the values that its templates
    need: the tile of a workgroup, and where its outputs go."""
    tile, output, space = step.tile, step.output, step.space
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    across, down = tile.groups(rows, columns)
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    values |= {
        "launch": step.launch,
        "tile": tile,
        "across": across,
        "down": down,
        "batches": math.prod(space.batch),
        "rows": rows // step.interleaved,
        "columns": columns * step.interleaved,
        "interleaved": step.interleaved,
        "in_memory": step.in_memory,
        "digits": _output_digits(step),
        "parts": step.parts,
        "share": step.share,
        "chunk": step.chunk,
        "between": 1 if step.adjacent else tile.across,
        "paired": is_paired(output),
        "depth": tile.depth,
        "width": tile.width,
        "whole": step.whole,
        "in_float16": step.in_float16,
        "a_count": math.prod(step.a.own),
        "b_count": math.prod(step.b.own),
    }
    return store + writer.epilogue(step.epilogue, step.accumulator), values


@render_step.register
def _contract(step: ScheduledContract, writer: ShaderWriter) -> str:
    tile, space = step.tile, step.space
    kind = scalar_of(step.accumulator, writer.target, portable=True)
    product_kind = Scalar.F16 if step.in_float16 else kind
    text, values = store_of(step, writer)
    inner = len(space.inner)
    values |= {
        "sum_t": vector(kind, UNIT),
        "sum_s": kind.wgsl,
        "inner": space.inner,
        "inner_rest": math.prod(space.inner[1:]),
        "turns": math.prod(space.inner[1:]) // step.steps,
        "turn_digits": spread("turn", (*space.inner[:-1], space.inner[-1] // step.steps)),
        "inner_names": ", ".join(f"k{dimension}" for dimension in range(inner)),
        "a_digits": ", ".join(spread("step", space.inner if step.a.inner > 1 else (1,))),
        "b_digits": ", ".join(spread("step", space.inner if step.b.inner > 1 else (1,))),
        "sharing": step.sharing,
        "steps": step.steps,
        "operands": (
            ("a", step.a.fetch, tile.down * tile.rows // UNIT),
            ("b", step.b.fetch, tile.across * tile.units),
        ),
        "piece": PIECE,
        "piece_t": vector(product_kind, PIECE),
        "product_t": vector(product_kind, UNIT),
    }
    transposes = step.schedule is not ProductSchedule.SHARED
    for name, source, unit in (("a", step.a, tile.width), ("b", step.b, UNIT)):
        values[f"{name}_fetch"] = source.fetch
        text += operand(
            writer,
            name,
            source,
            width=unit,
            accumulator=step.accumulator,
            transposes=transposes,
            in_float16=step.in_float16,
            apart=step.apart if name == "b" else 1,
        )
    stores = keep(step.output, values, step.apart)
    return text + stores + templates.render(f"schedules/gemm_{step.schedule}", **values)


def _output_digits(step: ScheduledContract) -> list[str]:
    """Return the coordinates of the output, without those of interleaved rows."""
    space = step.space
    rows = space.rows if step.interleaved == 1 else space.rows[:-1]
    columns = (*space.columns[:-1], space.columns[-1] * step.interleaved // step.output.lanes)
    parts = ["part"] if step.parts > 1 else []
    return [*parts, *spread("batch", space.batch), *spread("row", rows), *spread("column", columns)]


FLOAT32 = DataType.FLOAT32

_OPERAND: dict[str, Any] = {"accumulator": FLOAT32}


@render_step.register
def _attend(step: ScheduledAttend, writer: ShaderWriter) -> str:
    tile, output = step.tile, step.output
    *_, batch, shared, group, length, _ = (1, *output.sizes)
    rows, width = group * length, tile.width
    down, across = tile.groups(rows, step.units)
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    columns = step.epilogue.sizes[-1]
    parts = ["part"] if step.parts > 1 else []
    digits = {"batch": spread("batch", (batch, shared)), "row": spread("row", (group, length))}
    values |= {
        "launch": step.launch,
        "tile": tile,
        "width": width,
        "vectors": tile.rows // width,
        "row_parts": [f".{part}" for part in "xyzw"[:width]] if width > 1 else [""],
        "rows_t": vector(Scalar.F32, width),
        "across": across,
        "down": down,
        "batches": batch * shared,
        "rows": rows,
        "columns": columns * output.lanes,
        "digits": [*parts, *digits["batch"], *digits["row"], *spread("column", (columns,))],
        "keys": step.score.sizes[-1],
        "length": length,
        "size": step.head,
        "last_step": (step.head - 1) // tile.depth * tile.depth if tile.depth else 0,
        "loads": tile.across // tile.down,
        "group": tile.across // tile.units,
        "whole": step.visible is None and step.score.sizes[-1] % tile.block == 0,
        "units": step.units,
        "parts": step.parts,
        "share": step.share,
        "plain": step.is_plain,
        "causal": step.visible is not None,
        "in_step": tile.alone == 1,
    }
    text = store + writer.epilogue(step.epilogue, FLOAT32)
    text += _operands(step, writer, digits) + _scores(step, writer, digits)
    schedule = (
        "attention_slabs"
        if tile.depth
        else "attention_streamed"
        if tile.is_streamed
        else "attention_rows"
        if tile.by_rows
        else "attention"
    )
    return text + keep(output, values) + templates.render(f"schedules/{schedule}", **values)


def _operands(step: ScheduledAttend, writer: ShaderWriter, digits: dict[str, list[str]]) -> str:
    """Return the accessors of queries, keys, values and the number of keys that a row attends to."""
    transposes = step.tile.depth == 0 and not step.tile.is_streamed
    text = operand(writer, "query", step.query, width=step.tile.width, transposes=transposes, **_OPERAND)
    text += operand(writer, "key", step.key, width=UNIT, transposes=transposes, **_OPERAND)
    along = {"value": ["row"], "visible": digits["row"]}
    for name, source in (("value", step.value), ("visible", step.visible)):
        if source is not None:
            text += writer.source(name, source, raw=False, portable=True)
            values: dict[str, Any] = {"name": name, "digits": [*digits["batch"], *along[name]]}
            text += templates.render("schedules/attention_place", parameters=("row",), **values)
    return text


def _scores(step: ScheduledAttend, writer: ShaderWriter, digits: dict[str, list[str]]) -> str:
    """Return ``score_finish``, which computes a score from its position and the product of query and key."""
    with writer.names.within("score_"):
        text = templates.render("access/types", name="score_output", rank=step.score.rank, scalar="f32", unit="f32")
        text += writer.epilogue(step.score, FLOAT32)
    names = {"name": "score_output", "digits": [*digits["batch"], *digits["row"], "column"]}
    return text + templates.render("schedules/attention_place", parameters=("row", "column"), **names)


@render_step.register
def _recurrence(step: ScheduledRecurrence, writer: ShaderWriter) -> str:
    output, weights = step.output, step.weights
    text, values = writer.store(output, portable=True)
    text += writer.load("hidden", step.hidden, portable=True) + writer.load("weights", weights, portable=True)
    text += writer.elements(step.states, {held: held.name for _, held in step.sums})
    values |= {
        "launch": step.launch,
        "rows": step.rows,
        "gates": [(index, gate) for index, (gate, _) in enumerate(step.sums)],
        "units": step.units,
        "groups": step.groups,
        "tiles": step.tiles,
        "sequences": output.sizes[2],
        "steps": step.steps,
        "chunk": step.chunk,
        "wide": 1 if step.along else weights.lanes,
        "along": step.along,
        "states": len(step.states),
        "parts": step.parts,
        "across": step.across,
        "depth": 1 if step.along else step.hidden.lanes,
    }
    return text + templates.render("schedules/recurrence_split" if step.parts > 1 else "schedules/recurrence", **values)
