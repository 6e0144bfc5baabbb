"""Cases in child processes: a crash or a hang costs one case, and is reported."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import time
from dataclasses import replace

import pytest

from dmlgpu.cli import tables
from dmlgpu.common.errors import DeviceRemoved, DmlError, NotSupported
from dmlgpu.conformance.running import pool, worker
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess, map_unordered, run_cases, run_repeatedly
from dmlgpu.conformance.running.worker import CaseServer
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.conformance import conformance_suite

NUMPY = len(adapters()) - 1
TIME_LIMIT = 5.0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    environment = conformance_suite.install(tmp_path_factory.mktemp("package"))
    return Job("misbehaving", NUMPY, TIME_LIMIT, environment=environment)


@pytest.fixture(scope="module")
def outcomes(job: Job) -> dict[str, Outcome]:
    """All cases, one after the other; none that hangs is a child's first, which may take longer."""
    worker = WorkerProcess(job)
    with contextlib.closing(worker):
        return {name: worker.run(name) for name in conformance_suite.NAMES}


@pytest.mark.slow
def test_every_case_has_an_outcome(outcomes):
    assert {name: outcome.status.value for name, outcome in outcomes.items()} == {
        "good-1": "pass",
        "bad-1": "fail",
        "hang-1": "time-out",
        "good-2": "pass",
        "crash-1": "crash",
        "refused-1": "not supported",
        "raises-1": "fail",
        "broken-1": "fail",
        "lost-1": "device lost",
        "good-3": "pass",
    }


@pytest.mark.slow
@pytest.mark.parametrize("precise", [True, False])
def test_children_open_the_device_of_the_job(job, precise):
    worker = WorkerProcess(replace(job, precise=precise))
    with contextlib.closing(worker):
        assert worker.run("precise-1").message == f"precise: {precise}"


class NoWorker:
    """A worker of no child."""

    def interrupt(self): ...

    def close(self): ...


def test_the_first_cases_predict_the_time_of_all(monkeypatch):
    """Graphs come late in the list and take five times as long as operators."""
    seconds = {f"element_wise_add-float32-{size}-packed-s0": 0.03 for size in range(1400)}
    seconds |= {f"graph-float32-{size}-s0": 0.15 for size in range(100)}
    names, order, file = tuple(seconds), list[str](), io.StringIO()
    assert len(list(map_unordered([NoWorker()], names, lambda worker, name: order.append(name)))) == len(names)
    assert sorted(order) == sorted(names)
    clock = iter([0.0, *itertools.accumulate(seconds[name] for name in order)])
    monkeypatch.setattr(tables, "INTERVAL", 1.0)
    progress = tables.Progress(file, len(names), clock=lambda: next(clock))
    for done in range(1, len(names) + 1):
        progress.show(done, 0)
    estimates = re.findall(r"^([\d,]+) of .* about (\d+) s left$", file.getvalue(), re.MULTILINE)
    assert len(estimates) > 30
    for done, estimate in estimates:
        left = sum(seconds[name] for name in order[int(done.replace(",", "")) :])
        assert float(estimate) == pytest.approx(left, rel=0.15, abs=1)


class Ended:
    """A child that takes requests and ends at once."""

    def __init__(self):
        self.stdin, self.stdout = io.StringIO(), io.StringIO()

    def kill(self): ...

    def wait(self, timeout=None):
        return -9


@pytest.mark.parametrize("status", [Status.CRASH, Status.TIME_OUT])
def test_a_crash_or_a_hang_names_the_announced_kernels(job, status):
    worker = WorkerProcess(replace(job, time_limit=0.2))
    with contextlib.closing(worker):
        worker.child._process = Ended()
        for kernels in (["gemm a (x/y)"], ["gemm b (x/y)", "gemm a (x/y)"]):
            worker.child._answers.put(json.dumps({"kernels": kernels}))
        if status is Status.CRASH:
            worker.child._answers.put("")
        outcome = worker.run("gemm-1")
    assert (outcome.status, outcome.kernels) == (status, ("gemm a (x/y)", "gemm b (x/y)"))


class Compiling:
    """Says for each case what it compiles, and fails."""

    def run(self, name, device):
        self.server.tell_kernels((f"{name} a", f"{name} b"))
        raise DmlError("no")


def test_a_case_that_raises_names_the_kernels_of_that_case():
    suite, answers = Compiling(), io.StringIO()
    suite.server = CaseServer(suite, answers)
    suite.server.serve(Device("numpy"), io.StringIO('"one"\n"two"\n'))
    ready, *records = map(json.loads, answers.getvalue().splitlines())
    assert ready == "ready"
    assert records[0] == {"kernels": ["one a", "one b"]}
    assert [record["kernels"] for record in records if "case" in record] == [["one a", "one b"], ["two a", "two b"]]


@pytest.mark.slow
def test_outcomes_say_why(outcomes):
    first, *printed = outcomes["crash-1"].message.splitlines()
    assert first == "the process ended with exit code 3"
    assert printed[-2:] == ["a driver prints this to standard output", "about to crash"]
    assert outcomes["refused-1"].message == "needs the adapter feature shader-f64"
    assert outcomes["lost-1"].message == "the device is gone"
    assert outcomes["raises-1"].message == "every adapter must run it"
    assert outcomes["broken-1"].message == "ZeroDivisionError: in the case itself"


@pytest.mark.slow
def test_a_child_is_replaced_after_many_cases(job, monkeypatch):
    monkeypatch.setattr(pool, "CASES_PER_CHILD", 2)
    with contextlib.closing(WorkerProcess(job)) as worker:
        assert [worker.run("good-1").status for _ in range(5)] == [Status.PASS] * 5
        assert worker.child.generation == 3


@pytest.mark.slow
def test_another_adapter_does_not_take_the_place_of_one_whose_driver_is_gone(job):
    with contextlib.closing(WorkerProcess(replace(job, adapter_text="Vulkan: card (driver 1.0)"))) as worker:
        outcome = worker.run("good-1")
    assert outcome.status is Status.CRASH
    assert outcome.message.splitlines() == [
        "the process ended with exit code 1",
        f"adapter {NUMPY} is {NUMPY_ADAPTER} here, not Vulkan: card (driver 1.0)",
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            NotSupported("the driver cannot create a device"),
            [("a", "not supported", "device"), ("b", "not supported", "device")],
        ),
        (DeviceRemoved("the page is away"), [("a", "device lost", "")]),
    ],
)
def test_a_device_that_cannot_be_opened_costs_no_child(error, expected, monkeypatch):
    """A page may come back for the next child; a driver that creates no device will not."""

    def refuse(*_: object, **__: object) -> Device:
        raise error

    monkeypatch.setattr(worker, "open_device", refuse)
    answers = io.StringIO()
    monkeypatch.setattr(worker, "answer_stream", lambda: contextlib.nullcontext(answers))
    monkeypatch.setattr(worker, "exit_with_parent", lambda: None)
    monkeypatch.setattr("sys.argv", ["worker", "operators", "0", "", ""])
    monkeypatch.setattr("sys.stdin", io.StringIO('"a"\n"b"\n'))
    assert worker.main() == 0
    _, *records = map(json.loads, answers.getvalue().splitlines())
    outcomes = [Outcome.from_json(record) for record in records]
    assert [(outcome.case, outcome.status, outcome.missing) for outcome in outcomes] == expected
    assert {outcome.message for outcome in outcomes} == {str(error)}


@pytest.mark.slow
def test_a_hang_ends_at_the_limit(outcomes):
    assert (outcomes["hang-1"].message, outcomes["hang-1"].seconds) == ("no result after 5 s", TIME_LIMIT)


@pytest.mark.slow
def test_a_stopped_session_leaves_no_child(job):
    session = run_cases(replace(job, time_limit=1000.0), ["good-3", "hang-1"])
    assert next(session).case == "good-3"
    start = time.monotonic()
    session.close()
    assert time.monotonic() - start < 100


class Scripted(WorkerProcess):
    """Answers as told."""

    def __init__(self, repeat: int, *answers: Outcome):
        self.job, self.answers = Job("none", 0, repeat=repeat), list(answers)

    def run(self, name: str) -> Outcome:
        return self.answers.pop(0)


INF = float("inf")
GOOD = Outcome("a", Status.PASS, of_bound=0.5, digest="11")
BAD = Outcome("a", Status.FAIL, of_bound=4.5, digest="22")


@pytest.mark.parametrize(
    ("repeat", "answers", "status", "left"),
    [
        (1, [GOOD, BAD], Status.PASS, 1),  # passed once is enough
        (1, [BAD, BAD, GOOD], Status.FAIL, 1),  # a failure is tried twice
        (1, [BAD, GOOD], Status.FLAKY, 0),
        (3, [GOOD, GOOD, BAD], Status.FLAKY, 0),
        (2, [GOOD, Outcome("a", Status.PASS, of_bound=0.5, digest="33")], Status.FLAKY, 0),  # other bits
        (3, [GOOD, GOOD, GOOD], Status.PASS, 0),
    ],
)
def test_flaky_cases(repeat, answers, status, left):
    worker = Scripted(repeat, *answers)
    assert run_repeatedly(worker, "a").status is status
    assert len(worker.answers) == left


def test_a_flaky_case_shows_both_runs():
    outcome = run_repeatedly(Scripted(1, BAD, GOOD), "a")
    assert (
        outcome.message == "run 1: fail, 450 % of the tolerance, bits 22; run 2: pass, 50 % of the tolerance, bits 11"
    )
    assert outcome.of_bound == 4.5


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("argmin-x", Status.FAIL, "exact", INF, INF, 0.5, 1, 2, (0, 1), ("1", "2"), "3", "nan", INF),
        Outcome("argmin-x", Status.NOT_SUPPORTED, message="no", missing="shader-f64"),
    ],
)
def test_outcomes_survive_json(outcome):
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json(), allow_nan=False))) == outcome
