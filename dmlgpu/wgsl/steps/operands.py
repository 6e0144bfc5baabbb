"""What products and attention share: how operands are read, and what coordinates running numbers stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import UNIT
from dmlgpu.plan import Tensor
from dmlgpu.schedule.steps import Form, Operand
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.types import scalar_of, vector

_FETCH = {
    Form.ACROSS: ("gemm_across", "gemm_block"),
    Form.ALONG: ("gemm_along",),
    Form.SINGLE: ("gemm_single", "gemm_block"),
}
"""The files that give the units of one step, and those of four."""


def operand(
    builder: Builder, name: str, operand: Operand, *, inner: int, width: int, accumulator: DataType, by_four: bool
) -> str:
    """Return the accessor of an operand, and the units that tiles are made of.

    Args:
        name: of the operand.
        inner: number of inner dimensions.
        width: of the units.
        accumulator: the type of their numbers.
        by_four: units of four steps along the inner dimension too.
    """
    lanes = UNIT if operand.form is Form.ACROSS else 1
    names = [f"k{dimension}" for dimension in range(inner)]
    values: dict[str, Any] = {
        "name": name,
        "unit_t": vector(scalar_of(accumulator, builder.target, portable=True), width),
        "width": width,
        "count": math.prod(operand.own),
        "batch_digits": spread("batch", operand.batch),
        "own_digits": spread("own", (*operand.own[:-1], operand.own[-1] // lanes)),
        "own_at": operand.own_at,
        "inner_at": operand.inner_at,
        "inner_steps": [*names[:-1], names[-1] + (" / 4u" if operand.form is Form.ALONG else "")],
        "parameters": ", ".join(f"{name}: u32" for name in names),
        "arguments": ", ".join(names),
    }
    text = builder.source(name, operand.source, raw=False, portable=True)
    text += templates.render("schedules/gemm_operand", **values)
    files = _FETCH[operand.form][: 2 if by_four else 1]
    return text + "".join(templates.render(f"schedules/{file}", **values) for file in files)


def keep(output: Tensor, values: dict[str, Any]) -> str:
    """Return what stores the outputs of an invocation, in units or lane by lane."""
    return templates.render(f"schedules/gemm_keep_{'unit' if output.lanes == UNIT else 'lanes'}", **values)


def spread(number: str, sizes: Sequence[int]) -> list[str]:
    """Return WGSL expressions of the coordinates, over dimensions of these sizes, of a running number."""
    found, rest = [], 1
    for position in reversed(range(len(sizes))):
        text = number if rest == 1 else f"{number} / {rest}u"
        found.append(text if position == 0 else f"({text}) % {sizes[position]}u")
        rest *= sizes[position]
    return found[::-1]
