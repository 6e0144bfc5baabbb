"""Which kernels get constants under ``auto``."""

from __future__ import annotations

from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel
from dmlgpu.runtime.specialization import Specialize, Specializer


def kernel(body: str, *parameters: int, varies: bool = False) -> RenderedKernel:
    """Return a kernel that binds nothing."""
    return RenderedKernel(body, KernelSource(body), (), (1, 1, 1), parameters=parameters, varies=varies)


def special(specializer: Specializer, *kernels: RenderedKernel) -> list[bool]:
    """Return which kernels of a program get constants."""
    return [each.is_special for each in specializer.specialized(Program("X", kernels)).kernels]


def test_kernels_whose_sizes_vary_are_shared_and_others_get_constants() -> None:
    specializer = Specializer(Specialize.AUTO)
    for batch in (1, 3):
        assert special(specializer, kernel("rows", batch, 8, varies=True), kernel("weights", 8)) == [False, True]


def test_a_source_that_varies_once_never_gets_constants() -> None:
    specializer = Specializer(Specialize.AUTO)
    assert special(specializer, kernel("rows", 3, varies=True), kernel("rows", 8)) == [False, False]
    assert special(specializer, kernel("rows", 8)) == [False]


def test_a_source_with_several_sizes_never_gets_constants() -> None:
    specializer = Specializer(Specialize.AUTO)
    assert special(specializer, kernel("rows", 3), kernel("rows", 4)) == [False, False]
    assert special(specializer, kernel("rows", 3)) == [False]


def test_other_policies_change_nothing() -> None:
    for policy in (Specialize.NEVER, Specialize.ALWAYS):
        assert special(Specializer(policy), kernel("rows", 3)) == [False]
