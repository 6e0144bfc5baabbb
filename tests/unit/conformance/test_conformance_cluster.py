"""Cases on the workers of a Dask cluster: distributed, none lost and none repeated, even if workers are lost."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import CancelledError

from dmlgpu.common import dask_client
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance import cluster as cluster_module
from dmlgpu.conformance.cluster import (
    SHARD_SIZE,
    Announcement,
    Cluster,
    ClusterAdapter,
    ClusterJob,
    ShardQueue,
    _resource,
    announce,
    differences,
)
from dmlgpu.conformance.drivers import discovery
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, by_hash
from dmlgpu.conformance.running.records import machine
from dmlgpu.conformance.suites.registry import list_digest
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.conformance.conformance_suite import MANY
from tests.unit.dask_cluster import DaskCluster, cluster, numpy

GOOD = [Outcome(name, Status.PASS) for name in "abc"]
ORDER = tuple(by_hash(MANY))
"""Cases in the order in which they run: every beginning is a sample of all."""

# ---- the books of one adapter ---------------------------------------------------------------------------------------


def waiting(queue: ShardQueue) -> list[tuple[str, ...]]:
    return list(iter(queue.next, None))


def test_cases_are_shared_out_in_order():
    assert waiting(ShardQueue("abcde", size=2)) == [("a", "b"), ("c", "d"), ("e",)]


def test_an_outcome_counts_once():
    queue = ShardQueue("abc", size=3)
    shard = queue.next()
    assert list(queue.complete(shard, GOOD)) == GOOD
    assert list(queue.complete(shard, [Outcome("a", Status.FAIL), *GOOD])) == []
    assert not queue.missing


def test_a_returned_shard_runs_first_without_its_finished_cases():
    queue = ShardQueue("abcd", size=2)
    shard = queue.next()
    queue.put_back(shard)
    assert list(queue.complete(("a",), GOOD[:1])) == GOOD[:1]
    assert waiting(queue) == [("b",), ("c", "d")]


def test_a_failed_shard_is_tried_case_by_case():
    queue = ShardQueue("abc", size=3)
    assert list(queue.fail(queue.next(), "killed")) == []
    assert waiting(queue) == [("a",), ("b",), ("c",)]
    assert list(queue.complete(("a",), GOOD[:1])) == GOOD[:1]
    assert list(queue.fail(("b",), "killed")) == [
        Outcome("b", Status.DEVICE_LOST, message="lost by the cluster: killed")
    ]
    assert list(queue.missing) == ["c"]


def test_a_result_that_lacks_cases_is_a_failure():
    queue = ShardQueue("ab", size=2)
    assert list(queue.complete(queue.next(), GOOD[:1])) == GOOD[:1]
    assert waiting(queue) == [("b",)]
    (lost,) = queue.complete(("b",), GOOD[:1])
    assert (lost.case, lost.status) == ("b", Status.DEVICE_LOST)


def test_abandoned_cases_are_reported():
    queue = ShardQueue("abc", size=2)
    list(queue.complete(queue.next(), GOOD[:2]))
    assert list(queue.give_up("gone")) == [Outcome("c", Status.DEVICE_LOST, message="lost by the cluster: gone")]
    assert queue.next() is None and not queue.missing


def job(names: tuple[str, ...] = MANY, patience: float = 60.0) -> ClusterJob:
    return ClusterJob(Job("many", 0), "quick", (), names, patience=patience)


# ---- one adapter's shards on their way ------------------------------------------------------------------------------


class Future:
    """What a cluster returns: for a shard an outcome per case, or what the test says."""

    def __init__(self, shard: Sequence[str]):
        self.result_of_shard: Any = [Outcome(name, Status.PASS) for name in shard]
        self.status, self.is_released = "pending", False

    def done(self) -> bool:
        return self.status != "pending"

    def finish(self, error: Exception | None = None, status: str = "finished") -> None:
        self.status, self.error = status, error

    def result(self, timeout: float) -> Any:
        if self.error is not None:
            raise self.error
        return self.result_of_shard

    def release(self) -> None:
        self.is_released = True


class Client:
    """Takes shards, and does nothing with them."""

    def __init__(self):
        self.futures, self.shards = [], []

    def submit(self, function, job, resource, shard, processes, *, resources, pure):
        assert resources == {"dmlgpu-0": 1} and not pure
        self.shards.append(shard)
        self.futures.append(Future(shard))
        return self.futures[-1]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def run(client: Client) -> cluster_module._AdapterRun:
    return cluster_module._AdapterRun(client, job(patience=60.0), ClusterAdapter("dmlgpu-0", NUMPY_ADAPTER, {}))


def test_a_worker_has_one_shard_ahead(run, client):
    assert list(run.poll(1)) == []
    assert client.shards == [ORDER[:SHARD_SIZE], ORDER[SHARD_SIZE:]]
    client.futures[1].finish()
    assert [outcome.case for outcome in run.poll(1)] == list(ORDER[SHARD_SIZE:])
    assert [future.is_released for future in client.futures] == [False, True]


def test_shards_of_lost_workers_go_out_again_when_another_comes(run, client):
    for capacity in (1, 0, 0, 1):
        assert list(run.poll(capacity)) == []
    assert [future.is_released for future in client.futures] == [True, True, False, False]
    assert sorted(client.shards[2:]) == sorted(client.shards[:2])


def test_after_some_time_without_workers_cases_are_lost(run, client, monkeypatch):
    now = iter([10.0, 69.0, 70.0])
    monkeypatch.setattr(cluster_module.time, "monotonic", lambda: next(now))
    list(run.poll(1))
    client.futures[0].finish()
    assert len(list(run.poll(0))) == SHARD_SIZE
    assert list(run.poll(0)) == []
    lost = list(run.poll(0))
    why = "lost by the cluster: no worker with this adapter is left, and none joined within 60 s"
    assert lost == [Outcome(name, Status.DEVICE_LOST, message=why) for name in ORDER[SHARD_SIZE:]]
    assert not run.queue.missing


def test_a_result_that_was_lost_with_its_worker_is_waited_for(run, client):
    list(run.poll(1))
    client.futures[0].finish(TimeoutError("no answer"))
    assert list(run.poll(1)) == []
    client.futures[0].finish()
    assert len(list(run.poll(1))) == SHARD_SIZE
    assert len(client.shards) == 2


@pytest.mark.parametrize("error", [RuntimeError("killed"), TimeoutError("within the task")])
def test_a_case_that_costs_workers_is_lost_alone(run, client, error):
    list(run.poll(1))
    client.futures[1].finish(error, "error")
    assert list(run.poll(1)) == []
    assert client.shards[2:] == [(ORDER[SHARD_SIZE],)]
    client.futures[2].finish(error, "error")
    (lost,) = run.poll(1)
    assert lost == Outcome(ORDER[SHARD_SIZE], Status.DEVICE_LOST, message=f"lost by the cluster: {error}")


def test_a_cancelled_shard_goes_out_again(run, client):
    list(run.poll(1))
    client.futures[0].finish(CancelledError(), "canceled")
    assert list(run.poll(1)) == []
    assert client.shards[2] == client.shards[0]


# ---- who is like whom -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "software", "is_same"),
    [
        ({}, {}, True),
        ({"limits": {"max-buffer-size": 1}}, {"os": "another", "commit": ""}, True),
        ({"driver": "NumPy 9"}, {}, False),
        ({"name": "another"}, {}, False),
        ({}, {"python": f"{sys.version_info.major}.{sys.version_info.minor}.99"}, True),
        ({}, {"python": "3.99.0"}, False),
        ({}, {"wgpu": "9"}, False),
        ({}, {"shaders": "00"}, False),
    ],
)
def test_workers_share_an_adapter_of_the_same_driver_and_software(change, software, is_same):
    this_machine = machine()
    names = {
        _resource(NUMPY_ADAPTER, this_machine),
        _resource(replace(NUMPY_ADAPTER, **change), {**this_machine, **software}),
    }
    assert len(names) == (1 if is_same else 2)


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"os": "another", "numpy": "9"}, ()),
        ({"python": "3.11.99"}, ()),
        ({"python": "3.99.0"}, ("python 3.99 there, 3.11 here",)),
        ({"commit": ""}, ()),
        ({"commit": "0123", "wgpu": "9"}, ("commit 0123 there, abcd here", "wgpu 9 there, 0.32.0 here")),
    ],
)
def test_differences_of_software(theirs, said):
    own = {"dmlgpu": "1", "commit": "abcd", "shaders": "11", "wgpu": "0.32.0", "python": "3.11.7"}
    assert differences(own, {**own, **theirs}) == said


# ---- who is there ---------------------------------------------------------------------------------------------------


class FakeClient:
    """A client of a cluster with one worker, which has one adapter and offers what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.futures: list[Future] = []
        self.resources: dict[str, int] = {}
        self.scheduler = SimpleNamespace(address="tcp://a:1")
        monkeypatch.setattr(cluster_module, "Future", Future)
        monkeypatch.setattr(cluster_module, "workers", lambda client: {"tcp://b:2": {"resources": self.resources}})

    def submit(self, ask, *, key, workers, allow_other_workers):
        assert workers == ["tcp://b:2"] and not allow_other_workers
        self.futures.append(Future(()))
        return self.futures[-1]

    def answer(self, **software: str) -> None:
        adapters = {"dmlgpu-0": asdict(NUMPY_ADAPTER)}
        answer = {
            "machine": {**machine(), **software},
            "cases": list_digest(MANY),
            "adapters": adapters,
            "problems": [],
        }
        self.futures[-1].result_of_shard = answer
        self.futures[-1].finish()


def test_a_worker_that_comes_late_is_asked_once_and_gets_cases(monkeypatch):
    client, warnings = FakeClient(monkeypatch), []
    late = cluster_module.WorkerRegistry(client, job(), warnings.append)
    assert not late.capacity()["dmlgpu-0"] and not late.capacity()["dmlgpu-0"]
    client.resources = {"dmlgpu-0": 2}
    client.answer()
    assert [late.capacity()["dmlgpu-0"] for _ in range(2)] == [2, 2]
    assert (len(client.futures), client.futures[0].is_released, warnings) == (1, True, [])


def test_a_worker_that_was_started_again_is_asked_again(monkeypatch):
    client = FakeClient(monkeypatch)
    late = cluster_module.WorkerRegistry(client, job(), print)
    late.capacity()
    client.resources = {"dmlgpu-0": 1}
    client.answer()
    assert late.capacity()["dmlgpu-0"] == 1
    client.resources = {}
    assert not late.capacity()["dmlgpu-0"]
    assert len(client.futures) == 2


def test_a_late_worker_that_differs_gets_no_cases(monkeypatch):
    client, warnings = FakeClient(monkeypatch), []
    late = cluster_module.WorkerRegistry(client, job(), warnings.append)
    late.capacity()
    client.resources = {"dmlgpu-0": 1}
    client.answer(wgpu="0.0.1")
    assert not late.capacity()["dmlgpu-0"] and not late.capacity()["dmlgpu-0"]
    assert warnings == [f"tcp://b:2 is not used: wgpu 0.0.1 there, {machine()['wgpu']} here"]
    assert len(client.futures) == 1


# ---- on a worker ----------------------------------------------------------------------------------------------------


def test_two_equal_cards_alternate(monkeypatch):
    cards = [LocatedAdapter(NUMPY_ADAPTER, number) for number in (0, 1)]
    offered: list[dict[str, int]] = []
    monkeypatch.setattr(cluster_module, "discover", lambda: Discovery(tuple(cards), ("a driver crashed",)))
    monkeypatch.setattr(cluster_module, "set_resources", lambda worker, counts: offered.append(dict(counts)))
    monkeypatch.setattr(cluster_module, "get_worker", lambda: None)
    monkeypatch.setattr(cluster_module, "suite_by_name", lambda name: name)
    monkeypatch.setattr(cluster_module, "select", lambda *selection: selection)
    answer = Announcement.of_answer(json.loads(json.dumps(announce("many", "quick", "slow-1"))))
    (name,) = answer.adapters
    assert offered == [{name: 2}]
    assert (answer.adapters[name], answer.problems) == (NUMPY_ADAPTER, ("a driver crashed",))
    assert answer.cases == list_digest(["many", "quick", "slow-1"])
    with cluster_module.reserved(name) as first, cluster_module.reserved(name) as other:
        assert [first, other] == cards
    with (
        pytest.raises(LookupError, match="this worker has not announced dmlgpu-0"),
        cluster_module.reserved("dmlgpu-0"),
    ):
        pass


@pytest.mark.parametrize(
    ("variable", "locations"), [("VK_DRIVER_FILES", "own"), ("VK_ICD_FILENAMES", "own"), ("A", "all")]
)
def test_a_worker_has_the_drivers_of_its_environment_or_all(variable, locations, monkeypatch):
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "a.json")
    monkeypatch.setattr(discovery, "process_drivers", lambda: "own")
    monkeypatch.setattr(discovery, "all_drivers", lambda: "all")
    assert cluster_module.discover() == locations


# ---- on a cluster ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as local_cluster:
        yield local_cluster


def query_all(local: DaskCluster, cluster_job: ClusterJob | None = None, warnings: list[str] | None = None) -> Cluster:
    return Cluster(local.client, cluster_job or job(), ([] if warnings is None else warnings).append)


def altered_wgpu(folder: Path) -> str:
    """A folder that makes a process believe that it has an old wgpu."""
    metadata = folder / "wgpu-0.0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wgpu\nVersion: 0.0.1\n")
    return str(folder)


@pytest.mark.parametrize("address", ["tcp://localhost:9", "foo://localhost"])
def test_no_scheduler_is_rejected(address, monkeypatch):
    monkeypatch.setattr(dask_client, "CONNECT_LIMIT", 0.5)
    with pytest.raises(InvalidArgument, match=f"no Dask scheduler answers at '{address}'"):
        dask_client.connect(address)


def test_a_cluster_without_workers_is_rejected(local):
    with pytest.raises(InvalidArgument, match=r"the cluster at tcp://\S+ has no workers"):
        query_all(local)


@pytest.mark.slow
def test_workers_that_differ_are_rejected(local, tmp_path):
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "dmlgpu.py").write_text("raise ModuleNotFoundError(\"No module named 'dmlgpu'\")\n")
    environments = [numpy("1.0", path) for path in (altered_wgpu(tmp_path), str(tmp_path / "none"))]
    with local.workers(*environments) as (old, bare), pytest.raises(InvalidArgument) as error:
        query_all(local)
    first, *others = str(error.value).splitlines()
    assert first == "these workers cannot run the same cases:"
    assert sorted(others) == sorted(
        [
            f"  {old.address}: wgpu 0.0.1 there, {machine()['wgpu']} here",
            f"  {bare.address}: ModuleNotFoundError: No module named 'dmlgpu'",
        ]
    )


@pytest.mark.slow
def test_another_worker_takes_over(local):
    with contextlib.ExitStack() as stack:
        (first,) = stack.enter_context(local.workers(numpy("3.0")))
        crowd = query_all(local)
        outcomes = []
        for _, outcome in crowd.run(crowd.adapters):
            if not outcomes:
                first.process.kill()
                stack.enter_context(local.workers(numpy("3.0")))
            outcomes.append(outcome)
    assert Counter(outcome.case for outcome in outcomes) == Counter(MANY)
    assert not any(outcome.status is Status.DEVICE_LOST for outcome in outcomes)
