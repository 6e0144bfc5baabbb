"""Mutants of the shaders: made by rule, found again by name, aimed at the cases that they can change."""

from __future__ import annotations

from collections import Counter

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.mutation.rules import RULES, mutant_by_name, mutants_of, sample, shader_files
from dmlgpu.conformance.mutation.suite import PER_FILE, KernelCoverage, MutantSuite, clear_caches, shaders

TARGET = Target(name="test", features=frozenset({"immediates"}))
ADD = "element_wise_add-float32-2x3-packed-s0"


@pytest.mark.slow
def test_every_rule_has_mutants_and_every_mutant_changes_its_line_alone() -> None:
    used: Counter[str] = Counter()
    for mutant in (mutant for file in shader_files() for mutant in mutants_of(file)):
        used[mutant.rule.name] += 1
        assert mutant.before != mutant.after, mutant
        before, after = (text.split("\n") for text in (templates.original(mutant.file), mutant.text))
        assert [n for n, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]] == [mutant.line]
    assert used.keys() == {rule.name for rule in RULES}


@pytest.mark.slow
def test_comments_and_template_lines_stay() -> None:
    for mutant in (mutant for file in shader_files() for mutant in mutants_of(file)):
        line = templates.original(mutant.file).split("\n")[mutant.line - 1]
        assert not line.lstrip().startswith(("//", "# "))
        assert "//" not in line[: mutant.column]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "elementwise/element_wise_subtract:3:16:plus_for_minus",
            "return {{ a - b }};",
            "return {{ a + b }};",
        ),
        (
            "elementwise/element_wise_subtract:3:5:zero_result",
            "return {{ a - b }};",
            "return output_s();",
        ),
        (
            "indexing/gather_nd1:14:58:true_for_false",
            "if ((*source)[{{ batch + dimension }}] == OUTSIDE) { return false; }",
            "if ((*source)[{{ batch + dimension }}] == OUTSIDE) { return true; }",
        ),
    ],
)
def test_a_name_makes_the_mutant_again(name: str, before: str, after: str) -> None:
    mutant = mutant_by_name(name)
    assert (str(mutant), mutant.before, mutant.after) == (name, before, after)


@pytest.mark.parametrize(
    "name",
    [
        "elementwise/element_wise_add:3:16:plus_for_minus",  # nothing is subtracted there
        "elementwise/element_wise_add:99:14:plus_for_minus",
        "elementwise/element_wise_add:3:14:no_such_rule",
        "elementwise/no_such_file:3:16:plus_for_minus",
        "element_wise_add",
    ],
)
def test_unknown_mutants_are_rejected(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        mutant_by_name(name)
    assert not MutantSuite().has(name)


def test_a_sample_is_the_same_again_and_of_many_rules() -> None:
    chosen = sample("lib/half", 8)
    assert list(map(str, chosen)) == list(map(str, sample("lib/half", 8)))
    assert len({mutant.rule.name for mutant in chosen}) == 8
    assert len(sample("elementwise/element_wise_add", 8)) < 8


@pytest.mark.slow
def test_profiles_grow() -> None:
    names = [set(MutantSuite().names(profile)) for profile in PER_FILE]
    assert names[0] < names[1] < names[2]


def test_a_replaced_file_is_rendered_until_it_is_put_back() -> None:
    def text() -> str:
        clear_caches()
        return compiler.compile_operator(case_by_name(ADD).desc, TARGET).kernels[0].wgsl

    original, mutant = text(), mutant_by_name("elementwise/element_wise_add:3:16:minus_for_plus")
    with templates.replaced(mutant.file, mutant.text):
        faulty = text()
    assert text() == original
    assert "return (a - b);" in faulty
    assert faulty.replace("return (a - b);", "return (a + b);") == original


def test_a_replaced_library_function_is_linked() -> None:
    name = "activation_relu_grad-float16-2x3-packed-s0"
    mutant = next(mutant for mutant in mutants_of("lib/half") if mutant.rule.name == "one_for_zero")
    coverage = list(KernelCoverage([name], TARGET).cases_of(mutant))
    assert {profile for profile, _ in coverage} == {Profile.CPU, Profile.DISCRETE}
    original = shaders(name, TARGET)
    assert original
    with templates.replaced(mutant.file, mutant.text):
        clear_caches()
        assert shaders(name, TARGET) != original
    clear_caches()
    assert shaders(name, TARGET) == original


def test_a_mutant_meets_the_cases_that_hold_its_file_or_take_it_in() -> None:
    names = [ADD, "gather_nd1-float32-uint32-2x3-packed-s0"]
    coverage = KernelCoverage(names, TARGET)

    def met(name: str) -> set[str]:
        return {case for _, case in coverage.cases_of(mutant_by_name(name))}

    assert met("elementwise/element_wise_add:3:16:minus_for_plus") == {ADD}
    assert met("indexing/gather_nd1:14:58:true_for_false") == {names[1]}
    assert met("lib/math_exp:12:5:zero_result") == set()
    taken_in = next(mutants_of("access/place"))
    assert met(str(taken_in)) == set(names)


def test_functions_of_the_library_are_measured_where_a_mutant_is_in_them() -> None:
    coverage = KernelCoverage(["exp_f32-16", "sin_f32-16", "floor_f32-16"], TARGET)
    mutants = {mutant.file: mutant for mutant in mutants_of("lib/math_trigonometry")}
    (met,) = {frozenset(coverage.cases_of(mutant)) for mutant in mutants.values()}
    assert met <= {(Profile.CPU, "sin_f32-16")}
