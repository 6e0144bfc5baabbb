"""The sample of quick cases that run under the schedules for GPUs on CPU adapters."""

from __future__ import annotations

import re

import pytest

from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.keys import gpu_sample, quick_names
from dmlgpu.conformance.mutation.suite import shaders

FEATURES = frozenset({"immediates", "shader-int64", "shader-f64", "mappable-primary-buffers", "subgroup"})
TARGET = Target(name="sample", profile=Profile.DISCRETE, features=FEATURES)
TEMPLATE = re.compile(r"^// ---- shaders/(schedules/[\w/]+)\.wgsl$", re.MULTILINE)
SHARED = re.compile(r"\b(?:workgroupBarrier|storageBarrier|subgroup[A-Z]\w+|atomic[A-Z]\w+)\b")


def forms(name: str) -> set[tuple[str, str]]:
    """Templates of schedules of a case, alone and with each operation by which invocations exchange data."""
    return {
        (template, operation)
        for text in shaders(name, TARGET)
        for template in TEMPLATE.findall(text)
        for operation in ("", *SHARED.findall(text))
    }


@pytest.mark.slow
def test_the_sample_has_all_forms_of_schedules_of_quick_cases() -> None:
    sampled = set[tuple[str, str]]().union(*map(forms, gpu_sample()))
    quick = {form: name for names in quick_names().values() for name in names for form in forms(name)}
    missing = {form: name for form, name in quick.items() if form not in sampled}
    assert not missing, f"add cases such as these to quick_gpu.txt: {missing}"
    assert any("Barrier" in operation for _, operation in sampled)


def test_sampled_cases_are_quick() -> None:
    quick = {name for names in quick_names().values() for name in names}
    assert gpu_sample() <= quick
    assert len(gpu_sample()) == 28, "docs/conformance.md says how many"
