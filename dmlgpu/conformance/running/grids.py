"""Grids of two dimensions, without tensors so large that an adapter's limit asks for them."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Target


def with_folded_grids(desc: OperatorDesc, target: Target) -> Target:
    """Return a target whose limit on workgroups per dimension is so low that the kernels of an operator get grids with
    a second dimension, where they have two workgroups or more that lie in a row; the same target where none has.

    Raises:
        NotSupported: when the adapter lacks what the operator needs, whatever the limit.
    """
    groups = max((math.prod(grid) for grid in grids(compile_operator(desc, target))), default=1)
    limit = math.isqrt(groups - 1) + 1 if groups else 1
    while limit < target.max_workgroups_per_dimension:
        lowered = replace(target, max_workgroups_per_dimension=limit)
        try:
            if all(max(grid) <= limit for grid in grids(compile_operator(desc, lowered))):
                return lowered
        except NotSupported:
            pass  # another kernel needs more
        limit += 1
    return target


def grids(program: Program) -> tuple[tuple[int, int, int], ...]:
    """Return the grids of all kernels."""
    return tuple(kernel.grid for kernel in (*program.initialization, *program.kernels))
