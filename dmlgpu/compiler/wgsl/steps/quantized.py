"""Products with quantized columns, and dequantization of columns to memory."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.compiler.plan import Source
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps.quantized import (
    QuantizedColumns,
    QuantizedRows,
    ScheduledColumns,
    ScheduledDequantize,
    ScheduledPanels,
    ScheduledQuantizedProduct,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.products import coordinates, keep, spread
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special


@special.register
def _quantized(step: ScheduledQuantizedProduct, writer: ShaderWriter, values: dict[str, Any]) -> str:
    space, b = step.space, step.b
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    values |= coordinates(space)
    values |= {
        "digits": [*values["batch_digits"], *values["row_digits"], *values["column_digits"]],
        "row_tensors": _names_of_rows(step),
        **_of_rows(step.a),
        "tensors": ("words", *names_of_scales(b)),
        **values_of_columns(b),
        "blocks": space.inner[0],
        "units": space.inner[1] // b.words.lanes,
        "e2m1": ("vec4<f32>" if step.schedule == "lanes" else "f32") if b.is_e2m1 else "",
        "selected": 0 if b.selection is None else b.selection.rank - 1,
        "matrices": 0 if b.selection is None else b.words.sizes[b.selection.rank - 2],
        "column_tiles": -(-columns // (step.columns * step.down)),
        "row_tiles": -(-rows // step.rows),
        "all_rows": rows,
        "all_columns": columns,
        "distances": [1 << place for place in reversed(range(step.sharing.bit_length() - 1))],
        "parts": step.sums,
    }
    text = templates.render("schedules/quantized_operands", **values)
    if step.ranges:
        return text + templates.render("schedules/quantized_ranges", **values)
    return text + templates.render("schedules/gemm_keep_one", rows=rows, columns=columns, **values)


@special.register
def _columns(step: ScheduledColumns, writer: ShaderWriter, values: dict[str, Any]) -> str:
    sizes = step.epilogue.sizes
    for name, dimensions, index in (("rows", step.rows, "row"), ("columns", step.columns, "unit")):
        values[f"of_{name}"] = zip(
            dimensions, spread(index, [sizes[dimension] for dimension in dimensions]), strict=True
        )
    text = "".join(writer.load(name, tensor) for name, tensor in step.inputs)
    if step.file:
        source, scalar, unit = map(writer.names.scoped, ("source", "output_s", "output_t"))
        text += templates.render("access/types", name=source, rank=len(sizes), scalar=scalar, unit=unit)
        text += templates.render(step.file, output=step.output, **dict(step.constants))
    return text


@special.register
def _panels(step: ScheduledPanels, writer: ShaderWriter, values: dict[str, Any]) -> str:
    output, space, b, tile = step.output, step.space, step.b, step.tile
    rows, (columns,) = math.prod(space.rows), space.columns
    tensors = {"words": b.words, "scale": b.scale} | ({} if b.zero_point is None else {"zero": b.zero_point})
    values |= coordinates(space)
    values |= {
        "digits": [*values["batch_digits"], *values["row_digits"], *spread("column", (columns // output.lanes,))],
        "pieces": {name: tile.units * UNIT // step.sums // tensor.lanes for name, tensor in tensors.items()},
        "bits": b.bits,
        "in_word": b.in_word,
        "signs": hex(b.signs) if b.signs else "",
        "center": b.center,
        "has_zero": b.zero_point is not None,
        "blocks": space.inner[0],
        "turns": space.inner[1] // (step.words * b.in_word),
        "panels": b.words.sizes[len(space.batch)] // step.sums,
        "lanes_of_panel": b.words.sizes[-2],
        "column_tiles": -(-columns * step.sums // (tile.units * UNIT * tile.across)),
        "row_tiles": -(-rows // tile.rows),
        "rows": rows,
        "columns": columns,
        "paired": is_paired(output),
    }
    return templates.render("schedules/gemm_keep_one", **values) if step.sums > 1 else keep(output, values)


def _of_rows(a: Source | QuantizedRows) -> dict[str, Any]:
    """Return the template values of rows: the elements of a unit, and its words if they are integers."""
    if not isinstance(a, QuantizedRows):
        return {"a_lanes": a.lanes, "integers": False}
    return {"a_lanes": a.words.lanes, "a_words": a.words_of_unit, "integers": True}


def _names_of_rows(step: ScheduledQuantizedProduct) -> tuple[str, ...]:
    """Return the names of the rows, their scales if they are integers, and their gain if they are normalized."""
    if isinstance(step.a, QuantizedRows):
        return ("a", "a_scale")
    return ("a",) if step.norm is None or step.norm.gain is None else ("a", "gain")


def names_of_scales(b: QuantizedColumns) -> tuple[str, ...]:
    """Return the names of the scales and zero points of columns."""
    return ("scale",) if b.zero_point is None else ("scale", "zero")


def values_of_columns(b: QuantizedColumns) -> dict[str, Any]:
    """Return the template values for extraction of integers from words."""
    sign_bits = sum(1 << (b.bits * place + b.bits - 1) for place in range(b.in_word))
    known = "" if b.is_centered else f"f32({b.known - b.middle})"
    return {
        "bits": b.bits,
        "in_word": b.in_word,
        "in_unit": b.words.lanes,
        "words_of_unit": b.words_of_unit,
        "flip": "" if b.signed else hex(sign_bits),
        "byte_flip": hex(sign_bits) if b.signed == (b.bits < 8) else "",
        "middle": f"{b.middle}.0",
        "has_zero": not b.is_centered,
        "zero_known": known if b.zero_point is None else None,
    }


@special.register
def _dequantize(step: ScheduledDequantize, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= values_of_columns(step.b)
    return ""
