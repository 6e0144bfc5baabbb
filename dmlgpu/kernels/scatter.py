"""Scatters: in which units, and in which steps so that the order of invocations does not show."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import WIDEST_UNIT_BITS, pack_tensor, packs_tensor
from dmlgpu.plan import Binding, Body, Constants, Map, Role, Scatter, ScatterSchedule, Step, Tensor
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides


@dataclass(frozen=True)
class Scattering:
    """A scatter as an operator describes it.

    Attributes:
        file: the shader with ``place`` (see ``plan.Scatter``).
        updates, indices, output: the tensors; updates and output are moved as raw bits.
        constants: values for the shader.
        follows: for each dimension of the updates, the one of the output that moves with it one to one, whatever the
            indices say; None where there is none.
    """

    file: str
    updates: Tensor
    indices: Tensor
    output: Tensor
    constants: Constants
    follows: tuple[int | None, ...]


def scatter_steps(given: Scattering, target: Target, *, temporary: int = 0) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The steps of a scatter over an output that is already filled, and the sizes in bytes of their temporaries.

    Deterministic devices first mark the last update of each place.

    Args:
        temporary: the place in the plan of the first temporary tensor that the steps may use.
    """
    given = _packed(given)

    def step(label: str, result: Tensor, schedule: ScatterSchedule, *marks: tuple[str, Tensor]) -> Scatter:
        inputs = (("indices", given.indices), *marks)
        return Scatter(label, given.file, given.updates, inputs, result, schedule, given.constants)

    if not target.deterministic:
        return (step("scatter", given.output, ScatterSchedule.STORE),), ()
    sizes = given.output.sizes
    marks = Tensor(Binding(Role.TEMPORARY, temporary), DataType.UINT32, sizes, packed_strides(sizes))
    steps = (
        Map("clear marks", Body("layout/zero", DataType.UINT32, sizes), marks),
        step("mark", marks, ScatterSchedule.MARK),
        step("scatter marked", given.output, ScatterSchedule.STORE_MARKED, ("marks", marks)),
    )
    return steps, (4 * math.prod(sizes),)


def _packed(given: Scattering) -> Scattering:
    """The same scatter in the widest units that updates and output have along a dimension that both go through."""
    updates, output, bits = given.updates, given.output, given.output.data_type.bits
    for dimension, followed in enumerate(given.follows):
        lanes = WIDEST_UNIT_BITS // bits
        while followed is not None and output.sizes[followed] > 1 and lanes > 1:
            if packs_tensor(updates, dimension, lanes) and packs_tensor(output, followed, lanes):
                packed = pack_tensor(updates, dimension, lanes), pack_tensor(output, followed, lanes)
                return replace(given, updates=packed[0], output=packed[1])
            lanes //= 2
    return given
