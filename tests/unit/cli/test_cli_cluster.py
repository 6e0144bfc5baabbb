"""``dmlgpu test --scheduler``: a run on a cluster like a run here, be a worker killed in it."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dmlgpu.cli.cluster import _chosen, _run, side_by_side
from dmlgpu.cli.main import main
from dmlgpu.cli.test import ConformanceRequest
from dmlgpu.common.errors import AdapterNotFound
from dmlgpu.conformance.cluster import ClusterAdapter
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.conformance.running.records import RecordedRun, facts, machine, read_runs
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.conformance.conformance_suite import MANY
from tests.unit.dask_cluster import DaskCluster, cluster, numpy

GOOD = [Outcome(name, Status.PASS) for name in "abc"]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as local_cluster:
        yield local_cluster


@pytest.fixture
def many(local, monkeypatch):
    """The suite of that name in this process, where the command selects its cases."""
    for path in local.environment["PYTHONPATH"].split(os.pathsep):
        monkeypatch.syspath_prepend(path)


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(local, many, tmp_path, capsys):
    path = tmp_path / "cluster.jsonl"
    with local.workers(*map(numpy, ("1.0", "1.0", "2.0"))) as workers:
        killer = threading.Thread(target=local.kill_one_at_work, args=(workers[:2],))
        killer.start()
        command = ["test", "--scheduler", local.address, "-a", "numpy", "--suite", "many", "-o", str(path)]
        assert main(command) == 1
        killer.join()
        assert sum(worker.process.poll() is not None for worker in workers) == 1
    local.wait_until(lambda: not local.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
    check_what_is_printed(capsys.readouterr(), local.address)
    check_what_is_written(read_runs(path), local)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def check_what_is_printed(printed, address: str) -> None:
    for line in printed.err.splitlines():
        assert re.fullmatch(r"\d+ of 80 cases, \d unexpected(, about [\w ]+ left)?(, in \d+ s)?", line), line
    assert "80 of 80 cases, 2 unexpected, in " in printed.err
    for version in ("1.0", "2.0"):
        again = f"dmlgpu test --suite many --scheduler {address} --adapter 'numpy {version}' -k bad-7"
        assert f"fail on numpy {version}: bad-7\n  1 of 2 elements" in printed.out
        assert f"  again: {again}\n" in printed.out
    heading, *rows = printed.out.splitlines()[-3:]
    assert re.split("  +", heading) == ["adapter", "pass", "fail", "not supported"]
    assert [row.split()[-3:] for row in rows] == [[str(len(MANY) - 2), "1", "1"]] * 2


def check_what_is_written(runs: Sequence[RecordedRun], local: DaskCluster) -> None:
    assert [run.is_complete for run in runs] == [True, True]
    assert [run.facts["adapter"]["driver"].partition(",")[0] for run in runs] == ["NumPy 1.0", "NumPy 2.0"]
    alone = {case.case: case for case in run_cases(Job("many", 0, environment=local.environment), MANY)}
    for run in runs:
        assert Counter(outcome.case for outcome in run.outcomes) == Counter(MANY)
        assert all(
            replace(outcome, seconds=0.0) == replace(alone[outcome.case], seconds=0.0) for outcome in run.outcomes
        )
        assert (run.facts["cases"], run.facts["suite"], run.facts["wgpu"]) == (len(MANY), "many", machine()["wgpu"])


def test_adapters_are_chosen_among_the_workers():
    infos = [replace(NUMPY_ADAPTER, driver=f"NumPy {version}") for version in ("1.0", "2.0", "3.0")]
    adapters = [ClusterAdapter(f"dmlgpu-{index}", info, {}) for index, info in enumerate(infos)]
    assert list(_chosen((), adapters)) == ["dmlgpu-0", "dmlgpu-1", "dmlgpu-2"]
    assert list(_chosen(("numpy 3.0", "0"), adapters)) == ["dmlgpu-2", "dmlgpu-0"]
    with pytest.raises(AdapterNotFound, match="no adapter matches 'metal'; available adapters:\n  0: NumPy: numpy"):
        _chosen(("metal",), adapters)


def test_a_lost_case_is_no_expected_failure(tmp_path, capsys):
    path = tmp_path / "known.toml"
    path.write_text('[[expected]]\ncases = "*"\nreason = "told so"\n')
    request = ConformanceRequest(expectations=(path,))
    vars(request)["names"] = ("a", "b")
    adapter = ClusterAdapter("dmlgpu-0", NUMPY_ADAPTER, {})
    outcomes = [Outcome("a", Status.CRASH), Outcome("b", Status.DEVICE_LOST, message="lost by the cluster: killed")]
    fake_cluster = SimpleNamespace(
        adapters=(adapter,), run=lambda adapters: ((adapter, outcome) for outcome in outcomes)
    )
    (counts,) = _run(fake_cluster, _chosen((), fake_cluster.adapters), request, "tcp://a:1").values()
    assert counts == {Status.EXPECTED_FAIL: 1, Status.DEVICE_LOST: 1}
    assert capsys.readouterr().out.splitlines()[:2] == ["device lost on numpy: b", "  lost by the cluster: killed"]


def test_runs_that_end_early_are_merged(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("the former content")
    header = facts(NUMPY_ADAPTER, "operators", "quick", "", ())
    headers = {name: {**header, "name": name} for name in ("first", "second")}
    with pytest.raises(KeyboardInterrupt), side_by_side(path, headers) as write:
        for name, outcome in zip(("first", "second", "first"), GOOD, strict=True):
            write(name, outcome)
        write("second", None)
        raise KeyboardInterrupt
    assert path.read_text() == "the former content"
    runs = read_runs(tmp_path / "runs.jsonl.part")
    assert [run.facts["name"] for run in runs] == ["first", "second"]
    assert [run.is_complete for run in runs] == [False, True]
    assert [[outcome.case for outcome in run.outcomes] for run in runs] == [["a", "c"], ["b"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-d", "all"],
            "dmlgpu: --drivers cannot be combined with --scheduler: the workers of a cluster have their own drivers\n",
        ),
        (
            ["--pairwise"],
            "Error: Invalid value: --pairwise cannot be combined with --scheduler: it compares local adapters\n",
        ),
    ],
)
def test_options_that_a_cluster_has_no_use_for_are_rejected(arguments, message, capsys):
    assert main(["test", "-k", "argmin-example1", "--scheduler", "tcp://localhost:9", *arguments]) == 2
    assert capsys.readouterr().err.endswith(message)


def test_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in [name for name in sys.modules if name.startswith(("dmlgpu.cli.cluster", "dmlgpu.conformance.cluster"))]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["test", "-k", "argmin-example1", "--scheduler", "tcp://localhost:9"]) == 1
    assert (
        capsys.readouterr().err
        == "dmlgpu: distributed is not installed; install it with: pip install 'dmlgpu[cluster]'\n"
    )
