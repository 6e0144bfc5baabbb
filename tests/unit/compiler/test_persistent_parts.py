"""Parts of persistent resources that buffers of their own can hold."""

from __future__ import annotations

from dmlgpu.compiler.persistent_parts import PersistentPart, filled_parts
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Copy, KernelSource, Program, RenderedKernel, Slot


def kernel(*slots: Slot, bindings: tuple[int, ...] = (), copy: Copy | None = None) -> RenderedKernel:
    return RenderedKernel("kernel", KernelSource("text"), slots, (1, 1, 1), bindings, copy=copy)


def held(offset: int, size: int) -> Slot:
    return Slot(Role.PERSISTENT, 0, offset, size)


def weight(index: int, size: int) -> Slot:
    return Slot(Role.INPUT, index, 0, size)


def test_each_weight_has_a_part_and_a_range_of_the_initialization_alone_is_passing() -> None:
    program = Program(
        "graph",
        (kernel(held(0, 100), Slot(Role.OUTPUT, 0, 0, 16)), kernel(held(256, 400))),
        (
            kernel(weight(0, 100), held(0, 100), copy=Copy(0, 0, 1, 0, 100)),
            kernel(weight(1, 400), held(768, 400)),
            kernel(held(768, 400), held(256, 400)),
        ),
        persistent_size=1280,
    )
    first, second = filled_parts(program)
    assert first.parts == (PersistentPart(0, 100, is_lasting=True),)
    assert (first.kernels, first.inputs, first.copied_input(program)) == ((0,), (0,), 0)
    assert second.parts == (PersistentPart(256, 656, is_lasting=True), PersistentPart(768, 1168, is_lasting=False))
    assert (second.kernels, second.inputs, second.copied_input(program)) == ((1, 2), (1,), None)


def test_ranges_that_share_a_binding_or_overlap_are_one_part() -> None:
    program = Program(
        "graph",
        (kernel(held(0, 64), held(256, 64), bindings=(0, 0)), kernel(held(512, 600)), kernel(held(768, 64))),
        (
            kernel(weight(0, 64), held(0, 64)),
            kernel(weight(1, 64), held(256, 64)),
            kernel(weight(2, 64), held(512, 600)),
        ),
    )
    first, second = filled_parts(program)
    assert first.parts == (PersistentPart(0, 320, is_lasting=True),)
    assert first.kernels == (0, 1)
    assert second.parts == (PersistentPart(512, 1112, is_lasting=True),)


def test_parts_of_a_weight_follow_each_other() -> None:
    """So that it is uploaded once, and freed before others are."""
    program = Program(
        "graph",
        (kernel(held(0, 64), held(256, 64), held(512, 64)),),
        (
            kernel(weight(0, 64), held(0, 64)),
            kernel(weight(1, 64), held(256, 64)),
            kernel(weight(0, 64), held(512, 64)),
        ),
    )
    assert [group.inputs for group in filled_parts(program)] == [(0,), (0,), (1,)]


def test_keys_are_equal_for_equal_content_at_other_offsets() -> None:
    def program(offset: int, size: int = 64) -> Program:
        return Program("graph", (kernel(held(offset, size)),), (kernel(weight(0, size), held(offset, size)),))

    programs = program(0), program(512), program(0, 128)
    keys = [filled_parts(each)[0].key(each, ["a"]) for each in programs]
    assert keys[0] == keys[1] != keys[2]
    assert filled_parts(programs[0])[0].key(programs[0], ["b"]) != keys[0]
