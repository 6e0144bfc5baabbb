"""Helpers that read the sources of kernels."""

from __future__ import annotations

from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, RenderedKernel, Slot
from tests.kernel_sources import with_values, written_bindings


def kernel(body: str, *parameters: int, buffers: int = 1, bindings: tuple[int, ...] = ()) -> RenderedKernel:
    interface = Interface((BufferInterface("u32", "u32"),) * buffers)
    slots = (Slot(Role.INPUT, 0, 0, 4),) * buffers
    return RenderedKernel("k", KernelSource(body, interface), slots, (1, 1, 1), bindings, parameters)


def test_values_are_literals():
    body = "x = sizes.s1u + sizes.s10u; y = bitcast<i32>(sizes.s0u) * bitcast<f32>(sizes.s2u);"
    values = (2**32 - 3, 7, 0x3F000000, *range(7), 99)
    assert with_values(kernel(body, *values)) == "x = 7u + 99u; y = -3i * 0.5f;"


def test_divisions_are_operators():
    assert with_values(kernel("x = mod_s1(div_s0((a + b) * c) + 1u);", 4, 6)) == "x = (a + b) * c / 4u + 1u % 6u;"


def test_written_bindings_are_those_of_stores_and_atomics():
    body = "store2(0u, load1(0u)); atomicMax(&buffer3[0], 1u); atomicLoad(&buffer0[0]);"
    assert written_bindings(kernel(body, buffers=4)) == {2, 3}
    assert written_bindings(kernel(body, buffers=4, bindings=(0, 1, 0, 2))) == {0, 2}
