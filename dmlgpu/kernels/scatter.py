"""Scatters: in which units, and in which steps so that the order of invocations does not show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import WIDEST_UNIT_BITS, pack_tensor, packs_tensor
from dmlgpu.plan import Constants, Element, Map, Scatter, ScatterSchedule, Step, Tensor
from dmlgpu.target import Target


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


def scatter_steps(given: Scattering, target: Target) -> tuple[Step, ...]:
    """Return the steps of a scatter over an output that is already filled.

    Deterministic devices first mark the last update of each element.
    """
    given = _packed(given)

    def step(label: str, result: Tensor, schedule: ScatterSchedule, *marks: tuple[str, Tensor]) -> Scatter:
        inputs = (("indices", given.indices), *marks)
        return Scatter(label, given.file, given.updates, inputs, result, schedule, given.constants)

    if not target.deterministic:
        return (step("scatter", given.output, ScatterSchedule.STORE),)
    sizes = given.output.sizes
    marks = Tensor.temporary("marks", DataType.UINT32, sizes)
    return (
        Map("clear marks", Element("layout/zero", DataType.UINT32, sizes), marks),
        step("mark", marks, ScatterSchedule.MARK),
        step("scatter marked", given.output, ScatterSchedule.STORE_MARKED, ("marks", marks)),
    )


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
