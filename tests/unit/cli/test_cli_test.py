"""``dmlgpu test`` on the numpy adapter."""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from dmlgpu.cli.devices import choose_adapters
from dmlgpu.cli.main import invocation, main
from dmlgpu.cli.tables import INTERVAL, Progress
from dmlgpu.cli.test import ConformanceRequest, _report, default_workers, failure_lines, reproduce
from dmlgpu.common.errors import AdapterNotFound
from dmlgpu.compiler.target import SCHEDULES_VARIABLE, AdapterInfo
from dmlgpu.conformance.cases.keys import gpu_sample
from dmlgpu.conformance.drivers.discovery import KERNEL_VARIABLES, Discovery, LocatedAdapter
from dmlgpu.conformance.report.model import command as report_command
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.running.records import read_comparisons, read_runs
from dmlgpu.conformance.suites.registry import DEFAULT
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.conformance import conformance_suite
from tests.unit.conformance.altered_suite import VARIABLE, AlteredSuite

NUMPY = len(adapters()) - 1


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Registers suites, for this process and its children."""

    def install(*suite):
        for name, value in conformance_suite.install(tmp_path, *suite).items():
            monkeypatch.setenv(name, value)
            for path in value.split(os.pathsep):
                monkeypatch.syspath_prepend(path)

    return install


@pytest.fixture
def misbehaving(installed):
    """The suite of that name."""
    installed()


@pytest.fixture
def altered(installed, monkeypatch):
    """The suite of that name; every driver of the machine is the numpy adapter, and one of three is altered."""
    installed("altered", AlteredSuite)
    known = tuple(LocatedAdapter(NUMPY_ADAPTER, NUMPY, (), label) for label in ("numpy #1", "numpy #2"))
    altered = LocatedAdapter(NUMPY_ADAPTER, NUMPY, ((VARIABLE, "1"),), "altered")
    monkeypatch.setattr(
        "dmlgpu.cli.devices.all_drivers", lambda paths: Discovery((*known, altered), ("x.json: no answer",))
    )


def test_a_list(capsys):
    assert main(["test", "--suite", "operators", "--list", "-k", "argmin-example1"]) == 0
    assert capsys.readouterr().out == "argmin-example1\n"
    assert main(["test", "--suite", "operators", "--list", "-k", "argmin-example1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["argmin-example1"]


@pytest.mark.slow
def test_a_passing_run(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    assert main(["test", "-a", "numpy", "--suite", "operators", "-k", "argmin-example1", "-o", str(path)]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["adapter", "pass"]
    assert row.startswith(str(NUMPY_ADAPTER)) and row.endswith(" 1")
    (run,) = read_runs(path)
    assert [(outcome.case, outcome.status) for outcome in run.outcomes] == [("argmin-example1", Status.PASS)]


@pytest.mark.slow
def test_a_precise_run_is_written_down_as_one(misbehaving, tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-p", "full", "-k"]
    assert main([*command, "precise-1", "--precise", "-o", str(path)]) == 0
    (run,) = read_runs(path)
    assert (run.facts["precise"], run.outcomes[0].message) == (True, "precise: True")
    assert main([*command, "bad-1", "--precise"]) == 1
    assert "again: dmlgpu test --suite misbehaving --adapter numpy --precise -k bad-1" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failing_run(misbehaving, capsys):
    assert main(["test", "-a", "numpy", "--suite", "misbehaving", "-k", "bad-1"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == [
        "fail: bad-1",
        "  1 of 2 elements is wrong; the worst, at [1]: expected 4, got 5 from 3; 2 ULP off, must be exact",
        "  again: dmlgpu test --suite misbehaving --adapter numpy -k bad-1",
    ]
    assert out[3].split() == ["adapter", "fail"]


def test_the_kernels_of_a_wrong_result_are_named():
    outcome = Outcome(
        "gemm-x", Status.FAIL, wrong=1, elements=1, kernels=("gemm small (matrix/gemm)", "gemm merge (x/y)")
    )
    assert list(failure_lines(outcome, "dmlgpu test", ""))[2:] == [
        "  ran as: gemm small (matrix/gemm); gemm merge (x/y)",
        "  again: dmlgpu test",
    ]
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert "kernels" not in Outcome("gemm-x", Status.PASS).to_json()


def test_one_compile_error_is_printed_once(capsys):
    def error(case, kernel, fault):
        text = f"GEMM: kernel {kernel!r} does not compile on adapter: {fault}\n> 3 | let x = {kernel!r};"
        return Outcome(case, Status.FAIL, message=text, kernels=(f"{kernel} (matrix/gemm)",))

    outcomes = [error("gemm-1", "a", "no type"), error("gemm-2", "b", "no type"), error("gemm-3", "a", "no such name")]
    outcomes.append(Outcome("gemm-4", Status.FAIL, message="something else"))
    (adapter,) = choose_adapters(["numpy"])
    progress = Progress(io.StringIO(), len(outcomes))
    counts = Counter()
    job = Job("operators", 0, 1.0, 1, {}, "")
    _report(outcomes, counts, adapter=adapter, job=job, progress=progress, where="")
    assert counts == {Status.FAIL: 4}
    out = capsys.readouterr().out
    assert [out.count(text) for text in ("no type", "no such name", "something else")] == [1, 1, 1]
    assert out.endswith(
        "2 cases do not compile, with the same error as gemm-1:\n  gemm-1\n  gemm-2\n"
        "shader files shared by the failing cases:\n  3 of 3 cases with matrix/gemm; simplest: gemm-1\n"
    )
    assert "  would run as: a (matrix/gemm)\n" in out
    assert "fail: gemm-2" not in out and "fail: gemm-3\n" in out


# ---- progress


class Stream(io.StringIO):
    """A stream that is a terminal or not."""

    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


def progress_of(stream, times):
    """What a run of four cases, of which the second is bad, prints when its cases end at these times."""
    clock = iter([100.0, *times])
    progress = Progress(stream, 4, "card", lambda: next(clock))
    for done in range(1, 5):
        progress.show(done, int(done > 1))
    return stream.getvalue()


def test_progress_lines_without_a_terminal():
    times = (101.0, 101.0 + INTERVAL, 102.0 + INTERVAL, 103.0 + INTERVAL)
    assert progress_of(Stream(terminal=False), times) == (
        f"card: 2 of 4 cases, 1 unexpected, about {1 + INTERVAL:g} s left\n"
        f"card: 4 of 4 cases, 1 unexpected, in {3 + INTERVAL:g} s\n"
    )


def test_a_line_that_overwrites_itself_on_a_terminal():
    steps = progress_of(Stream(terminal=True), (101.0, 102.0, 103.0, 104.0)).split("\r")
    assert steps[1] == "card: 1 of 4 cases, 0 unexpected"
    assert steps[4].rstrip() == "card: 4 of 4 cases, 1 unexpected, in 4 s"


@pytest.mark.slow
def test_a_summary_without_a_terminal(capsys):
    assert main(["test", "-a", "numpy", "--suite", "operators", "-k", "argmin-example1"]) == 0
    assert re.fullmatch(r"1 of 1 case, 0 unexpected, in \d+ s\n", capsys.readouterr().err)


def test_the_time_left_and_the_running_case_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream, times = Stream(terminal=True), iter([100.0, 101.0, 160.0, 161.0, 162.0])
    progress = Progress(stream, 3, "", lambda: next(times))
    progress.start("gemm-a")
    progress.show(1, 0)
    progress.start("gemm-b")
    progress.clear()
    steps = [step for step in stream.getvalue().split("\r") if step.strip()]
    assert [step.rstrip() for step in steps] == [
        "0 of 3 cases, 0 unexpected: gemm-a",
        "1 of 3 cases, 0 unexpected, about 2 min left: gemm-a",
        "1 of 3 cases, 0 unexpected, about 2 min left: gemm-b",
    ]


def test_a_progress_line_is_no_wider_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Stream(terminal=True)
    Progress(stream, 3, "", lambda: 0.0).start("activation_leaky_relu-values-float32")
    assert stream.getvalue() == "\r0 of 3 cases, 0 unexpected: activation_"


# ---- which cases


def listed(capsys, *arguments):
    """The names that ``test --list`` prints."""
    assert main(["test", "--list", *arguments]) == 0
    return capsys.readouterr().out.split()


def stems(names):
    return {name.partition("-")[0] for name in names}


@pytest.mark.parametrize("arguments", [["GEMM"], ["--operator", "gemm"]])
def test_the_cases_of_an_operator(capsys, arguments):
    assert stems(listed(capsys, *arguments)) == {"gemm"}


def test_several_operators_and_a_pattern(capsys):
    assert stems(listed(capsys, "padding1", "--operator", "argmin")) == {"padding1", "argmin"}
    names = listed(capsys, "GEMM", "-k", "float16")
    assert names and all(name.startswith("gemm-") and "float16" in name for name in names)
    assert listed(capsys, "argmin-example1") == ["argmin-example1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gemmm"], "dmlgpu: DirectML has no operator 'gemmm'; similar names: GEMM"),
        (["layer_norm"], "dmlgpu: DirectML has no operator 'layer_norm'; "),
        (["hazards"], "dmlgpu: DirectML has no operator 'hazards'"),
        (["GEMM", "-k", "argmin"], "dmlgpu: no case of GEMM in the profile 'quick' matches -k argmin\n"),
    ],
)
def test_no_such_operator(arguments, message, capsys):
    assert main(["test", "--list", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_suite_that_is_given_as_an_operator_is_pointed_to(capsys):
    assert main(["test", "hazards"]) == 2
    assert capsys.readouterr().err.endswith("; --suite hazards is a suite\n")


def test_whole_words_come_before_parts_of_words(capsys):
    names = listed(capsys, "-k", "add")
    assert "element_wise_add1" in stems(names)
    assert all(re.search(r"(?<![a-z])add\d*(?![a-z])", name) for name in names)
    assert {"argmin", "argmax"} <= stems(listed(capsys, "-k", "arg"))


@pytest.mark.slow
def test_junit_with_a_run(misbehaving, tmp_path, capsys):
    path = tmp_path / "results.xml"
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "--junit", str(path)]
    assert main([*command, "-k", "bad-1", "-k", "good-1"]) == 1
    suites = ElementTree.parse(path).getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
    assert main([*command[:-1], str(tmp_path / "none" / "x.xml"), "-k", "good-1"]) == 2
    assert capsys.readouterr().err.endswith("none: there is no such folder\n")


def test_as_many_processes_as_suit_the_adapter(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr("dmlgpu.cli.test.host_memory", lambda: 64 << 30)
    card = replace(NUMPY_ADAPTER, name="card", backend="Vulkan", kind="discrete gpu")
    assert [default_workers(info) for info in (NUMPY_ADAPTER, card)] == [8, 4]
    assert default_workers(card, adapters=8) == 1
    assert default_workers(replace(card, backend="Browser")) == 1
    monkeypatch.setattr("dmlgpu.cli.test.host_memory", lambda: 9 << 30)
    assert [default_workers(info) for info in (NUMPY_ADAPTER, card)] == [2, 2]


# ---- what runs it again


@pytest.mark.parametrize(
    ("original", "program", "words"),
    [
        (["python", "-m", "dmlgpu", "test"], "/x/dmlgpu/__main__.py", ["python", "-m", "dmlgpu"]),
        (["/env/bin/python", "-P", "-m", "dmlgpu"], "/x/__main__.py", ["/env/bin/python", "-P", "-m", "dmlgpu"]),
        (["/env/bin/python", "/env/bin/dmlgpu", "test"], "/env/bin/dmlgpu", ["/env/bin/dmlgpu"]),
        (["python", "-m", "pytest"], "/x/pytest/__main__.py", ["dmlgpu"]),
    ],
)
def test_the_typed_command_reproduces_a_failure(monkeypatch, original, program, words):
    monkeypatch.setattr("sys.orig_argv", original)
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/dmlgpu")
    assert invocation() == words


def test_the_bare_name_where_the_shell_finds_this_program(monkeypatch):
    monkeypatch.setattr("sys.orig_argv", ["/env/bin/python", "/env/bin/dmlgpu"])
    monkeypatch.setattr("sys.argv", ["/env/bin/dmlgpu"])
    monkeypatch.setattr("shutil.which", lambda name: "/env/bin/dmlgpu")
    assert invocation() == ["dmlgpu"]


# ---- what is wrong, and what does not exist


@pytest.mark.parametrize(
    ("backends", "code"),
    [(["Vulkan", "OpenGL"], 0), (["Vulkan", "OpenGL", "NumPy"], 0), (["OpenGL", "NumPy"], 1), (["OpenGL"], 1)],
)
def test_an_adapter_without_a_device_is_skipped_among_others(backends, code, monkeypatch, capsys):
    infos = {backend: AdapterInfo("Card", backend, "discrete", "", "1.2") for backend in ("Vulkan", "OpenGL")}
    infos["NumPy"] = NUMPY_ADAPTER
    located = [LocatedAdapter(infos[backend], 0, label=f"Card {backend}") for backend in backends]
    refusal = f"{infos['OpenGL']}: the driver cannot create a device: Parent device is lost"

    def ran(job, names, *_):
        if job.adapter_text == str(infos["OpenGL"]):
            return (Outcome(name, Status.NOT_SUPPORTED, message=refusal, missing="device") for name in names)
        return (Outcome(name, Status.PASS) for name in names)

    monkeypatch.setattr("dmlgpu.cli.test.choose_adapters", lambda *_: tuple(located))
    monkeypatch.setattr("dmlgpu.cli.test.run_cases", ran)
    assert main(["test", "--adapter", "all", "-k", "argmin-example*"]) == code
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "Card OpenGL is skipped: the driver cannot create a device: Parent device is lost"


@pytest.mark.slow
def test_a_failure_that_was_expected(misbehaving, tmp_path, capsys):
    path = tmp_path / "known.toml"
    path.write_text('[[expected]]\ncases = "[bg]*-1"\nreason = "told so"\n')
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-e", str(path)]
    assert main([*command, "-k", "bad-1"]) == 0
    assert "expected fail" in capsys.readouterr().out
    assert main([*command, "-k", "good-1"]) == 1
    assert capsys.readouterr().out.startswith("unexpected pass: good-1\n  expected to fail: told so\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "no_such_case"], "dmlgpu: no case of the profile 'quick' matches 'no_such_case'\n"),
        (["--profile", "slow"], "dmlgpu: profile must be one of quick, got 'slow'\n"),
        (["-e", "missing.toml"], "dmlgpu: missing.toml: No such file or directory\n"),
        (
            ["-d", "missing.json"],
            "dmlgpu: missing.json must be a Vulkan driver's manifest, or a folder with such files (*.json)\n",
        ),
        (["--pairwise"], f"dmlgpu: --pairwise needs at least two adapters, got only {NUMPY_ADAPTER}\n"),
    ],
)
def test_missing_files_and_names_are_rejected(altered, arguments, message, capsys):
    assert main(["test", "-a", "numpy", "--suite", "altered", *arguments]) == 2
    assert capsys.readouterr().err == message


def test_names_are_quoted_in_commands():
    card = LocatedAdapter(replace(NUMPY_ADAPTER, name="card"), 2)
    job = Job("operators", 2)
    assert reproduce(Outcome("a b", Status.FAIL), job, card) == "dmlgpu test --adapter 2 -k 'a b'"
    precise = reproduce(Outcome("a", Status.FAIL), replace(job, precise=True), card)
    assert precise == "dmlgpu test --adapter 2 --precise -k a"
    hasty = reproduce(Outcome("a", Status.TIME_OUT), replace(job, time_limit=0.5), card)
    assert hasty == "dmlgpu test --adapter 2 --time-limit 0.5 -k a"


def test_a_time_limit_is_written_down(misbehaving, tmp_path):
    path = tmp_path / "run.jsonl"
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-p", "full", "-k", "precise-1", "--precise"]
    assert main([*command, "--time-limit", "90", "-o", str(path)]) == 0
    (run,) = read_runs(path)
    assert run.facts["time_limit"] == 90
    assert report_command(run).endswith(" --precise --time-limit 90 -k")


def test_a_run_ends_at_the_first_failure(misbehaving, tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-k", "bad-1", "-k", "good-1", "--workers", "1"]
    assert main([*command, "--fail-fast", "-o", str(path)]) == 1
    (run,) = read_runs(path)
    assert [outcome.case for outcome in run.outcomes] == ["bad-1"] and not run.is_complete
    assert "stopped after 1 of 2 cases, since --fail-fast is given" in capsys.readouterr().out
    assert main([*command, "-x", "--pairwise"]) == 2
    assert "--fail-fast cannot be combined with --pairwise or --scheduler" in capsys.readouterr().err


def test_every_adapter_with_kernels_runs_under_both_schedules(monkeypatch, tmp_path, capsys):
    card = LocatedAdapter(adapters()[0], 0, (("VK_DRIVER_FILES", "a.json"),), "card")
    numpy = LocatedAdapter(NUMPY_ADAPTER, NUMPY, (), "numpy")
    monkeypatch.setattr("dmlgpu.cli.test.choose_adapters", lambda *_: (card, numpy))
    monkeypatch.setenv(SCHEDULES_VARIABLE, "cpu")
    jobs = []

    def passes(job, names, *_):
        jobs.append(job)
        yield from (Outcome(name, Status.PASS) for name in names)

    monkeypatch.setattr("dmlgpu.cli.test.run_cases", passes)
    path = tmp_path / "runs.jsonl"
    assert main(["test", "-a", "all", "-k", "argmin-example1", "--schedules", "both", "-o", str(path)]) == 0
    requested = [job.environment.get(SCHEDULES_VARIABLE) for job in jobs]
    assert requested == ["cpu", "gpu", "cpu"]  # that of numpy is the variable's
    assert f"{card.info}, gpu schedules" in capsys.readouterr().out
    again = [report_command(run) for run in read_runs(path)]
    assert again[1].startswith("VK_DRIVER_FILES=a.json DMLGPU_SCHEDULES=gpu dmlgpu test ")


@pytest.mark.parametrize("variable", [*KERNEL_VARIABLES, "DMLGPU_MEMORY_BUDGET"])
@pytest.mark.parametrize(
    "words", [(), ("--pairwise",), ("--scheduler", "tcp://a:1")], ids=["alone", "pairs", "cluster"]
)
def test_a_wrong_value_of_the_environment_is_one_error(variable, words, monkeypatch, capsys):
    monkeypatch.setenv(variable, "tpu")
    monkeypatch.setattr("dmlgpu.cli.test.run_cases", lambda *_: pytest.fail("a case runs"))
    assert main(["test", "-k", "argmin-example1", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("tpu") == 1 and variable in error


def test_whole_quick_runs_sample_the_schedules_of_gpus_on_cpu_adapters(monkeypatch):
    soft = LocatedAdapter(replace(adapters()[0], kind="cpu"), 0, (), "soft")
    card = LocatedAdapter(replace(adapters()[0], kind="discrete"), 1, (), "card")
    numpy = LocatedAdapter(NUMPY_ADAPTER, NUMPY, (), "numpy")
    monkeypatch.delenv(SCHEDULES_VARIABLE, raising=False)

    def runs_of(**options: Any) -> list[tuple[str, int]]:
        runs = ConformanceRequest(**options).runs((soft, card, numpy))
        return [(dict(adapter.environment).get(SCHEDULES_VARIABLE, ""), len(names)) for adapter, names in runs]

    for suite in (DEFAULT, "operators"):
        count = len(ConformanceRequest(suite=suite).names)
        assert runs_of(suite=suite) == [("gpu", len(gpu_sample())), *[("", count)] * 3]
    without = ({"patterns": ("reduce",)}, {"operators": ("reduce",)}, {"profile": "standard"}, {"suite": "sizes"})
    for options in without:
        assert [schedules for schedules, _ in runs_of(**options)] == ["", "", ""]
    assert [schedules for schedules, _ in runs_of(schedules="cpu")] == ["cpu", "cpu", ""]
    monkeypatch.setenv(SCHEDULES_VARIABLE, "cpu")
    assert len(runs_of()) == 3


def test_a_sample_is_a_run_of_its_own(monkeypatch, tmp_path, capsys):
    soft = LocatedAdapter(replace(adapters()[0], kind="cpu"), 0, (), "soft")
    monkeypatch.delenv(SCHEDULES_VARIABLE, raising=False)
    monkeypatch.setattr("dmlgpu.cli.test.choose_adapters", lambda *_: (soft,))
    monkeypatch.setattr(
        "dmlgpu.cli.test.run_cases", lambda _, names, *__: (Outcome(name, Status.PASS) for name in names)
    )
    path = tmp_path / "runs.jsonl"
    assert main(["test", "--suite", "operators", "-o", str(path)]) == 0
    sample, whole = read_runs(path)
    assert {outcome.case for outcome in sample.outcomes} == gpu_sample()
    assert len(whole.outcomes) == len(ConformanceRequest(suite="operators").names)
    assert report_command(sample).startswith("DMLGPU_SCHEDULES=gpu ")
    assert "soft, gpu schedules: 28 of 28 cases" in capsys.readouterr().err


def test_unknown_schedules_are_rejected(capsys):
    assert main(["test", "-a", "numpy", "--schedules", "tpu"]) == 2
    assert "--schedules must be one of cpu, gpu, both, got 'tpu'" in capsys.readouterr().err
    assert main(["test", "--schedules", "gpu", "--scheduler", "tcp://a:1"]) == 2
    assert "--schedules cannot be combined with --scheduler or --browser" in capsys.readouterr().err


def test_an_interrupted_run_says_what_it_found_and_keeps_its_part(misbehaving, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        yield Outcome("good-1", Status.PASS)
        raise KeyboardInterrupt

    monkeypatch.setattr("dmlgpu.cli.test.run_cases", interrupted)
    path = tmp_path / "run.jsonl"
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-k", "good-1", "-k", "bad-1", "-o", str(path)]
    assert main(command) == 130
    *_, counted, last = capsys.readouterr().out.splitlines()
    assert counted.split()[-1] == "1"
    assert last == f"interrupted after 1 of 2 cases, recorded in {path}.part"
    assert not path.exists()
    (run,) = read_runs(tmp_path / "run.jsonl.part")
    assert not run.is_complete and [outcome.case for outcome in run.outcomes] == ["good-1"]


@pytest.mark.slow
def test_a_failure_without_quirks_is_repeated_without_them(misbehaving, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DMLGPU_QUIRKS", "")
    path = tmp_path / "runs.jsonl"
    assert main(["test", "-a", "numpy", "--suite", "misbehaving", "-k", "bad-1", "--no-quirks", "-o", str(path)]) == 1
    assert "again: DMLGPU_QUIRKS=off dmlgpu test " in capsys.readouterr().out
    (run,) = read_runs(path)
    assert run.facts["environment"] == {"DMLGPU_QUIRKS": "off"}


# ---- without a GPU


@pytest.fixture
def no_driver(monkeypatch):
    """No driver has an adapter."""
    for name in ("adapters", "dawn_adapters"):
        monkeypatch.setattr(f"dmlgpu.runtime.wgpu.{name}", lambda: ())
    monkeypatch.setattr("dmlgpu.cli.devices.all_drivers", lambda paths: Discovery((LocatedAdapter(NUMPY_ADAPTER, 0),)))
    monkeypatch.delenv("DMLGPU_ADAPTER", raising=False)


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        ([], ""),
        ([], "0"),
        (["-a", "all"], ""),
        (["-a", "0"], "llvmpipe"),
        (["-d", "all"], "llvmpipe"),
        (["-d", "all", "-a", "0"], ""),
    ],
)
def test_the_reference_is_not_tested_instead_of_a_gpu(no_driver, arguments, variable, monkeypatch, capsys):
    monkeypatch.setenv("DMLGPU_ADAPTER", variable)
    assert main(["test", "--suite", "operators", "-k", "argmin-example1", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "dmlgpu: no GPU adapter was found; pass --adapter numpy to compare the reference with itself\n"
    )


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [(["-a", "numpy"], ""), (["-a", "NumPy"], ""), ([], "numpy"), (["-d", "all", "-a", "numpy"], "")],
)
def test_the_reference_is_tested_if_it_is_requested(no_driver, arguments, variable, monkeypatch):
    tested = []
    monkeypatch.setenv("DMLGPU_ADAPTER", variable)
    monkeypatch.setattr("dmlgpu.cli.test.run_cases", lambda job, *rest: tested.append(job.adapter) or ())
    assert main(["test", "--suite", "operators", "-k", "argmin-example1", *arguments]) == 0
    assert len(tested) == 1


# ---- drivers side by side


def cells(lines):
    """Return the cells of a plain table."""
    return [re.split(r"\s{2,}", line) for line in lines]


@pytest.mark.slow
def test_all_drivers_in_one_file_and_one_table(altered, tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    assert main(["test", "-d", "all", "-a", "#1", "-a", "2", "--suite", "altered", "-k", "far-1", "-o", str(path)]) == 1
    captured = capsys.readouterr()
    problem, *progress = captured.err.splitlines()
    assert problem == "dmlgpu: x.json: no answer"
    assert [line.partition(",")[0] for line in progress] == ["numpy #1: 1 of 1 case", "altered: 1 of 1 case"]
    lines = captured.out.splitlines()
    assert lines[:2] == [
        "fail on altered: far-1",
        f"  again: {VARIABLE}=1 dmlgpu test --suite altered --adapter numpy -k far-1",
    ]
    assert cells(lines[2:]) == [
        ["adapter", "pass", "fail"],
        [str(NUMPY_ADAPTER), "1", "0"],
        [str(NUMPY_ADAPTER), "0", "1"],
    ]
    runs = read_runs(path)
    assert [run.outcomes[0].status.value for run in runs] == ["pass", "fail"]
    assert [run.facts.get("environment") for run in runs] == [None, {VARIABLE: "1"}]


@pytest.mark.parametrize(
    ("requested", "labels"),
    [
        ((), ["numpy #1", "numpy #2", "altered"]),
        (("all",), ["numpy #1", "numpy #2", "altered"]),
        (("#",), ["numpy #1", "numpy #2"]),
        (("2", "alt"), ["altered"]),
        (("ALTERED", "0"), ["altered", "numpy #1"]),
    ],
)
def test_some_of_the_drivers(altered, requested, labels):
    assert [adapter.label for adapter in choose_adapters(requested, ["all"])] == labels


def test_an_adapter_of_another_driver_is_pointed_to(altered, capsys):
    assert main(["test", "-a", "Altered", "--suite", "altered"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (f"dmlgpu: no adapter matches 'Altered': --drivers all finds {NUMPY_ADAPTER}; available adapters:")


@pytest.mark.parametrize("requested", ["card", "7"])
def test_no_hint_for_adapters_that_no_driver_has(altered, requested):
    with pytest.raises(AdapterNotFound) as error:
        choose_adapters([requested])
    assert "--drivers" not in str(error.value)


def test_several_patterns(capsys):
    patterns = ["-k", "ARGMIN-example1", "-k", "argmax-exam*"]
    assert main(["test", "--suite", "operators", "--list", *patterns]) == 0
    names = capsys.readouterr().out.split()
    assert "argmin-example1" in names and {name.partition("-")[0] for name in names} == {"argmin", "argmax"}


@pytest.mark.parametrize("requested", ["card", "3"])
def test_none_of_the_drivers(altered, requested):
    with pytest.raises(AdapterNotFound) as error:
        choose_adapters([requested], ["all"])
    assert str(error.value) == str(AdapterNotFound(requested, [str(NUMPY_ADAPTER)] * 3))


def test_drivers_without_adapters(altered, monkeypatch, capsys):
    monkeypatch.setattr("dmlgpu.cli.devices.all_drivers", lambda paths: Discovery(()))
    assert main(["test", "-d", "all", "--suite", "altered"]) == 2
    assert capsys.readouterr().err == "dmlgpu: --drivers all: no adapter was found\n"


@pytest.mark.slow
def test_an_adapter_that_differs_from_the_others(altered, tmp_path, capsys):
    path = tmp_path / "pairs.jsonl"
    command = ["test", "--pairwise", "-d", "all", "--suite", "altered", "-o", str(path), "-k"]
    assert main([*command, "*ar-1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    apart = "1 of 2 elements; the worst, at [1] of output 0: 1.0 and 1.0000004; 150 % of the tolerance, "
    apart += "3 ULP off, allowed difference 2.38419e-07 (1 ULP)"
    assert lines[:5] == [
        "disagree: far-1",
        "  altered differs from the others, which agree",
        f"  numpy #1 / altered: {apart}",
        f"  numpy #2 / altered: {apart}",
        "  again: dmlgpu test --pairwise --drivers all --suite altered -k far-1",
    ]
    alone = {"numpy #1": "0", "numpy #2": "0", "altered": "1"}
    assert cells(lines[6:9]) == [[label, count, str(NUMPY_ADAPTER)] for label, count in alone.items()]
    assert cells(lines[10:]) == [
        ["pair", "same bits", "agree", "disagree", "worst"],
        ["numpy #1 / numpy #2", "2", "2", "0", "exact"],
        ["numpy #1 / altered", "0", "1", "1", "150 % of the tolerance"],
        ["numpy #2 / altered", "0", "1", "1", "150 % of the tolerance"],
    ]
    (comparison,) = read_comparisons(path)
    assert [(case, label) for case, label, _ in comparison.disagreements] == [("far-1", "altered")]
    assert list(comparison.facts["adapters"]) == list(alone)


@pytest.mark.slow
def test_an_adapter_without_a_result(altered, capsys):
    command = ["test", "--pairwise", "-d", "all", "-a", "altered", "-a", "1", "--suite", "altered"]
    assert main([*command, "-k", "raises-1"]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        "no result: raises-1",
        "  altered: fail: output_tensor: 4 bytes were written out of bounds, the first at byte -4",
        "  again: dmlgpu test --pairwise --drivers all --adapter altered --adapter 1 --suite altered -k raises-1",
    ]


@pytest.mark.slow
def test_a_disagreement_that_was_expected(altered, tmp_path, capsys):
    path = tmp_path / "known.toml"
    path.write_text('[[expected]]\ncases = "far-1"\nreason = "told so"\n')
    command = ["test", "--pairwise", "-d", "all", "-a", "0", "-a", "altered", "--suite", "altered"]
    assert main([*command, "-k", "far-1", "-e", str(path)]) == 0
    assert cells(capsys.readouterr().out.splitlines()[4:]) == [
        ["pair", "same bits", "expected", "worst"],
        ["numpy #1 / altered", "0", "1", "150 % of the tolerance"],
    ]


def test_a_suite_that_only_judges_cannot_be_compared(misbehaving, capsys):
    assert main(["test", "--pairwise", "--suite", "misbehaving"]) == 2
    assert capsys.readouterr().err == (
        "dmlgpu: the suite 'misbehaving' cannot be run pairwise: it returns no outputs\n"
    )
