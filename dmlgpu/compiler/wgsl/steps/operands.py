"""What products and attention share: how operands are read, and what coordinates running numbers stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Tensor
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps import Form, Operand
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.types import scalar_of, vector

_FETCH = {
    Form.ACROSS: ("gemm_operand", "gemm_across"),
    Form.ALONG: ("gemm_operand", "gemm_along"),
    Form.SINGLE: ("gemm_operand", "gemm_single"),
    Form.WINDOW: ("gemm_window",),
}
"""The files that give the units of a step, or of several at once (ALONG, WINDOW)."""


def operand(builder: Builder, name: str, operand: Operand, *, inner: int, width: int, accumulator: DataType) -> str:
    """Return the accessor of an operand, and the units that tiles are made of.

    Args:
        name: of the operand.
        inner: number of inner dimensions.
        width: of the units.
        accumulator: the type of their numbers.
    """
    lanes = UNIT if operand.form in (Form.ACROSS, Form.WINDOW) else 1
    names = [f"k{dimension}" for dimension in range(inner)]
    values: dict[str, Any] = {
        "name": name,
        "unit_t": vector(scalar_of(accumulator, builder.target, portable=True), width),
        "width": width,
        "paired": is_paired(operand.source),
        "count": math.prod(operand.own),
        "batch_digits": spread("batch", operand.batch),
        "own_digits": spread("own", (*operand.own[:-1], operand.own[-1] // lanes)),
        "own_at": operand.own_at,
        "inner_at": operand.inner_at,
        "inner_steps": [*names[:-1], names[-1] + (" / 4u" if operand.form is Form.ALONG else "")],
        "parameters": ", ".join(f"{name}: u32" for name in names),
        "arguments": ", ".join(names),
        "windows": operand.windows,
        "window": operand.window,
        "last": len(operand.source.sizes) - 1,
    }
    text = builder.source(name, operand.source, raw=False, portable=True)
    return text + "".join(templates.render(f"schedules/{file}", **values) for file in _FETCH[operand.form])


def keep(output: Tensor, values: dict[str, Any]) -> str:
    """Return what stores the outputs of an invocation, in pairs of units, in units or lane by lane."""
    how = "pair" if is_paired(output) else "unit" if output.lanes == UNIT else "lanes"
    return templates.render(f"schedules/gemm_keep_{how}", **values)


def spread(number: str, sizes: Sequence[int]) -> list[str]:
    """Return WGSL expressions of the coordinates, over dimensions of these sizes, of a running number."""
    digits, rest = [], 1
    for position in reversed(range(len(sizes))):
        text = number if rest == 1 else f"{number} / {rest}u"
        digits.append(text if position == 0 else f"({text}) % {sizes[position]}u")
        rest *= sizes[position]
    return digits[::-1]
