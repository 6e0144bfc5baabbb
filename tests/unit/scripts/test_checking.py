"""What ``scripts/check`` finds: the parts of operators, the cases and tests that a file concerns, and its output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checking import __main__ as command
from checking.cases import (
    TARGETS,
    cases_of_file,
    cases_of_operator,
    including,
    operators_of_module,
    renders,
    runs_through,
    spread,
)
from checking.imports import importing, imports
from checking.parts import (
    ROOT,
    Part,
    family,
    lacking,
    lacking_schedules,
    parts,
    planned_steps,
    scheduled_steps,
    unlisted,
)
from checking.tests import Selection, mentions, select_for_file, select_for_operator

from dmlgpu.compiler.plan import Step
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.conformance.cases.registry import case_by_name

# ---- parts


def test_every_operator_has_all_its_parts():
    assert lacking(parts()) == []


def test_every_schedule_has_all_its_parts():
    assert len(scheduled_steps()) > 15 and len(planned_steps()) > 12
    assert lacking_schedules(scheduled_steps(), planned_steps()) == []


def test_what_a_schedule_lacks_is_named_with_what_to_do():
    novel, step = type("Scheduled" + "Nothing", (KernelStep,), {}), type("Nothing", (Step,), {})
    messages = lacking_schedules([novel], [step])
    assert [message.partition(":")[0] for message in messages] == [
        f"{novel.__name__} has no renderer",
        f"{novel.__name__} has no builder",
        f"{novel.__name__} has no test",
        "Nothing has no schedule",
    ]
    assert messages[0].endswith(
        "register one in dmlgpu/compiler/wgsl/steps/; see docs/architecture.md, Adding a schedule"
    )


def test_builders_that_no_list_names():
    builder = "def find_a(problem):\n    return ScheduledA(problem)\n"
    assert unlisted("ScheduledA", [builder]) == ["find_a"]
    assert unlisted("ScheduledA", [builder, "from copies import find_a\n"]) == ["find_a"]
    assert unlisted("ScheduledA", [builder, "MAP_SCHEDULES = (Candidate('a', 'why', lambda p: find_a(p)),)\n"]) == []
    assert unlisted("ScheduledA", ["@schedule_step.register\n" + builder]) == []
    assert unlisted("ScheduledB", [builder]) == []


def made_up(**operators):
    """Parts with a remedy each, of some operators; the page is generated."""
    remedies = {"reference": "add @reference(descs.{desc}) to {family}.py", "page": "write {stem}.md"}
    return [
        Part(name, frozenset(held), lambda operator: "", remedies.get(name, "do it"), generated=name == "page")
        for name, held in operators.items()
    ]


def test_a_missing_part_is_named_with_what_to_do():
    every = made_up(**{"class": ["GATHER_ND1", "SLICE1"], "reference": ["SLICE1"], "page": ["GATHER_ND1"]})
    assert lacking(every) == [
        "GATHER_ND1 has class and page but no reference: add @reference(descs.GatherNd1) to indexing.py; "
        "see docs/architecture.md",
        "SLICE1 has class and reference but no page: write slice1.md; see docs/architecture.md",
    ]


def test_a_page_alone_asks_for_nothing():
    assert lacking(made_up(**{"class": ["SLICE1"], "page": ["SLICE1", "GATHER"]})) == []


def test_where_the_parts_of_an_operator_stand():
    where = {part.name: part.where("GATHER_ND1") for part in parts()}
    assert where["shader"] == "shaders/indexing/gather_nd1.wgsl"
    for name, definition in (("class", "class GatherNd1(Lowering):"), ("reference", "@reference(descs.GatherNd1)")):
        path, _, rest = where[name].partition(":")
        assert (ROOT / path).read_text().splitlines()[int(rest.split()[0]) - 1] == definition


def test_the_family_of_an_operator_that_lacks_its_class(unregister):
    unregister("GATHER_ND1")
    assert family("GATHER_ND1") == "indexing"  # from its cases


# ---- cases


def test_an_operators_quick_cases_come_first():
    names = cases_of_operator("GATHER_ND1", 5)
    assert len(names) == 5
    assert all(name.startswith("gather_nd1-") for name in names)


def test_some_of_many_in_even_steps():
    assert spread("abcdefgh", 4) == list("aceg")
    assert spread("ab", 4) == list("ab")
    assert spread("", 4) == []


def test_operators_of_a_module_are_its_own_and_of_those_that_import_it():
    assert {"GATHER", "GATHER_ND1"} <= set(operators_of_module("dmlgpu/compiler/operators/indexing.py"))
    assert set(operators_of_module("dmlgpu/compiler/operators/indexing.py")) >= {"GATHER_ND1", "SCATTER_ND"}
    assert "GEMM" not in operators_of_module("dmlgpu/reference/indexing.py")
    assert "GATHER_ND1" in operators_of_module("dmlgpu/conformance/cases/families/indexing.py")


GATHER = case_by_name("gather_nd1-example1").desc


def test_what_compiling_runs_through():
    assert runs_through(ROOT / "dmlgpu" / "compiler" / "wgsl" / "steps" / "maps.py", GATHER, TARGETS[0])
    assert not runs_through(ROOT / "dmlgpu" / "compiler" / "wgsl" / "steps" / "ordering.py", GATHER, TARGETS[0])


def test_which_shaders_kernels_hold():
    held = ("indexing/gather_nd1", "access/store", "lib/index")
    assert [file for file in (*held, "indexing/one_hot", "lib/philox") if renders(file, GATHER, TARGETS[0])] == [*held]


def test_a_shader_is_held_by_what_includes_it():
    assert including("indexing/gather_nd1") == {"indexing/gather_nd1"}
    assert len(including("schedules/gemm_macros")) > 1


def test_files_that_no_case_depends_on():
    assert cases_of_file("dmlgpu/cli/ops.py", 3) == []
    assert len(cases_of_file("dmlgpu/runtime/wgpu/queue.py", 3)) == 3


# ---- tests


def test_imports_are_files_of_the_checkout():
    imported = imports(Path(__file__))
    assert {"dmlgpu/conformance/cases/registry.py", "dmlgpu/conformance/cases/__init__.py"} & imported
    assert not any("pytest" in file for file in imported)


def test_modules_that_import_others():
    importers = importing("dmlgpu/reference/activation.py", ROOT / "dmlgpu" / "reference")
    assert "dmlgpu/reference/activation.py" in importers
    assert all((ROOT / file).is_file() for file in importers)


def test_a_word_is_no_part_of_another():
    assert mentions("x = descs.GatherNd1(a)", ["GatherNd1"])
    assert not mentions("test_x[gather_nd1-a]", ["gather", "nd1"])
    assert not mentions("anything", [])


@pytest.mark.parametrize(
    ("file", "whole"),
    [
        ("tests/unit/catalog/test_enums.py", ["tests/unit/catalog/test_enums.py"]),
        (
            "dmlgpu/compiler/operators/indexing.py",
            ["tests/unit/compiler/operators/test_operators_indexing.py", "tests/reference/test_indexing.py"],
        ),
        ("dmlgpu/compiler/rewrites/packing.py", ["tests/unit/compiler/rewrites/test_rewrites_packing.py"]),
        ("dmlgpu/compiler/wgsl/linker.py", ["tests/unit/compiler/wgsl/test_wgsl_linker.py"]),
    ],
)
def test_modules_named_after_a_file_are_taken_whole(file, whole):
    assert set(whole) <= set(select_for_file(file).whole)


def test_the_tests_of_an_operator_are_its_familys_and_what_mentions_it():
    selection = select_for_operator("GATHER_ND1")
    assert selection.whole == (
        "tests/unit/compiler/operators/test_operators_indexing.py",
        "tests/reference/test_indexing.py",
    )
    arguments = selection.arguments()
    assert arguments[:6] == ["--mentions", "GATHER_ND1", "--mentions", "gather_nd1", "--mentions", "GatherNd1"]
    assert {
        "tests/unit/conformance/test_cases.py",
        "tests/unit/compiler/wgsl/test_shaders.py",
        "tests/gpu/test_indexing.py",
    } < set(arguments)
    assert "tests/gpu/test_cases.py" not in arguments


def test_nothing_selected_runs_nothing():
    assert Selection(words=("no test says this",)).arguments() != []  # but this one
    assert Selection().arguments() == []


# ---- the command


def test_operators_by_any_of_their_names():
    names = ("gather_nd1", "GATHER_ND1", "SCATTER", "gather_nd9")
    assert [command.operator_named(name) for name in names] == ["GATHER_ND1", "GATHER_ND1", "SCATTER_ELEMENTS", None]


def test_a_name_that_is_nothing_gets_a_hint(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check", "gather_nd3"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert (
        "'gather_nd3' is neither an operator nor a file of this checkout; there is gather_nd" in capsys.readouterr().err
    )


def test_what_passes_takes_a_line_and_what_fails_is_shown_in_full(capsys):
    fine = command.Check("fine", ("-c", "print('much\\n1 passed in 1 s')"), shows=True)
    quiet = command.Check("quiet", ("-c", "print('much')"))
    assert command.run([fine]) and command.run([quiet])
    lines = [re.sub(r" +\d+\.\d s ", "", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["ok fine", "1 passed in 1 s", "ok quiet"]
    assert not command.run([command.Check("wrong", ("-c", "print('why'); raise SystemExit(1)"))])
    heading, why = capsys.readouterr().out.splitlines()
    assert heading.startswith("FAILED") and heading.endswith("wrong") and why == "why"


def test_every_script_that_can_check_what_it_writes_is_known():
    scripts = {
        path.name
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and f"{path.name} --check" in path.read_text(encoding="utf-8")
    }
    assert {generator.partition(" ")[0] for generator in command.GENERATORS} == scripts


def test_scripts_check_what_they_write_from_a_file():
    assert [check.command for check in command.generated("dmlgpu/conformance/cases/families/quantization.py")] == [
        ("scripts/generate", "--check", "stubs"),
        ("scripts/generate", "--check", "counts"),
    ]


def test_the_table_of_adapters_is_shown():
    assert command.summary("noise\nadapter   pass\nnumpy  3") == ["adapter   pass", "numpy  3"]
