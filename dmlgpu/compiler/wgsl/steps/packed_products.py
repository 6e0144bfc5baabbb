"""Products of 8-bit integers, in words of four."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.compiler.plan import PlanTensor
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.packed_products import (
    IntegerProduct,
    PackedOperand,
    ScheduledBlockContract,
    ScheduledPackedContract,
)
from dmlgpu.compiler.schedule.steps.products import Fetch, Operand, OperandLayout
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.products import coordinates, keep, operand_values, spread, tiled
from dmlgpu.compiler.wgsl.steps.quantized import names_of_scales, values_of_columns
from dmlgpu.compiler.wgsl.types import Scalar, vector
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special

_TAILS = {1: "0xff", 2: "0xffff", 3: "0xffffff"}
"""Bits of the integers of an incomplete word, by their count."""


@special.register
def _packed(step: ScheduledPackedContract, writer: ShaderWriter, values: dict[str, Any]) -> str:
    tile = step.tile
    text = tiled(step, writer, values)
    values |= {
        "dot_t": vector(Scalar.U32 if step.is_unsigned else Scalar.I32, UNIT),
        "inner": (step.words,),
        "operands": tuple(
            (name, Fetch(1, operand.fetch.inner_fastest), units)
            for (name, operand, _), units in zip(
                step.operands(), (tile.down * tile.rows // UNIT, tile.across * tile.units), strict=True
            )
        ),
    }
    return text + integer_operands(step, writer, values) + keep(step.output, values)


def integer_operands(step: IntegerProduct, writer: ShaderWriter, values: dict[str, Any]) -> str:
    """Return the accessors of words and zero points of both operands, and add the values that templates of products of
    integers need."""
    steps = math.prod(step.space.inner)
    values |= {
        "steps": steps,
        "tail": next((bits for rest, bits in _TAILS.items() if steps % UNIT == rest), ""),
        "last_step": steps - 1,
        "last_word": step.words - 1,
        "middles": {name: step.middle(integers) for name, _, integers in step.operands()},
        "summed": step.summed,
        "padded": step.b.layout is OperandLayout.SEEN and step.b_integers.zero_point is not None,
    }
    return "".join(_operand(step, operand, values, writer) for operand in step.operands())


@special.register
def _blocks(step: ScheduledBlockContract, writer: ShaderWriter, values: dict[str, Any]) -> str:
    tile, space, columns = step.tile, step.space, step.columns
    text = tiled(step, writer, values)
    a_count, b_count = tile.down * tile.rows // UNIT, tile.across * tile.units
    values |= {
        **values_of_columns(columns),
        **coordinates(space),
        "row_tensors": ("a_scale",),
        "tensors": names_of_scales(columns),
        "inner": (step.words,),
        "blocks": space.inner[0],
        "operands": (("a", Fetch(1, True), a_count), ("b", Fetch(1, True), b_count)),
        "e2m1": "",  # neither these columns nor selected matrices have integer products
        "selected": 0,
    }
    for name, tensor in (("scale", columns.scale), ("zero", columns.zero_point)):
        text += "" if tensor is None else writer.load(name, tensor, portable=True)
    text += writer.source("a_scale", step.scale, raw=False, portable=True)
    text += templates.render("schedules/quantized_operands", **values)
    for name, operand in (("a", step.a), ("b", step.b)):
        text += _words_in_blocks(name, operand, step, values, writer)
    return text + keep(step.output, values)


def _words_in_blocks(
    name: str, operand: Operand, step: ScheduledBlockContract, values: dict[str, Any], writer: ShaderWriter
) -> str:
    """Return the accessor of an operand's words of four, which may be half a word of nibbles."""
    (blocks, block), lanes = step.space.inner, operand.source.lanes
    words = operand_values(name, operand, "vec4<u32>", UNIT)
    words |= {
        "inner_steps": [f"k{dimension}" for dimension in range(operand.inner)],
        "word_digits": spread("word / 2u" if lanes > UNIT else "word", (blocks, block // lanes)),
        "layout": OperandLayout.ALONG,
        "has_nibbles": lanes > UNIT,
        "unaligned": False,
        "is_shifted": False,
        "tail": "",
        "flip": values["byte_flip"] if name == "b" else "",
    }
    text = writer.source(name, operand.source, raw=False, portable=True)
    return text + "".join(templates.render(f"schedules/{file}", **words) for file in ("gemm_operand", "gemm_words"))


def _operand(
    step: IntegerProduct,
    named: tuple[str, Operand, PackedOperand],
    values: dict[str, Any],
    writer: ShaderWriter,
) -> str:
    """Return the accessor of an operand's words, and its zero points if they are subtracted."""
    name, operand, integers = named
    inner, space = step.space.inner, step.space
    inner = inner if operand.inner > 1 else (math.prod(inner),)
    words = operand_values(name, operand, "vec4<u32>", UNIT)
    words |= {each: values[each] for each in ("tail", "last_step", "last_word")}
    words |= {
        "inner_steps": [f"k{dimension}" for dimension in range(operand.inner)],
        "word_digits": spread("word", (*inner[:-1], inner[-1] // UNIT)),
        "step_digits": [spread(f"step{lane}", inner) for lane in range(UNIT)],
        "middle": step.middle(integers),
        "is_shifted": step.is_shifted(integers),
        "has_nibbles": False,
        "flip": "0x80808080" if step.middle(integers) else "",
        "has_zero_point": integers.zero_point is not None,
    }
    text, is_seen = writer.source(name, operand.source, raw=False, portable=True), operand.layout is OperandLayout.SEEN
    layout = _unaligned(operand)
    if layout is not None and isinstance(operand.source, PlanTensor):
        text += writer.words(name, operand.source, 1)
    words |= {"layout": layout or operand.layout, "unaligned": layout is not None}
    if is_seen and integers.zero_point is not None:
        text += "var<private> b_padding: u32;\n"
        words["padding"] = "b_padding"
    if integers.zero_point is not None:
        text += writer.source(f"{name}_zero", integers.zero_point, raw=False, portable=True)
        own = space.rows if name == "a" else space.columns
        words |= {
            "zero_batch_digits": [] if is_seen else spread("batch", space.batch),
            "zero_own_digits": [] if is_seen else spread("own", own),
            "zero_own_at": len(space.batch) + (0 if name == "a" else len(space.inner)),
        }
    files = ("gemm_seen" if is_seen else "gemm_operand", "gemm_words")
    return text + "".join(templates.render(f"schedules/{file}", **words) for file in files)


def _unaligned(operand: Operand) -> OperandLayout | None:
    """Return the layout of words that begin at any byte, for elements that are contiguous but form no whole words."""
    source = operand.source
    if operand.layout is not OperandLayout.SINGLE or not isinstance(source, PlanTensor):
        return None
    if operand.inner == 1 and source.strides[operand.inner_at] == 1:
        return OperandLayout.ALONG
    if len(operand.own) == 1 and source.strides[operand.own_at] == 1:
        return OperandLayout.ACROSS
    return None
