"""Steps that are repeated: kernels are rendered once, slots move from turn to turn."""

from __future__ import annotations

from dmlgpu import wgsl
from dmlgpu.enums import DataType
from dmlgpu.kernels.sources import identity
from dmlgpu.plan import Binding, Map, Plan, Repeat, Role, Tensor
from dmlgpu.program import Slot
from dmlgpu.target import Target

ANY = Target("Any GPU")
INPUT, STATE = Binding(Role.INPUT, 0), Binding(Role.TEMPORARY, 1)


def four(binding: Binding) -> Tensor:
    return Tensor(binding, DataType.FLOAT32, (4,), (1,))


def copy(source: Binding, output: Binding) -> Map:
    return Map("copy", identity(four(source)), four(output))


def test_what_advances_moves_and_the_rest_stays() -> None:
    before, after = Binding(Role.TEMPORARY, 1, 16), Binding(Role.TEMPORARY, 1, 64)
    step = Repeat("steps", (copy(before, after), copy(INPUT, before)), 3, ((before, 48), (after, -16)))
    kernels = wgsl.render(Plan("TEST", (copy(INPUT, STATE), step), (300, 400)), ANY).kernels
    start = 512  # of the second temporary tensor
    assert [kernel.slots for kernel in kernels] == [
        (Slot(Role.TEMPORARY, 0, start, 16), Slot(Role.INPUT, 0, 0, 16)),
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


def test_all_turns_share_their_text() -> None:
    step = Repeat("steps", (copy(INPUT, STATE),), 1000, ((STATE, 16),))
    kernels = wgsl.render(Plan("TEST", (step,), (16, 16000)), ANY).kernels
    assert len(kernels) == 1000 and len({id(kernel.wgsl) for kernel in kernels}) == 1
    assert {kernel.label for kernel in kernels} == {"test copy x4"}
