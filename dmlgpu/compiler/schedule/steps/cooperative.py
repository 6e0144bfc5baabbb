"""Products by cooperative matrices, the matrix units of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.compiler.plan import Body, Space
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.products import Operand

SIDE = 16
"""Size of the matrices (rows, columns and steps) that a subgroup multiplies."""

BLOCK = 4
"""Number of matrices along rows and columns whose sums a subgroup holds."""

TILE = 2 * BLOCK * SIDE
"""Rows and columns of a workgroup's tile: four subgroups hold a quarter each."""

INVOCATIONS = 256
"""Number of invocations of a workgroup: at least four subgroups of up to 64 lanes."""


@dataclass(frozen=True)
class ScheduledCooperative(KernelStep):
    """A product of float16 with sums of float32, in whole tiles.

    Attributes:
        space: in elements; the sizes of rows and columns are multiples of TILE.
        a, b: the operands, ACROSS or ALONG.
        epilogue, output: packed in units of four along the last dimension, or not at all.
        depth: steps that are in workgroup memory at a time; they divide the inner size.
        side: rows, columns and steps of the matrices.
        block: matrices along rows and columns whose sums a subgroup holds.
        tile: rows and columns of a workgroup's tile.
    """

    space: Space
    a: Operand
    b: Operand
    epilogue: Body
    depth: int
    side: int = SIDE
    block: int = BLOCK
    tile: int = TILE

    template = "schedules/gemm_cooperative"
