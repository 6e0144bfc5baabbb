"""The suite ``driver`` on every adapter: a sample passes, and planted faults are detected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu.conformance.running import expectations
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.driver import facts
from dmlgpu.conformance.suites.driver.suite import DriverSuite
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.measured import Probe
from dmlgpu.runtime.wgpu.probes import FLOAT16

SUITE = DriverSuite()
KNOWN = tuple(entry for path in expectations.BUILT_IN for entry in expectations.load(path))
NAMES = (
    "driver-f32-exp-1024",
    "driver-f32-normalize3-64",
    "driver-f32-determinant4-64",
    "driver-u32-divide_constant-1024",
    "driver-f32-pack2x16float-1024",
    "driver-flow-loop_sum",
    "driver-flow-variables_zeroed",
    "driver-memory-atomic-compare_exchange",
    "driver-memory-workgroup-scan",
    "driver-memory-bounds-write",
    "driver-probe-division-native",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_passes(backend: GpuBackend, name: str) -> None:
    outcome = expectations.with_expectation(SUITE.run(name, Device.from_backend(backend)), backend.info, KNOWN)
    assert outcome.status.is_good, outcome


FAULTS = {
    "exp too rough": ("driver-f32-exp-1024", "exp(x)", "exp(x * f32(1.00001))"),
    "round half up": ("driver-f32-round_ties-1024", "round(", "floor(f32(0.5) + "),
    "one lane of each vector": (
        "driver-f32-sqrt-1024",
        "of_vectors(vec4<f32>(",
        "of_vectors(vec4<f32>(1.0, 1.0, 1.0, 1.1) * (",
    ),
    "top byte unsigned": ("driver-u32-dot4I8Packed-1024", "dot4I8Packed(x, y)", "i32(dot4U8Packed(x, y))"),
    "quotient by reciprocal": ("driver-u32-divide-1024", "x / y", "u32(f32(x) * (1.0 / f32(max(y, 1u))))"),
    "arithmetic shift": ("driver-u32-shift_constant-1024", "(x >> 16u)", "u32(i32(x) >> 16u)"),
    "signed comparison": ("driver-u32-less-1024", "x < y", "i32(x) < i32(y)"),
    "loops of 65,535 rounds": ("driver-flow-loop_for", "i < x", "i < min(x, 65535u)"),
    "a round lost": ("driver-flow-loop_divergent", "i < x * x", "i < x * x - u32(x > 8u)"),
    "the last workgroup": ("driver-memory-grid-1d", "at < arrayLength(&results)", "at < arrayLength(&results) - 32u"),
    "every 1024th store": ("driver-memory-grid-2d", "at < arrayLength(&results)", "at % 1024u != 1023u"),
    "subtraction": ("driver-memory-atomic-u32-add", "atomicAdd(&shared_word, x)", "atomicSub(&shared_word, x)"),
    "a lost update": ("driver-memory-atomic-compare_exchange", "old + 1u", "old + select(1u, 2u, old == 77u)"),
    "an inner barrier": ("driver-memory-workgroup-uniform_branch", "me ^ 1u", "me"),
    "a written guard": ("driver-memory-bounds-write", "zeros[at] = at", "before[at % 64u] = at"),
    "shifts by 32 and more give 0": ("driver-u32-shift_left_any-1024", "x << u32(y)", "select(x << y, 0u, y > 31u)"),
    "INT_MIN / -1 is 0": ("driver-i32-divide_minus_1-1024", "x / y", "select(x / y, 0i, x == -2147483647i - 1i)"),
    "the first of three conditions": ("driver-u32-select_vector-1024", "vec3<u32>(x, x, y) <", "vec3<u32>(x) <"),
    "workgroup memory of 8 KiB": ("driver-memory-workgroup-large", "- 256u * k]", "- 256u * (k % 8u)]"),
    "seven buffers": ("driver-memory-buffer-eight", "words6[id.x]", "words5[id.x]"),
    "new values of atomics": ("driver-memory-atomic-u32-old_values", "x & 255);", "x & 255) | (x & 255);"),
    "vectors of 12 bytes": (
        "driver-memory-layout-vectors_of_three",
        ".vectors[i][j]",
        ".vectors[(3u * i + j) / 4u][j]",
    ),
    "jump tables of 32 entries": ("driver-flow-switch_dense", "switch x {", "switch x % 32u {"),
    "signed overflow never happens": ("driver-flow-signed_overflow", "u32(a + 1 > a)", "1u"),
    "signed counters": ("driver-flow-loop_beyond_2_31", "i < 2147483600u + x", "i32(i) < i32(2147483600u + x)"),
    "a copy that is its original": (
        "driver-flow-call_copies",
        "b.words[x % 3u] = 100u;",
        "a.words[x % 3u] = 100u; b = a;",
    ),
    "arguments by reference": ("driver-flow-call_copies", "let c = changed(a);", "a = changed(a); let c = a;"),
    "private arrays of 1 KiB": ("driver-flow-arrays_large", "% 512u]", "% 256u]"),
    "constant tables of 32 words": ("driver-flow-arrays_constant", "table[x % 48u]", "table[x % 32u]"),
    "values of private variables": ("driver-flow-variables_initialized", "u32 = 17u", "u32"),
    "the divisor of the first lane": (
        "driver-i32-divide_vector-1024",
        "vec3<i32>(x, y, z) / vec3<i32>(y, z, x)",
        "vec3<i32>(x, y, z) / vec3<i32>(y)",
    ),
    "the shift of the first lane": ("driver-u32-shift_vector-1024", "vec3<u32>(3u, 17u", "vec3<u32>(3u, 3u"),
    "stores to different places": (
        "driver-memory-buffer-overlapping",
        "results[first] = results[first] * 100u",
        "results[first] = 11u * 100u",
    ),
    "rounds of a loop at once": (
        "driver-memory-buffer-overlapping",
        "results[i + 3u] ^= results[i];",
        "results[i + 3u] ^= select(results[i], 11u, i % 8u == 4u);",
    ),
    "vectors of 16 bytes": (
        "driver-memory-layout-written_parts",
        "(*row).vector = vec3<u32>(x, x + 1u, x + 2u);",
        "(*row).vector = vec3<u32>(x, x + 1u, x + 2u); (*row).one = 0u;",
    ),
    "new values of atomics in workgroup memory": (
        "driver-memory-atomic-i32-old_values_workgroup",
        "13 * atomicAdd(place, x)",
        "13 * (atomicAdd(place, x) + x)",
    ),
    "groups beyond 32,767": (
        "driver-memory-grid-2d_most",
        "at < arrayLength(&results)",
        "at < arrayLength(&results) && group.y < 32768u",
    ),
    "the first component": ("driver-flow-vectors_indexed", "v[x % 4u] +=", "v[(x % 4u) / 2u] +="),
}
"""Name of a case, text of its kernel, and what a faulty compiler makes of it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_detected(backend: GpuBackend, fault: str) -> None:
    name, text, faulty = FAULTS[fault]
    make = SUITE.case(name)
    assert make is not None
    case = make()
    assert text in case.source
    device = Device.from_backend(backend)
    source = case.source.replace(text, faulty, 1)
    verdict = replace(case, source=source).run(name, device)
    assert not verdict.ok and verdict.wrong, fault


def test_lanes_without_an_invocation_are_detected(backend: GpuBackend) -> None:
    if "subgroup" not in backend.info.features:
        pytest.skip("the adapter has no subgroups")
    name = "driver-subgroup-partial_add"
    make = SUITE.case(name)
    assert make is not None
    case = make()
    faulty = case.source.replace("subgroupAdd(x)", "(subgroupAdd(x) + u32(subgroupAdd(1u) < size))")
    assert faulty != case.source
    verdict = replace(case, source=faulty).run(name, Device.from_backend(backend))
    assert not verdict.ok and 0 < verdict.wrong < verdict.elements


def test_a_fact_that_does_not_hold_fails_unless_kernels_avoid_it(
    backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, name = Device.from_backend(backend), "driver-probe-float16-pack"
    wrong = replace(FLOAT16, measure=lambda device: frozenset())

    def status(probe: Probe) -> Status:
        monkeypatch.setattr(facts, "fact_cases", lambda: {"probe-float16-pack": (probe, "pack")})
        outcome = SUITE.run(name, device)
        assert outcome.seconds > 0
        return outcome.status

    assert status(replace(wrong, assumed={backend.info.kind: ()})) is Status.EXPECTED_FAIL
    assert status(replace(wrong, assumed={backend.info.kind: ("pack",)})) is Status.FAIL
    assert status(replace(wrong, measure=lambda device: frozenset({"pack"}))) is Status.PASS
