"""Every form of a step that standard cases have is rendered by a quick case.

Branches of templates are not enough. If quick cases render a mean square, and partial results of sums, none has to
render partial results of a mean square, whose constants a template could take for its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pytest

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.scheduling import in_plain_steps
from dmlgpu.compiler.schedule.steps.base import KernelStep, in_turns
from dmlgpu.compiler.schedule.steps.reductions import ScheduledReduce, ScheduledRows, ScheduledScan
from dmlgpu.compiler.target import Division, Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name, case_names

CPU = Target(
    "llvmpipe",
    Profile.CPU,
    frozenset({"immediates", "shader-f16", "shader-f64", "shader-int64", "subgroup"}),
    subgroup_lanes=8,
    division=Division.NATIVE,
    max_storage_buffers=48,
    max_workgroup_invocations=1024,
    max_workgroup_storage=32768,
).general.exact
TARGETS = (CPU, replace(CPU, profile=Profile.DISCRETE))


@dataclass(frozen=True)
class Form:
    """A template with an option.

    Attributes:
        template: Shader file of the kernel.
        option: Name of an option and its value, or the distribution of the work.
        shader: Shader whose ``lift``, ``merge`` and ``finish`` the template calls; empty for any shader.
    """

    template: str
    option: str
    shader: str = ""


def forms_of(step: KernelStep) -> Iterator[Form]:
    """Yield the forms of a step."""
    options = {field.name: getattr(step, field.name) for field in fields(step)}
    options |= {"atomic": step.atomic, "wide": step.wide, "subgroup": step.subgroup > 0, "vector": step.lanes > 1}
    for name, value in options.items():
        if isinstance(value, bool | enum.StrEnum):  # no data types
            yield Form(step.template, f"{name} = {value}")
    yield Form(step.template, "an epilogue" if options.get("epilogue") else "no epilogue")
    match step:
        case ScheduledReduce():
            yield Form(step.template, f"{step.schedule}{' of partials' if step.of_partials else ''}", step.file)
        case ScheduledRows():
            yield from (Form(step.template, str(step.schedule), stage.file) for stage in step.stages)
        case ScheduledScan():
            yield Form(step.template, "of totals" if step.of_totals else "of elements", step.scanning.file)


def forms(names: Iterable[str]) -> dict[Form, str]:
    """Return the forms of some cases, and the first case of each form."""
    cases: dict[Form, str] = {}
    for name in names:
        for target in TARGETS:
            for step in steps_of(case_by_name(name).desc, target):
                for form in forms_of(step):
                    cases.setdefault(form, name)
    return cases


def steps_of(desc: OperatorDesc, target: Target) -> Sequence[KernelStep]:
    """Return the scheduled steps of an operator; none if an adapter lacks what it needs."""
    try:
        plan = in_plain_steps(operators.lower(desc), target)
        chosen = schedule(plan, target, [slot.tensor for slot in desc.inputs])
    except NotSupported:
        return ()
    return [step for step, _ in in_turns((*chosen.steps, *chosen.initialization))]


@pytest.mark.slow  # schedules 6,000 cases for two adapters
def test_quick_cases_have_every_form_of_standard_cases() -> None:
    quick = forms(case_names("quick"))
    missing = {form: name for form, name in forms(case_names("standard")).items() if form not in quick}
    advice = [f"add a case such as {name} to quick_faults.txt: {form}" for form, name in missing.items()]
    assert not missing, "\n".join(advice)
