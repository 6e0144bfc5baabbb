"""What ``scripts/check`` finds: names, the parts of operators, the cases and tests of a file, and its output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
import yaml
from checking import __main__ as command
from checking import cases, names, plugin, tests
from checking.cases import cases_of_file, cases_of_operator, operators_of_module
from checking.imports import LIGHT, heavy, importers, imports
from checking.names import Targets, UnknownTarget, operator_named, resolve
from checking.parts import (
    Part,
    family,
    lacking,
    lacking_schedules,
    parts,
    planned_steps,
    scheduled_steps,
    selection,
    unlisted,
)
from checking.record import (
    Candidate,
    by_module,
    candidates_by_file,
    choose,
    closeness,
    distinct,
    missing_modules,
    renamed,
)
from checking.recorder import Recorder
from checking.storage import decode, encode
from checking.tests import Selection, extra, has_code, mentions, mirrored, recorded, select_for_file, spread

from dmlgpu.catalog import search
from dmlgpu.compiler.plan import Step
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name

ROOT = names.ROOT

# ---- parts


def test_every_operator_has_all_its_parts():
    assert lacking(parts()) == []


@pytest.mark.slow
def test_every_schedule_has_all_its_parts():
    assert len(scheduled_steps()) > 15 and len(planned_steps()) > 12
    assert lacking_schedules(scheduled_steps(), planned_steps()) == []


def test_what_a_schedule_lacks_is_named_with_what_to_do():
    novel, step = type("Scheduled" + "Nothing", (KernelStep,), {}), type("Nothing", (Step,), {})
    messages = lacking_schedules([novel], [step])
    assert [message.partition(":")[0] for message in messages] == [
        f"{novel.__name__} has no template",
        f"{novel.__name__} has no builder",
        f"{novel.__name__} has no test",
        "Nothing has no schedule",
    ]
    assert messages[0].endswith("name its shader file in the class; see docs/internals/schedules.md")


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
        "see docs/internals/operators.md",
        "SLICE1 has class and reference but no page: write slice1.md; see docs/internals/operators.md",
    ]


def test_a_page_alone_asks_for_nothing():
    assert lacking(made_up(**{"class": ["SLICE1"], "page": ["SLICE1", "GATHER"]})) == []


def test_where_the_parts_of_an_operator_stand():
    where = {part.name: part.where("GATHER_ND1") for part in parts()}
    assert where["shader"] == "shaders/indexing/gather_nd1.wgsl"
    for name, definition in (
        ("class", "class GatherNd1(Lowering):"),
        ("reference", "@reference(descs.GatherNd1, descs.GatherNd)"),
    ):
        path, _, rest = where[name].partition(":")
        assert (ROOT / path).read_text().splitlines()[int(rest.split()[0]) - 1] == definition


def test_the_family_of_an_operator_that_lacks_its_class(unregister):
    unregister("GATHER_ND1")
    assert family("GATHER_ND1") == "indexing"  # from its cases


# ---- names


def test_operators_by_any_of_their_names():
    named = {
        "gather_nd1": "GATHER_ND1",
        "GATHER_ND1": "GATHER_ND1",
        "SCATTER": "SCATTER_ELEMENTS",
        "relu": "ACTIVATION_RELU",
        "softmax": "ACTIVATION_SOFTMAX1",
        "add": "ELEMENT_WISE_ADD",
        "layer_norm": "MEAN_VARIANCE_NORMALIZATION2",
        "nn.Conv2d": "CONVOLUTION",
        "max_pooling": "MAX_POOLING",
    }
    assert {name: operator_named(name) for name in named} == named


@pytest.mark.slow
def test_short_names_are_those_of_the_catalog():
    for name in names.own_names() | names.short_names():
        matches = [match.operator.name for match in search.find(name) if match.fit == search.NAME]
        assert {*names.own_names().get(name, ()), *names.short_names().get(name, ())} <= set(matches), name
    for name, operators in names.synonyms().items():
        matches = [match.operator.name for match in search.find(name) if match.fit <= search.SYNONYM]
        assert set(operators) <= set(matches), name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("relo", "'relo' is neither an operator nor a file of this checkout; similar names: activation_relu"),
        ("gathr_nd1", "; similar names: gather_nd1"),
        ("indexing/gather_nd1.wgsl", "; similar names: shaders/indexing/gather_nd1.wgsl"),
        ("zzzz", "'zzzz' is neither an operator nor a file of this checkout"),
        ("cumsum", ""),
    ],
)
def test_other_names_get_similar_ones(name, message):
    if not message:
        assert operator_named(name)
        return
    with pytest.raises(UnknownTarget, match=f"{re.escape(message)}"):
        operator_named(name)


def test_a_name_of_several_operators_lists_them(monkeypatch):
    monkeypatch.setattr(names, "synonyms", lambda: {"both": ("GEMM", "GATHER")})
    with pytest.raises(UnknownTarget, match="'both' names several operators: gemm, gather"):
        operator_named("both")


def test_paths_are_relative_to_the_caller():
    assert resolve(["../CONTRIBUTING.md", "relu"], ROOT / "docs") == Targets(("ACTIVATION_RELU",), ("CONTRIBUTING.md",))
    with pytest.raises(UnknownTarget):
        resolve(["CONTRIBUTING.md"], ROOT / "docs")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with two commits, and a function that calls git in it."""

    def git(*arguments):
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for commit in ("one", "two"):
        (tmp_path / f"{commit}.py").write_text(commit)
        git("add", ".")
        git("commit", "-m", commit)
    monkeypatch.setattr(names, "ROOT", tmp_path)
    return tmp_path, git


def test_without_arguments_the_last_commit_is_checked_if_nothing_has_changed(checkout):
    assert resolve([], checkout[0]) == Targets(files=("two.py",), origin="of the last commit")


def test_without_arguments_changed_staged_and_new_files_are_checked(checkout):
    folder, git = checkout
    (folder / "one.py").write_text("changed")
    (folder / "two.py").write_text("staged")
    git("add", "two.py")
    (folder / "with space.py").write_text("new")
    targets = resolve([], folder)
    assert set(targets.files) == {"one.py", "two.py", "with space.py"}
    assert (targets.deleted, targets.origin) == ((), "changed since the last commit")


def test_a_deleted_file_fails(checkout, tmp_path):
    folder, _ = checkout
    (folder / "one.py").unlink()
    targets = resolve([], folder)
    assert (targets.files, targets.deleted) == ((), ("one.py",))
    assert command.plan(targets, tmp_path)[1] == [
        "one.py was deleted, and no test of a deleted file is known; run scripts/test"
    ]


@pytest.mark.slow
def test_names_are_checked_without_any_package(tmp_path):
    """As on a machine that has only Python: with -S, no installed package is found."""

    def check(*arguments):
        command = [sys.executable, "-S", "-m", "checking.names", ROOT, *arguments]
        environment = {**os.environ, "PYTHONPATH": "scripts"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert check("relu").stdout == "check driver\n"
    assert check("dmlgpu/catalog/enums.py").stdout == "check no-driver\n"
    assert check("dmlgpu/frontends/torch/operators/reductions.py").stdout == "test no-driver\n"
    assert check("dmlgpu/frontends/onnx/node.py").stdout == "check-onnx no-driver\n"
    done = check("relo")
    assert (done.returncode, "similar names: activation_relu" in done.stderr) == (2, True)


# ---- cases


def test_an_operators_quick_cases_come_first():
    chosen = cases_of_operator("GATHER_ND1", 5)
    assert len(chosen) == 5
    assert all(name.startswith("gather_nd1-") for name in chosen)


def test_some_of_many_in_even_steps():
    assert spread("abcdefgh", 4) == list("aceg")
    assert spread("ab", 4) == list("ab")
    assert spread("", 4) == []


def test_operators_of_a_module():
    assert {"gather", "gather_nd1"} <= set(operators_of_module("dmlgpu/reference/indexing.py"))
    assert "gemm" not in operators_of_module("dmlgpu/reference/indexing.py")
    assert "gather_nd1" in operators_of_module("dmlgpu/conformance/cases/families/indexing.py")
    assert operators_of_module("dmlgpu/cli/ops.py") == []


def test_cases_of_files():
    gather = cases_of_file("shaders/indexing/gather_nd1.wgsl", 8)
    assert gather and all(name.startswith("gather") for name in gather)
    assert cases_of_file("dmlgpu/compiler/schedule/rows.py", 3)
    assert cases_of_file("dmlgpu/cli/ops.py", 3) == []
    assert len(cases_of_file("dmlgpu/runtime/wgpu/queue.py", 3)) == 3
    assert all(name.startswith("gather_nd1-") for name in cases_of_file("docs/examples/gather_nd1.py", 3))


def test_a_shader_that_is_newer_than_the_record_has_the_cases_of_its_operators(monkeypatch):
    monkeypatch.setattr(cases, "record", lambda: {"cases": {}})
    assert cases_of_file("shaders/indexing/one_hot.wgsl", 4) == cases_of_operator("ONE_HOT", 4)


# ---- recording


def test_a_recorder_sees_functions_templates_and_the_library():
    recorder = Recorder()
    desc = case_by_name("gather_nd1-example1").desc
    recorder.start()
    compile_operator(desc, Target("Recorded", Profile.DISCRETE))
    recorder.stop()
    items = recorder.take()
    assert "dmlgpu/compiler/wgsl/render.py::render" in items
    assert {item.partition("::")[0] for item in items} >= {
        "shaders/indexing/gather_nd1.wgsl",
        "shaders/access/store.wgsl",
        "dmlgpu/compiler/wgsl/steps/maps.py",
    }
    assert not any(item.startswith("dmlgpu/compiler/wgsl/steps/ordering.py") for item in items)
    assert any(item.startswith("shaders/lib/index.wgsl::") for item in items)
    assert recorder.take() == frozenset()


def candidate(name, seconds, items, module="tests/unit/ops/test_ops_a.py", **rest):
    return Candidate(module, name, seconds, frozenset(items), **rest)


def test_chosen_tests_run_every_function_at_least_cost():
    every = [candidate("slow", 9, "abc"), candidate("ab", 0.1, "ab"), candidate("c", 0.2, "c"), candidate("a", 5, "a")]
    chosen = [test.name for test in choose("dmlgpu/ops/a.py", every)]
    assert chosen[:2] == ["ab", "c"]
    assert "slow" in chosen and "a" not in chosen  # 9 seconds fit the budget after the others; 5 more do not


def test_a_slow_test_is_chosen_if_no_other_runs_the_file():
    assert [test.name for test in choose("dmlgpu/ops/a.py", [candidate("slow", 100, "a")])] == ["slow"]


def test_tests_of_the_package_and_narrow_tests_are_preferred():
    near = candidate("near", 1, "a")
    far = candidate("far", 1, "a", module="tests/unit/cli/test_cli_b.py")
    broad = candidate("broad", 1, "a", breadth=2000)
    assert choose("dmlgpu/ops/a.py", [far, broad, near])[0] is near


def test_closeness_counts_folders_and_names():
    passes = "dmlgpu/compiler/graph/passes/nodes.py"
    modules = ["unit/compiler/graph/test_graph_nodes.py", "unit/compiler/graph/test_b.py", "unit/compiler/test_b.py"]
    assert [closeness(passes, f"tests/{module}") for module in (*modules, "unit/ops/test_b.py")] == [5, 2, 1, 0]


def test_recordings_become_distinct_candidates():
    items = ["dmlgpu/a.py::f", "dmlgpu/a.py::g", "dmlgpu/b.py::h"]
    recording = {f"t{seconds}": (seconds, [0, 2]) for seconds in (4, 3, 2, 1)} | {"other": (5, [1])}
    files = candidates_by_file(items, "tests/unit/catalog/test_enums.py", recording)
    assert [test.name for test in files["dmlgpu/a.py"]] == ["t1", "t2", "t3", "other"]
    assert files["dmlgpu/b.py"][0].items == {"h"}
    assert by_module(files["dmlgpu/a.py"][:2]) == {"tests/unit/catalog/test_enums.py": ["t1", "t2"]}
    assert distinct([]) == []


def test_a_record_follows_renamed_files():
    module, file = "tests/unit/ops/test_a.py", "dmlgpu/ops/a.py"
    before = {
        "commit": "1",
        "modules": {module: (1.0, 2)},
        "tests": {file: {module: ["test"]}},
        "cases": {"shaders/x/a.wgsl": ["gemm-1"]},
    }
    names = {module: "tests/unit/ops/test_b.py", file: "dmlgpu/ops/b.py", "shaders/x/a.wgsl": "shaders/x/b.wgsl"}
    assert renamed(before, names) == {
        "commit": "1",
        "modules": {"tests/unit/ops/test_b.py": (1.0, 2)},
        "tests": {"dmlgpu/ops/b.py": {"tests/unit/ops/test_b.py": ["test"]}},
        "cases": {"shaders/x/b.wgsl": ["gemm-1"]},
    }
    assert renamed(before, {}) == before


def test_modules_that_a_record_lacks():
    catalog = [module for module in tests.test_modules() if module.startswith("tests/unit/catalog/")]
    before = {"modules": dict.fromkeys(catalog[1:], (1.0, 1)), "tests": {}, "cases": {}}
    assert missing_modules(["tests/unit/catalog"], [], before) == catalog[:1]
    before["modules"][catalog[0]] = (1.0, 1)
    added = ["dmlgpu/catalog/tensor_desc.py"]
    assert missing_modules(["tests/unit/catalog"], added, before) == ["tests/unit/catalog/test_tensor_desc.py"]
    assert missing_modules(["tests/unit/ops"], added, before | {"modules": dict.fromkeys(tests.test_modules())}) == []
    before["tests"] = {added[0]: {catalog[0]: ["test"]}}
    assert missing_modules(["tests/unit/catalog"], added, before) == []


@pytest.mark.slow
def test_a_process_with_the_recorder_writes_what_each_test_ran(tmp_path):
    module = "tests/unit/common/test_cache.py"
    arguments = ["-p", "no:cacheprovider", "-p", "checking.recorder", "--record-into", tmp_path, module]
    run_pytest(*arguments, "-q")
    content = json.loads((tmp_path / "tests__unit__common__test_cache.py.json").read_text())
    assert content["module"] == module and content["seconds"] > 0
    assert content["tests"] and all(numbers for _, numbers in content["tests"].values())
    assert "dmlgpu/common/cache.py::Cache.get_or_make" in content["items"]


def run_pytest(*arguments):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/scripts{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


# ---- tests


def test_every_module_has_known_tests():
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "dmlgpu").rglob("*.py"))]
    assert len(files) > 500
    elsewhere = "dmlgpu/bench/peers/programs/", "dmlgpu/frontends/torch_backend.py"  # run in child processes only
    unknown = [file for file in files if not select_for_file(file).modules() and has_code(file)]
    assert [file for file in unknown if not file.startswith(elsewhere)] == []


def test_most_modules_have_recorded_tests_that_exist():
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "dmlgpu").rglob("*.py"))]
    assert sum(bool(recorded(file)) for file in files) > 0.5 * len(files)
    modules = {module for file in files for module in recorded(file)}
    assert modules <= tests.record()["modules"].keys()


def test_the_record_is_a_file_of_limited_size():
    assert tests.RECORD == ROOT / "tests" / "coverage.json"
    assert tests.RECORD.stat().st_size < 400 << 10
    assert tests.record().keys() == {"commit", "modules", "tests", "cases"}


def test_the_file_of_a_record_spells_every_name_once():
    module, other, shader = "tests/unit/ops/test_a.py", "tests/unit/ops/test_b.py", "shaders/x/a.wgsl"
    content = {
        "commit": "1",
        "modules": {module: (1.5, 4), other: (0.0, 1)},
        "tests": {
            "dmlgpu/ops/a.py": {module: ["test", "test_sum[a[0]]", "test_sum[b]"], other: ["Group::test"]},
            "dmlgpu/ops/b.py": {module: ["test_sum[b]"]},
            shader: {module: ["test"]},
        },
        "cases": {shader: ["gemm-2", "gemm-1"], "shaders/x/b.wgsl": ["gemm-1"]},
    }
    text = encode(content)
    assert decode(text) == content
    for name in (module, other, shader, "dmlgpu/ops/a.py", "test_sum", "a[0]", "gemm-1"):
        assert text.count(name) == 1
    empty = {"commit": "", "modules": {}, "tests": {}, "cases": {}}
    assert decode(encode(empty)) == empty


def test_the_record_is_as_its_writer_writes_it():
    assert encode(tests.record()) == tests.RECORD.read_text(encoding="utf-8")


def test_a_module_without_code_needs_no_test():
    assert not has_code("dmlgpu/bench/__init__.py")
    assert has_code("dmlgpu/compiler/graph/passes/__init__.py")


def test_imports_are_files_of_the_checkout():
    imported = imports(Path(__file__))
    assert {"dmlgpu/conformance/cases/registry.py", "dmlgpu/conformance/cases/__init__.py"} & imported
    assert not any("pytest" in file for file in imported)


def test_modules_that_import_others():
    modules = importers("dmlgpu/compiler/graph/passes/rewriting.py", ROOT / "dmlgpu" / "compiler" / "graph")
    assert "dmlgpu/compiler/graph/passes/nodes.py" in modules
    assert all("rewriting" in (ROOT / file).read_text() for file in modules)


def test_a_word_is_no_part_of_another():
    assert mentions("x = descs.GatherNd1(a)", ["GatherNd1"])
    assert not mentions("test_x[gather_nd1-a]", ["gather", "nd1"])
    assert not mentions("anything", [])


@pytest.mark.parametrize(
    ("file", "modules"),
    [
        ("dmlgpu/catalog/enums.py", ["tests/unit/catalog/test_enums.py"]),
        ("dmlgpu/compiler/linker.py", ["tests/unit/compiler/test_linker.py"]),
        ("dmlgpu/reference/indexing.py", ["tests/reference/test_indexing.py"]),
        ("scripts/fit_math.py", ["tests/unit/scripts/test_fit_math.py"]),
        ("dmlgpu/compiler/graph/passes/gates.py", []),
    ],
)
def test_test_modules_named_after_a_file(file, modules):
    assert mirrored(Path(file)) == modules


@pytest.mark.slow
def test_what_is_selected_for_files(monkeypatch):
    record = {
        "modules": {"tests/unit/cli/test_cli_pages.py": (100.0, 1), "tests/unit/catalog/test_enums.py": (1.0, 9)},
        "tests": {"dmlgpu/catalog/enums.py": {"tests/unit/cli/test_cli_pages.py": ["a", "b"], "tests/gone.py": ["c"]}},
    }
    monkeypatch.setattr(tests, "record", lambda: record)
    module = "tests/unit/cli/test_cli_pages.py"
    monkeypatch.setitem(record["modules"], module, (1.0, 9))
    assert select_for_file("dmlgpu/catalog/enums.py").whole == (
        *(f"{module}::{name}" for name in "ab"),
        "tests/unit/catalog/test_enums.py",
    )
    monkeypatch.setitem(record["modules"], "tests/unit/catalog/test_enums.py", (60.0, 9))
    assert select_for_file("dmlgpu/catalog/enums.py").whole == tuple(f"{module}::{name}" for name in "ab")
    assert select_for_file(module) == Selection((module,))
    assert select_for_file("docs/arrays.md") == Selection(words=("arrays.md", "docs/arrays.md"))
    assert select_for_file("dmlgpu/no/such/module.py") == Selection(words=("dmlgpu.no.such.module",))
    assert select_for_file("dmlgpu/__main__.py") == Selection(words=('"-m", "dmlgpu"', "-m dmlgpu"))


def test_tables_have_the_tests_of_the_modules_that_import_them(monkeypatch):
    registry = "dmlgpu/compiler/graph/passes/gates.py"
    test = {"tests/unit/compiler/graph/test_graph_passes.py": ["test_a"]}
    monkeypatch.setattr(tests, "record", lambda: {"modules": {}, "tests": {"dmlgpu/compiler/graph/compiler.py": test}})
    assert tests.tests_of_importers(registry) == ["tests/unit/compiler/graph/test_graph_passes.py::test_a"]


def test_the_tests_of_an_operator_are_its_familys_its_shaders_and_what_mentions_it():
    selected = selection("GATHER_ND1")
    assert selected.words == ("GATHER_ND1", "gather_nd1", "GatherNd1") and selected.operator
    modules = selected.modules()
    assert {
        "tests/unit/conformance/test_cases.py",
        "tests/unit/compiler/wgsl/test_shaders.py",
        "tests/gpu/test_indexing.py",
    } < set(modules)
    assert "tests/gpu/test_cases.py" not in modules


# ---- the environment


@pytest.mark.slow
def test_extras_that_targets_need():
    assert extra(Targets(operators=("GEMM",))) == "check"
    assert extra(Targets(files=("dmlgpu/catalog/enums.py", "docs/arrays.md"))) == "check"
    assert extra(Targets(files=("dmlgpu/catalog/enums.py", "dmlgpu/frontends/onnx/node.py"))) == "check-onnx"
    assert extra(Targets(files=("tests/unit/frontends/torch/test_torch_layers.py",))) == "test"


def test_packages_that_test_modules_need():
    assert heavy("tests/unit/catalog/test_enums.py") == frozenset()
    assert "torch" in heavy("tests/unit/frontends/torch/test_torch_layers.py")
    assert heavy("tests/unit/frontends/onnx/test_onnx_attention.py") == {"onnxruntime"}


def requirements(name, extras):
    """The distributions that an extra of a distribution installs, directly or not."""
    visited, pending = set(), [(name, extra) for extra in extras]
    while pending:
        distribution_name, extra = pending.pop()
        if (distribution_name, extra) in visited:
            continue
        visited.add((distribution_name, extra))
        try:
            lines = distribution(distribution_name).requires or ()
        except PackageNotFoundError:
            continue
        for line in lines:
            requirement, _, marker = line.partition(";")
            condition = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
            if condition and condition[1] != extra:
                continue
            parsed = re.match(r"([\w.-]+)\s*(?:\[([^]]*)\])?", requirement)
            pending += [(parsed[1].lower(), each) for each in ("", *(parsed[2] or "").replace(" ", "").split(","))]
    return {name.replace("_", "-") for name, _ in visited}


@pytest.mark.slow
def test_the_extra_check_installs_the_packages_that_its_tests_import():
    installed = packages_distributions()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = project["optional-dependencies"]["check"]
    assert "dmlgpu[browser,cli,llm,onnx,server]" in own
    direct = {re.match(r"[\w-]+", line)[0].lower() for line in own}
    closure = requirements("dmlgpu", ["", "browser", "cli", "grammar", "llm", "onnx", "server"]) | direct
    closure |= {name for each in direct for name in requirements(each, [""])}
    lacking = {
        package: installed[package]
        for package in LIGHT & installed.keys()
        if not {name.lower().replace("_", "-") for name in installed[package]} & closure
    }
    assert lacking == {}


# ---- running tests


@pytest.fixture
def selected(tmp_path):
    """Runs pytest with the selections of some targets, and returns its exit code and output."""

    def run(selections):
        file = tmp_path / "selections.json"
        file.write_text(plugin.selections_file(selections))
        modules = {module for selection in selections.values() for module in selection.modules()}
        options = ("-p", "no:cacheprovider", "-p", "checking.plugin", "--selections", file)
        done = run_pytest("-q", *options, *sorted(modules))
        return done.returncode, done.stdout

    return run


@pytest.mark.slow
def test_only_selected_tests_run_and_each_target_needs_one(selected):
    module = "tests/unit/common/test_cache.py"
    first = Selection((f"{module}::test_programs_are_bounded",))
    code, output = selected({"a.py": first})
    assert (code, "1 passed" in output) == (0, True), output
    code, output = selected({"a.py": first, "b.py": Selection((f"{module}::test_gone",))})
    assert code == 1
    assert "no test of b.py ran: none was found; the record may be out of date; run scripts/test" in output


def test_skipped_tests_are_no_all_clear(tmp_path):
    noted = plugin.Plugin(json.loads(plugin.selections_file({"a.py": Selection(("m::t",))})))
    noted._tests = {"a.py": {"m::t"}}
    noted._skipped = {"m::t": "could not import 'torch'"}
    assert noted.without_tests() == [
        "no test of a.py ran: all were skipped: could not import 'torch'; run scripts/test"
    ]
    noted._ran = {"m::t"}
    assert noted.without_tests() == []
    assert (
        plugin.Plugin(json.loads(plugin.selections_file({"GEMM": Selection((), ("GEMM",), True)}))).without_tests()
        == []
    )


def test_tests_on_adapters_run_apart(tmp_path):
    shader = Selection(("tests/gpu/test_layout.py::test_a[*]", "tests/unit/catalog/test_enums.py"))
    numpy, adapters = command.run_tests({"a.wgsl": shader}, tmp_path)
    assert (numpy.command[-1], numpy.environment) == ("tests/unit/catalog/test_enums.py", {"DMLGPU_ADAPTER": "numpy"})
    assert (adapters.command[-1], adapters.environment) == ("tests/gpu/test_layout.py", {})
    assert json.loads((tmp_path / "tests.json").read_text())["a.wgsl"]["whole"] == ["tests/unit/catalog/test_enums.py"]
    assert json.loads((tmp_path / "tests on adapters.json").read_text())["a.wgsl"]["whole"] == [shader.whole[0]]
    page = Selection(words=("arrays.md",))
    assert [check.name for check in command.run_tests({"arrays.md": page}, tmp_path)] == ["tests of arrays.md"]


# ---- the command


def test_a_name_that_is_nothing_gets_a_hint(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check", "gather_nd3"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "'gather_nd3' is neither an operator nor a file of this checkout; similar names: gather_nd" in (
        capsys.readouterr().err
    )


def test_a_file_without_known_test_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "select_for_file", lambda file: Selection())
    _, failures = command.plan(Targets(files=("dmlgpu/cli/ops.py",)), tmp_path)
    assert failures == ["no test of dmlgpu/cli/ops.py is known; run scripts/test"]
    assert command.plan(Targets(files=("dmlgpu/bench/__init__.py",)), tmp_path)[1] == []


def test_tests_of_packages_that_are_not_installed_are_omitted_and_none_left_fails(tmp_path, monkeypatch, capsys):
    light, onnx = "tests/unit/catalog/test_enums.py", "tests/unit/frontends/onnx/test_onnx_attention.py"
    monkeypatch.setattr(command, "missing", lambda module: sorted(heavy(module)))
    assert command.installed("a.py", Selection((light, onnx))) == (Selection((light,)), "")
    assert "omitted: 1 of 2 tests, which need onnxruntime" in capsys.readouterr().out
    rest, failure = command.installed("dmlgpu/frontends/onnx/node.py", Selection((onnx,)))
    assert rest.whole == ()
    assert failure == (
        "no test of dmlgpu/frontends/onnx/node.py runs without onnxruntime: pip install -e '.[check-onnx]'"
    )


def test_the_checks_of_a_module_and_of_a_shader(tmp_path):
    checks, failures = command.plan(Targets(files=("dmlgpu/catalog/enums.py",)), tmp_path)
    assert failures == []
    assert [check.name for check in checks] == [
        "lint",
        "format",
        "words",
        "scripts/generate --check stubs",
        "parts of operators and schedules",
        "tests of dmlgpu/catalog/enums.py",
    ]
    checks, failures = command.plan(Targets(files=("shaders/indexing/gather_nd1.wgsl",)), tmp_path)
    assert failures == []
    run = next(check for check in checks if "cases" in check.name)
    assert "--require-driver" in run.command and run.command[-1].startswith("gather")
    assert any(check.name.startswith("tests of shaders/indexing") for check in checks)


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
    targets = Targets(files=("dmlgpu/conformance/cases/families/quantization.py", "dmlgpu/catalog/descs.py"))
    assert [check.command for check in command.generated(targets)] == [
        ("scripts/generate", "--check", "stubs"),
        ("scripts/generate", "--check", "counts"),
        ("-m", "checking.parts"),
    ]


def test_the_table_of_adapters_is_shown():
    assert command.summary("noise\nadapter   pass\nnumpy  3") == ["adapter   pass", "numpy  3"]


def test_hooks_of_commits_run_what_exists():
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = {hook["id"]: hook["entry"].split() for each in configuration["repos"] for hook in each["hooks"]}
    assert entries.keys() == {"format", "lint", "words"}
    for python, *arguments in entries.values():
        assert python == ".venv/bin/python"
        assert arguments[0] == "-m" or (ROOT / arguments[0]).is_file()


def test_paths_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    links = [path for path in re.findall(r"\]\(([^)#\s]+)", text) if ":" not in path]
    paths = re.findall(r"`(?:pytest )?((?:dmlgpu|docs|scripts|tests)/[\w./-]+)", text)
    assert len(links) > 10 and len(paths) > 20
    assert [path for path in (*links, *paths) if not (ROOT / path).exists()] == []
    for path, anchor in re.findall(r"\]\(([\w./-]+\.md)#([\w-]+)\)", text):
        titles = re.findall(r"(?m)^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"))
        assert anchor in [re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles]
