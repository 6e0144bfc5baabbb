"""Bindings of kernels as data: no two of a dispatch overlap, for all offsets of tensors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.aliasing import (
    OFFSET_ALIGNMENT,
    BindingLayout,
    known_bindings,
    layout,
    share_known,
    with_bindings,
)
from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from tests.quick_programs import PROFILES, STANDARD, Place, packed

INPUT, OUTPUT, TEMPORARY = Role.INPUT, Role.OUTPUT, Role.TEMPORARY
ARRAY = re.compile(r"var<storage, read_write> (\w+)")


# ---- ranges


@pytest.mark.parametrize(
    ("ranges", "known", "expected"),
    [
        ([("a", 0, 64), ("b", 0, 64)], (), BindingLayout((), [("a", 0, 64), ("b", 0, 64)], (0, 0))),
        ([("a", 272, 64), ("b", 240, 8)], (), BindingLayout((), [("a", 256, 80), ("b", 0, 248)], (4, 60))),
        ([("a", 0, 256), ("a", 256, 64)], (), BindingLayout((), [("a", 0, 256), ("a", 256, 64)], (0, 0))),
        ([("a", 0, 64), ("a", 0, 64)], (), BindingLayout((0, 0), [("a", 0, 64)], (0, 0))),
        ([("a", 0, 64), ("a", 64, 64)], (), BindingLayout((0, 0), [("a", 0, 128)], (0, 16))),
        (
            [("a", 304, 64), ("b", 0, 4), ("a", 256, 16)],
            (),
            BindingLayout((0, 1, 0), [("a", 256, 112), ("b", 0, 4)], (12, 0, 0)),
        ),
        # Two that lie apart meet through a third one.
        ([("a", 0, 260), ("a", 600, 64), ("a", 256, 300)], (), BindingLayout((0, 0, 0), [("a", 0, 664)], (0, 150, 64))),
        # What the kernel is rendered for stays, and what lies between it belongs to it.
        ([("a", 0, 4), ("a", 512, 4)], (0, 0), BindingLayout((0, 0), [("a", 0, 516)], (0, 128))),
        (
            [("a", 0, 4), ("a", 256, 4), ("a", 512, 4)],
            (0, 1, 0),
            BindingLayout((0, 0, 0), [("a", 0, 516)], (0, 64, 128)),
        ),
    ],
)
def test_overlapping_ranges_are_bound_once(ranges, known, expected):
    assert layout(ranges, known, 256) == expected


def test_a_smaller_alignment_separates_adjacent_ranges():
    ranges = [("a", 0, 32), ("a", 32, 32)]
    assert layout(ranges, (), 32).bindings == ()
    assert layout(ranges, (), 64).bindings == (0, 0)


@pytest.mark.parametrize(
    ("slots", "bindings"),
    [
        ([(INPUT, 0, 0, 64), (INPUT, 0, 0, 64)], (0, 0)),
        ([(INPUT, 0, 0, 64), (INPUT, 1, 0, 64)], ()),
        ([(INPUT, 0, 0, 64), (OUTPUT, 0, 0, 64)], ()),  # in place: only the resources will tell
        ([(TEMPORARY, 0, 0, 256), (TEMPORARY, 0, 256, 64)], ()),
        ([(TEMPORARY, 0, 0, 64), (TEMPORARY, 0, 240, 64)], (0, 0)),
        ([(OUTPUT, 0, 0, 256), (OUTPUT, 0, 480, 64)], (0, 0)),  # wherever the output begins: perhaps at byte 32
        ([(OUTPUT, 0, 0, 256), (OUTPUT, 0, 496, 64)], ()),
    ],
)
def test_ranges_that_overlap_at_every_resource_offset(slots, bindings):
    assert known_bindings([Slot(*slot) for slot in slots]) == bindings


# ---- kernels


def kernel(*blocks: str) -> RenderedKernel:
    """Return a kernel that reads blocks of some types."""
    buffers = tuple(BufferInterface(block, block) for block in blocks)
    slots = tuple(Slot(INPUT, index, 0, 64) for index in range(len(blocks)))
    return RenderedKernel("k", KernelSource("", Interface(buffers)), slots, (1, 1, 1))


def test_slots_that_share_a_binding_share_an_array():
    separate = kernel("u32", "u32", "u32")
    shared = with_bindings("TEST", separate, (0, 1, 0))
    assert separate.binding_count == 3 and shared.binding_count == 2
    assert ARRAY.findall(separate.wgsl) == ["buffer0", "buffer1", "buffer2"]
    assert ARRAY.findall(shared.wgsl) == ["buffer0", "buffer1"]
    assert "fn load2(at: u32) -> u32 { return buffer0[at]; }" in shared.wgsl
    assert with_bindings("TEST", shared, (0, 1, 0)) is shared
    assert with_bindings("TEST", shared, ()) == separate


def test_blocks_without_common_size_are_rejected():
    with pytest.raises(NotSupported) as caught:
        with_bindings("TEST", kernel("f64", "u32", "u32"), (0, 0, 1))
    assert str(caught.value) == "TEST: kernel 'k': overlapping ranges must have accessors of one type, got f64 and u32"


def test_slots_of_a_kernel_without_an_interface_are_rejected():
    with_interface = kernel("u32", "u32")
    handwritten = replace(with_interface, source=KernelSource(with_interface.wgsl))
    assert with_bindings("TEST", handwritten, ()) is handwritten
    with pytest.raises(NotSupported, match=r"^TEST: kernel 'k': overlapping ranges need an interface, by which"):
        with_bindings("TEST", handwritten, (0, 0))


def test_slots_whose_ranges_always_overlap_share():
    first, second = kernel("u32", "u32"), kernel("u32", "u32")
    same = replace(first, slots=(Slot(INPUT, 0, 0, 64), Slot(INPUT, 0, 16, 64)))
    program = share_known(Program("TEST", (same, second), (same,)))
    assert [each.bindings for each in program.kernels] == [(0, 0), ()]
    assert program.initialization[0].bindings == (0, 0)


# ---- cases


def names_of(cases: OperatorCases, profile: str | None) -> tuple[str, ...]:
    """Return the case names of the quick profile, or all standard ones for other profiles."""
    return cases.names("quick" if profile in (None, "quick") else "standard")


def apart(slot: Slot) -> tuple[object, int]:
    """Place every tensor in its own buffer, at the maximum offset from a multiple of the alignment."""
    return (slot.role, slot.index), 0 if slot.role in (Role.TEMPORARY, Role.PERSISTENT) else OFFSET_ALIGNMENT - 16


def in_place(slot: Slot) -> tuple[object, int]:
    """Place the first output in the memory of the first input."""
    return ((INPUT, 0), 240) if slot.role is OUTPUT and slot.index == 0 else apart(slot)


def bound(kernel: RenderedKernel, place: Place) -> BindingLayout:
    """Return a kernel's layout after checking it."""
    ranges = [(place(slot)[0], place(slot)[1] + slot.offset, slot.size) for slot in kernel.slots]
    shared = layout(ranges, kernel.bindings, OFFSET_ALIGNMENT)
    for (_, start, size), (_, other, other_size) in (
        pair for pair in itertools.combinations(shared.bound, 2) if pair[0][0] == pair[1][0]
    ):
        assert start + size <= other or other + other_size <= start
    numbers = shared.bindings or range(len(ranges))
    for (resource, start, size), binding, base in zip(ranges, numbers, shared.bases, strict=True):
        held, begin, length = shared.bound[binding]
        assert (held, begin % OFFSET_ALIGNMENT, begin + 4 * base) == (resource, 0, start)
        assert start + size <= begin + length
    assert len(shared.bound) == max(numbers, default=-1) + 1
    return shared


def programs(stem: str, profile: str) -> Iterator[tuple[str, Program]]:
    for family, name in itertools.product(PROFILES, names_of(OPERATOR_CASES[stem], profile)):
        try:
            yield name, compile_operator(OPERATOR_CASES[stem].case(name).desc, STANDARD[family])
        except NotSupported:
            continue


@pytest.mark.parametrize("stem", OPERATOR_CASES)
def test_no_two_bindings_of_a_case_overlap(stem, request):
    """Programs have the overlaps of separate resources; for others, kernels are rendered with shared bindings."""
    for name, program in programs(stem, request.config.getoption("--profile")):
        kernels = {*program.initialization, *program.kernels}
        for kernel in kernels:
            assert bound(kernel, apart).bindings == kernel.bindings, name
            for place in (packed(program), *([in_place] if OPERATOR_CASES[stem].schema.in_place else [])):
                expected = bound(kernel, place).bindings
                text = with_bindings(program.operator, kernel, expected).wgsl
                declared = ARRAY.findall(text)
                assert len(declared) == (max(expected) + 1 if expected else len(kernel.slots)), name
                assert set(re.findall(r"\bbuffer\w+", text)) == set(declared), name


def test_time_steps_share_their_states():
    """A step reads the state that the previous one wrote, 128 bytes away in the same temporary resource."""
    from tests.networks import network

    program = compile_operator(network("RNN"), Target("Any GPU", Profile.CPU))
    assert any(kernel.bindings for kernel in program.kernels)
    assert len({kernel.wgsl for kernel in program.kernels}) < len(program.kernels)


def test_an_input_read_in_two_widths_is_bound_once():
    case = case_by_name("upsample_2d-float32-1x2x65x64-packed-s0")
    (kernel,) = compile_operator(case.desc, Target("Any GPU")).kernels
    assert kernel.bindings == (0, 1, 1)
    assert kernel.binding_count == 2
