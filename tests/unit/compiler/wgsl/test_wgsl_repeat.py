"""Repeated steps: kernels are rendered once, slots advance with each iteration."""

from __future__ import annotations

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Allocation, Map, Plan, PlanBinding, PlanTensor, Repeat, Role, Step
from dmlgpu.compiler.program import RenderedKernel, Slot
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render

ANY = Target("Any GPU")
MEMORY = Allocation("state")
INPUT, STATE = PlanBinding(Role.INPUT, 0), PlanBinding(Role.TEMPORARY, MEMORY)


def four(binding: PlanBinding) -> PlanTensor:
    return PlanTensor(binding, DataType.FLOAT32, (4,), (1,))


def copy(source: PlanBinding, output: PlanBinding) -> Map:
    return Map("copy", identity(four(source)), four(output))


def kernels_of(*steps: Step) -> tuple[RenderedKernel, ...]:
    return render(schedule(Plan("TEST", steps), ANY)).kernels


def test_only_advancing_resources_move() -> None:
    before, after = PlanBinding(Role.TEMPORARY, MEMORY, 16), PlanBinding(Role.TEMPORARY, MEMORY, 64)
    step = Repeat("steps", (copy(before, after), copy(INPUT, before)), 3, ((before, 48), (after, -16)))
    other = PlanBinding(Role.TEMPORARY, Allocation("other"))
    kernels = kernels_of(copy(INPUT, other), copy(other, STATE), step)
    start, apart = kernels[1].slots[0].offset, kernels[0].slots[0].offset
    assert {start, apart} == {0, 256}
    assert [kernel.slots for kernel in kernels] == [
        (Slot(Role.TEMPORARY, 0, apart, 16), Slot(Role.INPUT, 0, 0, 16)),
        (Slot(Role.TEMPORARY, 0, start, 16), Slot(Role.TEMPORARY, 0, apart, 16)),
        *(
            slots
            for turn in range(3)
            for slots in (
                (
                    Slot(Role.TEMPORARY, 0, start + 64 - 16 * turn, 16),
                    Slot(Role.TEMPORARY, 0, start + 16 + 48 * turn, 16),
                ),
                (Slot(Role.TEMPORARY, 0, start + 16 + 48 * turn, 16), Slot(Role.INPUT, 0, 0, 16)),
            )
        ),
    ]


def test_results_of_repeated_steps_live_until_the_next_iteration() -> None:
    """The second tensor does not reuse the memory of the first one, although no step of an iteration needs both."""
    first, second = (PlanBinding(Role.TEMPORARY, Allocation(label)) for label in ("one", "other"))
    output = PlanBinding(Role.OUTPUT, 0)
    step = Repeat("steps", (copy(INPUT, first), copy(first, output), copy(INPUT, second), copy(second, output)), 2, ())
    written = {kernel.slots[0] for kernel in kernels_of(step)}
    assert {slot.offset for slot in written if slot.role is Role.TEMPORARY} == {0, 256}


def test_all_iterations_share_their_source() -> None:
    step = Repeat("steps", (copy(INPUT, STATE),), 1000, ((STATE, 16),))
    kernels = kernels_of(step)
    assert len(kernels) == 1000 and len({id(kernel.wgsl) for kernel in kernels}) == 1
    assert {kernel.label for kernel in kernels} == {"test copy x4"}
