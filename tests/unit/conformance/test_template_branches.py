"""Every branch of the templates in shaders/ is rendered by a quick case, or listed with the test that runs it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Division, Float16Conversions, Float16Encoding, Policies, Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.mutation.suite import shaders
from dmlgpu.conformance.suites.attributes import AttributeSuite
from dmlgpu.conformance.suites.graphs import GraphSuite, example
from dmlgpu.conformance.suites.hazards import HazardSuite
from dmlgpu.conformance.suites.special_values import HalvesSuite
from tests.template_branches import FILE, Branch, recorded_branches

ROOT = Path(__file__).parents[3]
LIST = Path(__file__).with_name("template_branches.toml")

FEATURES = frozenset({"immediates", "shader-f16", "shader-f64", "shader-int64", "subgroup"})
LLVMPIPE = Target(
    "llvmpipe",
    Profile.CPU,
    FEATURES,
    subgroup_lanes=8,
    division=Division.NATIVE,
    max_storage_buffers=48,
    max_workgroup_invocations=1024,
    max_workgroup_storage=32768,
)
H100 = Target(
    "NVIDIA H100 80GB HBM3",
    Profile.DISCRETE,
    FEATURES,
    subgroup_lanes=32,
    float16=Float16Conversions(True, Float16Encoding.F16),
    division=Division.FUSED,
    max_storage_buffers=64,
    max_workgroup_invocations=1024,
    max_workgroup_storage=49152,
    policies=Policies(checked=False),
)
TARGETS = (
    LLVMPIPE,
    replace(LLVMPIPE, profile=Profile.DISCRETE),
    H100,
    Target("a browser", Profile.CPU),
    Target("a browser", Profile.DISCRETE),
)
"""Adapters that ``dmlgpu test`` runs on, with the schedules for CPUs and for GPUs."""


@dataclass(frozen=True)
class Entry:
    """Branches that no quick case renders.

    Attributes:
        file: The template.
        reason: Why there is no quick case.
        branches: Their kinds and the beginnings of their lines, such as ``true: # if causal``; empty for all branches
            of a file that no quick case renders.
        test: The test that renders them; empty if no schedule does, and the branches can be removed.
    """

    file: str
    reason: str
    branches: tuple[str, ...] = ()
    test: str = ""

    def covers(self, branch: Branch) -> bool:
        """Return whether the entry lists a branch."""
        return branch.file == self.file and (not self.branches or _described(branch).startswith(self.branches))

    def outdated(self, unrendered: Iterable[Branch]) -> list[str]:
        """Return what the entry lists although quick cases render it, or although it is gone."""
        described = [_described(branch) for branch in unrendered if branch.file == self.file]
        listed = self.branches or (f"{FILE}: ",)
        return [f"{self.file}: {text}" for text in listed if not any(each.startswith(text) for each in described)]


def _described(branch: Branch) -> str:
    return f"{branch.kind}: {branch.text}"


def entries() -> tuple[Entry, ...]:
    """Return the list of branches without a quick case."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["branches"]
    return tuple(Entry(**{**entry, "branches": tuple(entry.get("branches", ()))}) for entry in listed)


def operators() -> Iterator[OperatorDesc]:
    """Return the descriptions of the quick cases of one operator."""
    yield from (case_by_name(name).desc for name in case_names("quick"))
    halves, attributes = HalvesSuite(), AttributeSuite()
    yield from (halves.case(name).desc for name in halves.names("quick"))
    for name in attributes.names("quick"):
        if not attributes.is_rejected(name):
            yield attributes.case(name).desc


def render_quick_cases() -> None:
    """Render the kernels of all quick cases for all targets."""
    descs = tuple(dict.fromkeys(operators()))
    networks = [resolve(example(name).graph) for name in GraphSuite().names("quick")]
    for target in TARGETS:
        for desc in descs:
            render(desc, target.general.exact)
        for network in networks:
            compile_network(network, target.general)
    deterministic = TARGETS[1].with_policies(deterministic=True)
    for desc in descs:
        render(desc, deterministic)
    for target in TARGETS[:2]:
        for name in HazardSuite().names("quick"):
            shaders(name, target)


def render(desc: OperatorDesc, target: Target) -> None:
    """Render the kernels of an operator; an adapter may lack what it needs."""
    try:
        compile_operator(desc, target)
    except NotSupported:
        assert target.features != FEATURES


@pytest.mark.slow
def test_quick_cases_render_every_branch_of_every_template() -> None:
    with recorded_branches() as recorder:
        render_quick_cases()
        unrendered = recorder.unrendered()
    listed = entries()
    unlisted = "\n".join(str(branch) for branch in unrendered if not any(entry.covers(branch) for entry in listed))
    assert not unlisted, f"add a case that renders these branches to quick_faults.txt, or remove them:\n{unlisted}"
    outdated = [text for entry in listed for text in entry.outdated(unrendered)]
    assert not outdated, f"{LIST.name} lists branches that quick cases render, or that are gone: {outdated}"


def test_the_listed_tests_exist() -> None:
    missing = [entry.test for entry in entries() if entry.test and not _exists(entry.test)]
    assert not missing


def _exists(test: str) -> bool:
    """Return whether a module has a test function: ``tests/gpu/test_scans.py::test_sums``."""
    module, _, name = test.partition("::")
    path = ROOT / module
    return path.is_file() and re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
