"""Products with quantized columns, and dequantization of columns to memory."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Source
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps.quantized import (
    QuantizedColumns,
    QuantizedRows,
    ScheduledDequantize,
    ScheduledPanels,
    ScheduledQuantizedProduct,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.products import keep, spread
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step


@render_step.register
def _quantized(step: ScheduledQuantizedProduct, writer: ShaderWriter) -> str:
    output, space, b = step.output, step.space, step.b
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    text = store + writer.epilogue(step.epilogue, DataType.FLOAT32, step.sums)
    text += _rows(step.a, writer)
    loads, names = _loads(b, writer)
    text += loads
    digits = {"batch": spread("batch", space.batch), "row": spread("row", space.rows)}
    digits["column"] = spread("column", space.columns)
    values |= {
        "launch": step.launch,
        "digits": [*digits["batch"], *digits["row"], *digits["column"]],
        "batch_digits": digits["batch"],
        "row_digits": digits["row"],
        "column_digits": digits["column"],
        "a_inner": len(space.batch) + len(space.rows),
        "row_tensors": ("a", "a_scale") if isinstance(step.a, QuantizedRows) else ("a",),
        **_of_rows(step.a),
        "tensors": names,
        **values_of_columns(b),
        "blocks": space.inner[0],
        "units": space.inner[1] // b.words.lanes,
        "column_tiles": -(-columns // (step.columns * step.down)),
        "row_tiles": -(-rows // step.rows),
        "all_rows": rows,
        "all_columns": columns,
        "sharing": step.sharing,
        "distances": [1 << place for place in reversed(range(step.sharing.bit_length() - 1))],
        "across": step.across,
        "down": step.down,
    }
    text += templates.render("schedules/quantized_operands", **values)
    keep: dict[str, Any] = {**values, "rows": rows, "columns": columns}
    text += templates.render("schedules/gemm_keep_one", **keep)
    values |= {"rows": step.rows, "columns": step.columns, "parts": step.sums}
    return text + templates.render(f"schedules/quantized_{step.schedule}", **values)


@render_step.register
def _panels(step: ScheduledPanels, writer: ShaderWriter) -> str:
    output, space, b, tile = step.output, step.space, step.b, step.tile
    rows, (columns,) = math.prod(space.rows), space.columns
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    text = store + writer.epilogue(step.epilogue, DataType.FLOAT32, step.sums)
    text += writer.source("a", step.a, raw=False, portable=True)
    tensors = {"words": b.words, "scale": b.scale} | ({} if b.zero_point is None else {"zero": b.zero_point})
    text += "".join(writer.load(name, tensor, portable=True) for name, tensor in tensors.items())
    digits = {"batch": spread("batch", space.batch), "row": spread("row", space.rows)}
    values |= {
        "launch": step.launch,
        "tile": tile,
        "digits": [*digits["batch"], *digits["row"], *spread("column", (columns // output.lanes,))],
        "batch_digits": digits["batch"],
        "row_digits": digits["row"],
        "a_inner": len(space.batch) + len(space.rows),
        "tensors": {name: (is_paired(tensor), "word, " if name == "words" else "") for name, tensor in tensors.items()},
        "bits": b.bits,
        "in_word": b.in_word,
        "signs": hex(b.signs) if b.signs else "",
        "center": b.center,
        "has_zero": b.zero_point is not None,
        "blocks": space.inner[0],
        "turns": space.inner[1] // (step.words * b.in_word),
        "words": step.words,
        "panels": b.words.sizes[len(space.batch)] // step.sums,
        "column_tiles": -(-columns * step.sums // (tile.units * UNIT * tile.across)),
        "row_tiles": -(-rows // tile.rows),
        "rows": rows,
        "columns": columns,
        "halves": step.sums,
        "sharing": step.sharing,
        "paired": is_paired(output),
        # holds all sums of a tile
        **{
            "parts": 1,
            "interleaved": 1,
            "chunk": 1,
            "between": 1,
            "in_float16": False,
            "in_memory": False,
            "sum_t": "vec4<f32>",
        },
    }
    text += templates.render("schedules/gemm_keep_one", **values) if step.sums > 1 else keep(output, values)
    return text + templates.render("schedules/quantized_panels", **values)


def _rows(a: Source | QuantizedRows, writer: ShaderWriter) -> str:
    """Return the accessors of rows."""
    if not isinstance(a, QuantizedRows):
        return writer.source("a", a, raw=False, portable=True)
    return writer.load("a", a.words, portable=True) + writer.source("a_scale", a.scale, raw=False, portable=True)


def _of_rows(a: Source | QuantizedRows) -> dict[str, Any]:
    """Return the template values of rows: the elements of a unit, and its words if they are integers."""
    if not isinstance(a, QuantizedRows):
        return {"a_lanes": a.lanes, "integers": False}
    return {"a_lanes": a.words.lanes, "a_words": a.words_of_unit, "integers": True}


def _loads(b: QuantizedColumns, writer: ShaderWriter) -> tuple[str, tuple[str, ...]]:
    """Return the accessors of the tensors of columns, and their names."""
    words = writer.load("words", b.words, portable=True)
    text, names = scales_of_columns(b, writer)
    return words + text, ("words", *names)


def scales_of_columns(b: QuantizedColumns, writer: ShaderWriter) -> tuple[str, tuple[str, ...]]:
    """Return the accessors of the scales and zero points of columns, and their names."""
    present = {"scale": b.scale} if b.zero_point is None else {"scale": b.scale, "zero": b.zero_point}
    return "".join(writer.load(name, tensor, portable=True) for name, tensor in present.items()), tuple(present)


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


@render_step.register
def _dequantize(step: ScheduledDequantize, writer: ShaderWriter) -> str:
    store, values = writer.store(step.output, portable=True)
    loads, _ = _loads(step.b, writer)
    values |= {"walk": step.walk, "launch": step.launch, "inner": step.inner, "column": step.column}
    return store + loads + templates.render("schedules/dequantize", **values, **values_of_columns(step.b))
