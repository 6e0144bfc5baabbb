"""Tint and Dawn take the kernels of the quick profile's cases, under the schedules for CPUs and for GPUs.

The numbers of cases are printed with ``-s``.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from dmlgpu.compiler.aliasing import OFFSET_ALIGNMENT, layout, with_bindings
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.suites.graphs import GraphSuite, example
from dmlgpu.runtime.rendered import excerpt
from tests.quick_programs import PROFILES, STANDARD, packed, quick_programs

pytestmark = [pytest.mark.usefixtures("facts"), pytest.mark.xdist_group("chromium")]  # it is started once

SHARE = 48
"""Of how many kernels one becomes a pipeline too, which takes SwiftShader 0.2 s; all do with ``--profile full``."""

MODULES = """sources => Promise.all(sources.map(async code => {
    const information = await device.createShaderModule({code}).getCompilationInfo();
    return information.messages.filter(each => each.type == 'error').map(each => [each.lineNum, each.message]);
}))"""
PIPELINES = """kernels => Promise.all(kernels.map(async ([code, bindings]) => {
    device.pushErrorScope('validation');
    const compute = {module: device.createShaderModule({code}), entryPoint: 'main'};
    const made = device.createComputePipelineAsync({layout: layoutOf(bindings)[1], compute});
    const refusal = device.popErrorScope();
    return made.then(() => refusal).then(error => error?.message ?? '', error => error.message);
}))"""


def kernels(profile: Profile) -> dict[tuple[str, int], tuple[str, RenderedKernel]]:
    """The kernels of a profile by text and number of bindings, and a case that has each."""
    by_source: dict[tuple[str, int], tuple[str, RenderedKernel]] = {}
    for name, program in quick_programs(profile)[0].items():
        for kernel in (*program.initialization, *program.kernels):
            by_source.setdefault((kernel.wgsl, kernel.binding_count), (name, kernel))
    return by_source


def batches(items, size: int) -> Iterator[list]:
    iterator = iter(items)
    return iter(lambda: list(itertools.islice(iterator, size)), [])


def faults(page: Any, texts: Iterable[str]) -> list[str]:
    """What Tint refuses, with the lines around it."""
    complaints = []
    for batch in batches(texts, 32):
        for text, messages in zip(batch, page.evaluate(MODULES, batch), strict=True):
            complaints += [f"{message}\n{excerpt(text, line)}" for line, message in messages[:1]]
    return complaints


@pytest.mark.parametrize("profile", PROFILES)
def test_tint_takes_the_text(page, profile):
    texts = {text for text, _ in kernels(profile)}
    assert len(texts) > 700
    assert not (refused := faults(page, texts)), "\n".join(refused)


@pytest.mark.parametrize("profile", PROFILES)
def test_tint_takes_kernels_that_read_sizes(page, profile):
    programs, _ = quick_programs(profile, specialized=False)
    rendered = [kernel for program in programs.values() for kernel in (*program.initialization, *program.kernels)]
    texts, constant = (
        {kernel.wgsl for kernel in each} for each in (rendered, [each.with_constants for each in rendered])
    )
    assert 400 < len(texts) < len(constant)
    assert not (refused := faults(page, texts | constant)), "\n".join(refused)


@pytest.mark.parametrize("profile", PROFILES)
def test_tint_takes_the_kernels_of_graphs(page, profile):
    """What is fused, in the quick cases of the suite ``graphs``."""
    texts = set()
    for name in GraphSuite().names("quick"):
        program = compile_network(resolve(example(name).graph), STANDARD[profile]).program
        texts |= {kernel.wgsl for kernel in (*program.initialization, *program.kernels)}
    assert len(texts) > 50
    assert not (refused := faults(page, texts)), "\n".join(refused)


@pytest.mark.parametrize("profile", PROFILES)
def test_tint_takes_kernels_whose_slots_share_bindings(page, profile):
    """All tensors in one buffer, close to each other: blocks of different widths come to lie in one binding."""
    texts = set()
    for program in quick_programs(profile)[0].values():
        place = packed(program)
        for kernel in program.kernels:
            ranges = [(place(slot)[0], place(slot)[1] + slot.offset, slot.size) for slot in kernel.slots]
            bindings = layout(ranges, kernel.bindings, OFFSET_ALIGNMENT).bindings
            texts |= {with_bindings(program.operator, kernel, bindings).wgsl} - {kernel.wgsl}
    assert len(texts) > 300
    assert any("atomicLoad(&buffer" in text for text in texts)
    assert not (refused := faults(page, texts)), "\n".join(refused)


@pytest.mark.parametrize("profile", PROFILES)
def test_dawn_makes_pipelines(page, profile, request):
    """The layout is explicit, so that bindings and workgroup memory are checked against it and the limits."""
    remaining = kernels(profile)
    if request.config.getoption("--profile") != "full":
        remaining = {key: value for key, value in remaining.items() if zlib.crc32(key[0].encode()) % SHARE == 0}
    refusals = {}
    for keys in batches(remaining, 8):
        for key, refusal in zip(keys, page.evaluate(PIPELINES, list(map(list, keys))), strict=True):
            if refusal:
                refusals[f"{remaining[key][0]}: {remaining[key][1].label}"] = refusal
    assert len(remaining) > 10
    assert not refusals


@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_browser_lacks_is_named(profile):
    programs, refusals = quick_programs(profile)
    print(f"{profile}: {len(programs)} of {len(programs) + len(refusals)} cases have kernels for a browser")
    assert all(re.search(r"needs the adapter feature shader-\w+", refusal) for refusal in refusals.values())
    assert len(refusals) < 5
