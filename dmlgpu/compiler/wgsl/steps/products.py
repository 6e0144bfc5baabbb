"""Products in tiles, attention and time steps of recurrent networks."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import PlanTensor, Space
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperativeAttend
from dmlgpu.compiler.schedule.steps.products import (
    Operand,
    OperandLayout,
    ProductSchedule,
    ScheduledAttend,
    ScheduledContract,
    ScheduledFloatPanels,
    ScheduledRecurrence,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.parameters import quotient, remainder
from dmlgpu.compiler.wgsl.types import Scalar, scalar_of, vector
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special

_FETCH = {
    OperandLayout.ACROSS: ("gemm_operand", "gemm_across"),
    OperandLayout.ALONG: ("gemm_operand", "gemm_along"),
    OperandLayout.SINGLE: ("gemm_operand", "gemm_single"),
    OperandLayout.WINDOW: ("gemm_window",),
    OperandLayout.SEEN: ("gemm_seen", "gemm_single"),
}
"""Shader files that return the units of a step, or of several at once (ALONG, WINDOW)."""


def operand(
    writer: ShaderWriter,
    name: str,
    operand: Operand,
    width: int,
    kind: Scalar = Scalar.F32,
    *,
    transposes: bool = True,
    apart: int = 1,
) -> str:
    """Return the accessor of an operand, and the function that returns units of tiles.

    Args:
        name: name of the operand.
        width: width of the units.
        kind: type of their numbers.
        transposes: units along the inner dimension become units along the operand's own one as they are read.
        apart: rows or columns between the lanes of a unit, if they are read one by one.
    """
    files = _FETCH[operand.layout] if transposes or operand.layout is not OperandLayout.ALONG else ("gemm_operand",)
    values = operand_values(name, operand, vector(kind, width), width, apart)
    text = writer.source(name, operand.source, raw=False, portable=kind is not Scalar.F16)
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


@dataclass(frozen=True)
class Coordinate:
    """Coordinate of a flat index along a dimension. Its text names sizes, so it is made where a template writes it."""

    index: str
    sizes: tuple[int, ...]
    dimension: int

    @functools.cached_property
    def _text(self) -> str:
        rest = math.prod(self.sizes[self.dimension + 1 :])
        text = self.index if rest == 1 else quotient(self.index, rest)
        return remainder(text, self.sizes[self.dimension]) if self.dimension else text

    def __str__(self) -> str:
        return self._text


class Coordinates(list[Coordinate]):
    """Coordinates, which are arguments of a function as text."""

    def __str__(self) -> str:
        return ", ".join(map(str, self))


def spread(index: str, sizes: Sequence[int]) -> Coordinates:
    """Return WGSL expressions of the coordinates of a flat index over dimensions of these sizes."""
    return Coordinates(Coordinate(index, tuple(sizes), dimension) for dimension in range(len(sizes)))


def tiled(step: ScheduledContract, writer: ShaderWriter, values: dict[str, Any]) -> str:
    """Return the epilogue of a product in tiles, and add the values that its templates need: the tile of a workgroup,
    and where its outputs go."""
    tile, space = step.tile, step.space
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    across, down = tile.groups(rows, columns)
    values |= {
        "across": across,
        "down": down,
        "batches": math.prod(space.batch),
        "rows": rows // step.interleaved,
        "columns": columns * step.interleaved,
        "digits": output_digits(space, step.output.lanes, step.interleaved, step.parts),
        "between": 1 if step.adjacent else tile.across,
        "paired": is_paired(step.output),
        "depth": tile.depth,
        "width": tile.width,
        "a_count": math.prod(step.a.own),
        "b_count": math.prod(step.b.own),
    }
    return writer.epilogue(step.epilogue, step.accumulator)


@special.register
def _contract(step: ScheduledContract, writer: ShaderWriter, values: dict[str, Any]) -> str:
    tile, inner = step.tile, step.space.inner
    kind = scalar_of(step.accumulator, writer.target, portable=True)
    product_kind = Scalar.F16 if step.in_float16 else kind
    text = tiled(step, writer, values)
    values |= {
        "sum_t": vector(kind, UNIT),
        "sum_s": kind.wgsl,
        "inner": inner,
        "inner_rest": math.prod(inner[1:]),
        "turns": math.prod(inner[1:]) // step.steps,
        "turn_digits": spread("turn", (*inner[:-1], inner[-1] // step.steps)),
        "inner_names": ", ".join(f"k{dimension}" for dimension in range(len(inner))),
        "a_digits": spread("step", inner if step.a.inner > 1 else (1,)),
        "b_digits": spread("step", inner if step.b.inner > 1 else (1,)),
        "operands": (
            ("a", step.a.fetch, tile.down * tile.rows // UNIT),
            ("b", step.b.fetch, tile.across * tile.units),
        ),
        "piece_t": vector(product_kind, step.piece),
        "product_t": vector(product_kind, UNIT),
    }
    transposes = step.schedule is not ProductSchedule.SHARED
    text += operand(writer, "a", step.a, tile.width, product_kind, transposes=transposes)
    text += operand(writer, "b", step.b, UNIT, product_kind, transposes=transposes, apart=step.apart)
    return text + keep(step.output, values, step.apart)


@special.register
def _float_panels(step: ScheduledFloatPanels, writer: ShaderWriter, values: dict[str, Any]) -> str:
    output, space, b = step.output, step.space, step.b
    row_digits = spread("row", (*space.batch, *space.rows))
    (columns,) = space.columns
    values |= {
        "row_digits": row_digits,
        "digits": [*row_digits, *spread("column", (columns // output.lanes,))],
        "sum_t": vector(Scalar.F32, b.lanes),
        "lanes": b.lanes,
        "lanes_stored": output.lanes,
        "units": step.tile.units * UNIT // b.lanes,
        "turns": space.inner[0] // UNIT,
        "panels": b.sizes[0],
        "rows": math.prod(space.batch) * math.prod(space.rows),
        "columns": columns,
    }
    return ""


def coordinates(space: Space) -> dict[str, Any]:
    """Return the coordinates of batch, row and column, and the first inner dimension of rows."""
    return {
        "batch_digits": spread("batch", space.batch),
        "row_digits": spread("row", space.rows),
        "column_digits": spread("column", space.columns),
        "a_inner": len(space.batch) + len(space.rows),
    }


def output_digits(space: Space, lanes: int, interleaved: int = 1, parts: int = 1) -> list[str | Coordinate]:
    """Return the coordinates of an output of units of ``lanes``, without those of interleaved rows."""
    rows = space.rows if interleaved == 1 else space.rows[:-1]
    columns = (*space.columns[:-1], space.columns[-1] * interleaved // lanes)
    part = ["part"] if parts > 1 else []
    return [*part, *spread("batch", space.batch), *spread("row", rows), *spread("column", columns)]


@special.register
def _attend(step: ScheduledAttend, writer: ShaderWriter, values: dict[str, Any]) -> str:
    tile = step.tile
    *_, group, length, _ = step.output.sizes
    down, across = tile.groups(group * length, step.units)
    values |= {"across": across, "down": down}
    transposes = tile.depth == 0 and not tile.is_streamed
    return attention(step, writer, values, parts=step.parts, width=tile.width, transposes=transposes)


def attention(
    step: ScheduledAttend | ScheduledCooperativeAttend,
    writer: ShaderWriter,
    values: dict[str, Any],
    *,
    parts: int = 1,
    width: int = UNIT,
    transposes: bool = False,
) -> str:
    """Return the functions of attention, and add the values that its templates need.

    Args:
        step: The step.
        writer: The writer.
        values: Values of the template.
        parts: Parts of the keys.
        width: Width of the units of queries.
        transposes: Whether units along the head become units of rows and keys as they are read.
    """
    output = step.output
    *_, batch, shared, group, length, _ = (1, *output.sizes)
    columns = step.epilogue.sizes[-1]
    digits = {"batch": spread("batch", (batch, shared)), "row": spread("row", (group, length))}
    part = ["part"] if parts > 1 else []
    values |= {
        "batches": batch * shared,
        "rows": group * length,
        "columns": columns * output.lanes,
        "digits": [*part, *digits["batch"], *digits["row"], *spread("column", (columns,))],
        "keys": step.score.sizes[-1],
        "length": length,
        "causal": step.visible is not None,
    }
    text = writer.epilogue(step.epilogue, DataType.FLOAT32)
    text += operand(writer, "query", step.query, width, transposes=transposes)
    text += operand(writer, "key", step.key, UNIT, transposes=transposes)
    along: dict[str, Sequence[str | Coordinate]] = {"value": ["row"], "visible": digits["row"]}
    for name, source in (("value", step.value), ("visible", step.visible)):
        if source is not None:
            text += writer.source(name, source, raw=False, portable=True)
            places: dict[str, Any] = {"name": name, "digits": [*digits["batch"], *along[name]]}
            text += templates.render("schedules/attention_place", parameters=("row",), **places)
    return text + _scores(step, writer, digits) + keep(output, values)


def _scores(
    step: ScheduledAttend | ScheduledCooperativeAttend, writer: ShaderWriter, digits: dict[str, Coordinates]
) -> str:
    """Return ``score_finish``, which computes a score from its position and the product of query and key."""
    with writer.names.within("score_"):
        text = templates.render("access/types", name="score_output", rank=step.score.rank, scalar="f32", unit="f32")
        text += writer.epilogue(step.score, DataType.FLOAT32)
    names = {"name": "score_output", "digits": [*digits["batch"], *digits["row"], "column"]}
    return text + templates.render("schedules/attention_place", parameters=("row", "column"), **names)


@special.register
def _recurrence(step: ScheduledRecurrence, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= {
        "gates": [(index, gate) for index, (gate, _) in enumerate(step.sums)],
        "sequences": step.output.sizes[2],
        "wide": 1 if step.along else step.weights.lanes,
        "states": len(step.states),
        "depth": 1 if step.along else step.hidden.lanes,
    }
    return writer.elements(step.states, {held: held.name for _, held in step.sums})
