"""Bodies and interfaces of the kernels of all quick cases: what bodies may name, and what interfaces must list."""

from __future__ import annotations

import functools
import re

import pytest

from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.compiler.target import Profile
from tests.quick_programs import PROFILES, quick_programs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("rendered kernels")]

_COMMENT = re.compile(r"//[^\n]*")
_SIZE = re.compile(r"\bsizes\.s(\d+)u\b")
_DIVISION = re.compile(r"\b(?:div|mod)_s(\d+)\(")
_BY_SIZE = re.compile(r"[/%]=?\s*\(*(?:bitcast<i32>\()?sizes\.")
"""A division of integers by a size."""

_ENTRY = re.compile(r"@compute[^{]*\{\n(.*)\n")


@functools.cache
def kernels(profile: Profile) -> tuple[tuple[str, RenderedKernel, str], ...]:
    """Return a kernel of each source that reads its sizes, with the name of its case and its body without comments."""
    by_source = {}
    for name, program in quick_programs(profile, specialized=False)[0].items():
        for kernel in (*program.initialization, *program.kernels):
            by_source.setdefault(kernel.source, (name, kernel))
    return tuple((name, kernel, _COMMENT.sub("", kernel.source.body)) for name, kernel in by_source.values())


@pytest.mark.parametrize("profile", PROFILES)
class TestBodies:
    def test_there_are_many(self, profile):
        assert len(kernels(profile)) > 400

    @pytest.mark.parametrize(
        "text", ["@group", "@binding", "params", "Params", "var<storage", "var<uniform", "enable "]
    )
    def test_they_declare_no_binding(self, profile, text):
        assert [name for name, _, body in kernels(profile) if text in body] == []

    def test_they_name_only_arrays_that_they_update_atomically(self, profile):
        named = 0
        for name, kernel, body in kernels(profile):
            buffers = kernel.source.interface.buffers
            atomic = {index for index, buffer in enumerate(buffers) if buffer.block == "atomic<u32>"}
            assert set(map(int, re.findall(r"\bbuffer(\d+)", body))) == atomic, name
            named += len(atomic)
        assert named > 0

    def test_they_call_the_accessors_that_interfaces_list(self, profile):
        for name, kernel, body in kernels(profile):
            for index, buffer in enumerate(kernel.source.interface.buffers):
                calls = f"load{index}(" in body, f"store{index}(" in body
                assert calls == (buffer.loads, buffer.stores), name

    def test_their_sizes_are_declared(self, profile):
        for name, kernel, body in kernels(profile):
            interface = kernel.source.interface
            used = {*map(int, _SIZE.findall(body)), *map(int, _DIVISION.findall(body))}
            assert used == set(range(interface.sizes)), name
            assert len(re.findall(r"\bsizes\b", body)) == len(_SIZE.findall(body)), name
            assert len(kernel.parameters) == interface.sizes + 2 * len(interface.divisors), name

    def test_they_divide_by_sizes_through_functions(self, profile):
        divided = 0
        for name, kernel, body in kernels(profile):
            assert not _BY_SIZE.search(body), name
            assert set(map(int, _DIVISION.findall(body))) == set(kernel.source.interface.divisors), name
            divided += bool(kernel.source.interface.divisors)
        assert divided > 100

    def test_their_entry_points_load_sizes_first(self, profile):
        for name, _, body in kernels(profile):
            (first,) = _ENTRY.findall(body)
            assert first == "    load_sizes();", name
            assert body.count("load_sizes") == 1, name

    def test_kernels_with_barriers_read_sizes_in_place(self, profile):
        seen = set()
        for name, kernel, body in kernels(profile):
            has_barriers = bool(re.search(r"\b(?:workgroup|storage)Barrier\(\)", body))
            assert kernel.source.interface.has_barriers == has_barriers, name
            if kernel.parameters:
                assert ("var<private> sizes" in kernel.wgsl) is not has_barriers, name
                seen.add(has_barriers)
        assert seen == {True, False}

    def test_their_linked_texts_have_every_name_once(self, profile):
        for name, kernel, _ in kernels(profile):
            for text in (kernel.wgsl, kernel.with_constants.wgsl):
                declared = re.findall(r"^(?:fn|struct|alias|const|var<\w+>|@group.*>) (\w+)", text, re.MULTILINE)
                assert len(declared) == len(set(declared)), name
