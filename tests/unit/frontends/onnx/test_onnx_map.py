"""Many batches through a model: each once and in order, even if workers and batches fail."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu.common.errors import AdapterNotFound, DeviceRemoved, InvalidArgument, InvalidState
from dmlgpu.common.worker_pool import ItemResult, WorkerGone, WorkerLost, WorkerPool
from dmlgpu.frontends.onnx import FailedBatch, Session, load

onnx, psutil = pytest.importorskip("onnx"), pytest.importorskip("psutil")

COUNT = 200


def model() -> Any:
    """A product with fixed weights, as a model; rows are free."""
    weights = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 3])
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    constant = onnx.numpy_helper.from_array(weights, "w")
    return onnx.helper.make_model(onnx.helper.make_graph([node], "product", [x], [y], [constant]))


@pytest.fixture
def session() -> Session:
    return load(model(), "numpy")


def batch(number: int) -> dict[str, NDArray[np.float32]]:
    return {"x": np.full((2, 4), number, np.float32)}


def children() -> list[Any]:
    """The processes that run models for this one."""
    return children_of(os.getpid())


def children_of(parent: int) -> list[Any]:
    processes = [child for child in psutil.Process(parent).children() if child.status() != psutil.STATUS_ZOMBIE]
    return [process for process in processes if "dmlgpu.frontends.onnx.map_worker" in process.cmdline()]


def test_without_adapters_it_runs_here(session: Session):
    outputs = list(session.map(batch(index) for index in range(3)))
    assert [float(result["y"][0, 0]) for result in outputs] == [
        float(session.run(batch(n))["y"][0, 0]) for n in range(3)
    ]
    assert not children()


def test_an_array_is_the_only_input(session: Session):
    (outputs,) = session.map([batch(2)["x"]])
    np.testing.assert_array_equal(outputs["y"], session.run(batch(2))["y"])


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed(session: Session):
    def batches() -> Iterator[dict[str, NDArray[np.float32]]]:
        for index in range(COUNT):
            if index == COUNT // 2:
                children()[0].kill()
            yield batch(index)

    with pytest.warns(UserWarning, match="was lost, and starts again: the process ended with signal 9"):
        outputs = list(session.map(batches(), adapters=["numpy", "numpy"]))
    assert len(outputs) == COUNT
    for index, result in enumerate(outputs):
        np.testing.assert_array_equal(result["y"], session.run(batch(index))["y"])
    assert not children()


@pytest.mark.slow
def test_a_batch_that_fails_leaves_the_others(session: Session):
    batches = [batch(0), {"x": np.zeros((2, 5), np.float32)}, {"z": np.zeros(1)}, batch(3)]
    for adapters in (None, ["numpy"]):
        first, second, third, last = session.map(batches, adapters=adapters)
        np.testing.assert_array_equal(first["y"], session.run(batches[0])["y"])
        np.testing.assert_array_equal(last["y"], session.run(batches[3])["y"])
        assert isinstance(second, FailedBatch)
        assert second.name == "batch 1"
        with pytest.raises(InvalidArgument, match=r"^batch 1: model .* must have size 4 in dimension 1"):
            second["y"]
        with pytest.raises(InvalidArgument, match=r"^batch 2: "):
            third["y"]


@pytest.mark.slow
def test_strict_raises_where_the_batch_stands(session: Session):
    for adapters in (None, ["numpy"]):
        results = session.map([batch(0), {"x": np.zeros((2, 5), np.float32)}, batch(2)], adapters=adapters, strict=True)
        assert next(results).keys() == {"y"}
        with pytest.raises(InvalidArgument, match=r"^batch 1: "):
            next(results)
    assert not children()


@pytest.mark.slow
def test_a_batch_that_takes_too_long(session: Session):
    with pytest.warns(UserWarning, match="was lost, and starts again: no answer after 1e-06 s"):
        (result,) = session.map([batch(0)], adapters="numpy", time_limit=1e-6)
    assert isinstance(result, FailedBatch)
    assert str(result.error) == "batch 0: 3 workers were lost with it, the last one: no answer after 1e-06 s"


@pytest.mark.slow
def test_a_device_that_is_removed_costs_the_batch_in_flight(session: Session, tmp_path: Path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'dmlgpu.frontends.onnx.map_worker' in sys.orig_argv:\n"
        "    from dmlgpu.common.errors import DeviceRemoved\n"
        "    from dmlgpu.frontends.onnx.session import Session\n"
        "    run = Session.run\n"
        "    def once(self, inputs):\n"
        "        try:\n"
        f"            os.remove({str(tmp_path / 'removed')!r})\n"
        "        except OSError:\n"
        "            return run(self, inputs)\n"
        "        raise DeviceRemoved('unplugged')\n"
        "    Session.run = once\n"
    )
    (tmp_path / "removed").touch()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[4]}")
    with pytest.warns(UserWarning, match="was lost, and starts again: unplugged"):
        results = list(session.map((batch(index) for index in range(6)), adapters=["numpy", "numpy"]))
    for index, result in enumerate(results):
        np.testing.assert_array_equal(result["y"], session.run(batch(index))["y"])


@pytest.mark.slow
def test_a_caller_that_stops_early_ends_the_workers(session: Session):
    results = session.map((batch(index) for index in range(1000)), adapters=["numpy", "numpy"])
    next(results)
    assert children()
    results.close()
    assert not children()


@pytest.mark.slow
def test_batches_are_read_as_they_are_needed(session: Session):
    read = []

    def batches() -> Iterator[dict[str, NDArray[np.float32]]]:
        for index in range(COUNT):
            read.append(index)
            yield batch(index)

    for taken, _ in enumerate(session.map(batches(), adapters=["numpy"], in_flight=3), 1):
        assert len(read) <= taken + 3


def test_arguments(session: Session):
    with pytest.raises(AdapterNotFound, match="nonesuch"):
        session.map([], adapters=["nonesuch"])
    with pytest.raises(InvalidArgument, match="adapters must name at least one adapter"):
        session.map([], adapters=[])
    with pytest.raises(InvalidArgument, match="in_flight must be a number of batches from 1 on, got 0"):
        session.map([], in_flight=0)
    with pytest.raises(InvalidArgument, match="time_limit must be a number of seconds above 0, got 0"):
        session.map([], time_limit=0)
    with pytest.raises(InvalidArgument, match="batches must be an iterable of inputs"):
        session.map(batch(0))  # type: ignore[arg-type]
    session.bind("x", batch(0)["x"])
    with pytest.raises(InvalidState, match=r"inputs that are bound \(x\)"):
        session.map([{}], adapters="numpy")


# ---- the pool by itself ----------------------------------------------------------------------------------------------


class FakeWorker:
    """Squares numbers, and is lost at those in ``lost``."""

    def __init__(self, name: str, lost: tuple[int, ...] = (), seconds: float = 0.0, rejects: str = ""):
        self.name, self.lost, self.seconds, self.rejects = name, lost, seconds, rejects
        self.starts = 0
        self.did: list[int] = []
        self.interrupted = threading.Event()

    def start(self) -> None:
        self.starts += 1
        if self.rejects:
            raise WorkerGone(self.rejects)

    def run(self, item: int) -> int:
        if self.interrupted.wait(self.seconds) or item in self.lost:
            raise WorkerLost(f"lost at {item}")
        if item < 0:
            raise ValueError("negative")
        self.did.append(item)
        return item * item

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        pass


def values(results: Iterator[ItemResult[int]]) -> list[int | None]:
    return [result.value for result in results]


def test_order_and_no_order():
    workers = [FakeWorker("slow", seconds=0.02), FakeWorker("fast")]
    assert values(WorkerPool[int](workers).run(range(50))) == [index * index for index in range(50)]
    results = list(WorkerPool[int]([FakeWorker("a", seconds=0.02), FakeWorker("b")], ordered=False).run(range(50)))
    assert sorted(result.index for result in results) == list(range(50))
    assert all(result.value == result.index**2 for result in results)


def test_an_item_goes_to_another_worker_after_a_loss():
    loser, other = FakeWorker("loser", lost=(3,)), FakeWorker("other", seconds=0.01)
    notes: list[str] = []
    assert values(WorkerPool[int]([loser, other], warn=notes.append).run(range(20))) == [n * n for n in range(20)]
    assert sorted(loser.did + other.did) == list(range(20))
    assert 3 in other.did


def test_an_item_that_costs_three_workers_has_failed():
    workers = [FakeWorker(name, lost=(2,)) for name in "abc"]
    results = list(WorkerPool[int](workers).run(range(6)))
    assert [result.value for result in results] == [0, 1, None, 9, 16, 25]
    assert str(results[2].error) == "3 workers were lost with it, the last one: lost at 2"


def test_one_worker_tries_again_by_itself():
    worker = FakeWorker("only", lost=(1,))
    results = list(WorkerPool[int]([worker]).run(range(4)))
    assert [result.value for result in results] == [0, None, 4, 9]
    assert worker.starts == 4


def test_a_worker_that_cannot_start_loses_no_batch():
    notes: list[str] = []
    workers = [FakeWorker("bad", rejects="no such operator"), FakeWorker("good", seconds=0.001)]
    assert values(WorkerPool[int](workers, warn=notes.append).run(range(9))) == [n * n for n in range(9)]
    assert notes == ["bad does no more: no such operator"]


def test_without_a_worker_it_says_why():
    with pytest.raises(DeviceRemoved, match=r"^map: no worker is left: bad does no more: no such operator$"):
        list(WorkerPool[int]([FakeWorker("bad", rejects="no such operator")]).run(range(3)))


def test_a_worker_that_always_fails_is_excluded():
    bad, good = FakeWorker("bad", lost=tuple(range(100))), FakeWorker("good", seconds=0.005)
    assert values(WorkerPool[int]([bad, good]).run(range(40))) == [n * n for n in range(40)]
    assert bad.starts == 3


def test_new_workers_are_recruited():
    waiting = [FakeWorker("newcomer")]
    pool = WorkerPool[int]([], recruit=lambda: [waiting.pop()] if waiting else [], patience=5.0)
    assert values(pool.run(range(5))) == [n * n for n in range(5)]


def test_an_item_of_its_own_error():
    results = list(WorkerPool[int]([FakeWorker("only")]).run([1, -1, 2]))
    assert [type(result.error) for result in results] == [type(None), ValueError, type(None)]


def test_an_interruption_ends_workers_soon(monkeypatch: pytest.MonkeyPatch):
    workers = [FakeWorker("slow", seconds=60.0), FakeWorker("slower", seconds=60.0)]
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(WorkerPool[int](workers).run(range(5)))
    assert time.monotonic() - start < 10
    assert all(worker.interrupted.is_set() for worker in workers)


# ---- a Dask cluster --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cluster_of_which_a_worker_is_killed(session: Session, tmp_path: Path):
    dask_cluster = pytest.importorskip("tests.unit.dask_cluster")
    with dask_cluster.cluster(tmp_path) as local, local.workers({}, {}) as workers:
        batches = (batch(index) for index in range(COUNT))
        results = session.map(batches, scheduler=local.address, adapters="numpy")
        outputs = [next(results)]
        workers[0].process.kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the worker that is lost is named, if it had begun
            outputs += results
        assert not children_of(workers[1].process.pid)
    assert len(outputs) == COUNT
    for index, result in enumerate(outputs):
        np.testing.assert_array_equal(result["y"], session.run(batch(index))["y"])


@pytest.mark.slow
def test_a_batch_that_fails_on_a_cluster(session: Session, tmp_path: Path):
    dask_cluster = pytest.importorskip("tests.unit.dask_cluster")
    with dask_cluster.cluster(tmp_path) as local, local.workers({}):
        first, second = session.map(
            [batch(0), {"x": np.zeros((2, 5), np.float32)}], scheduler=local.address, adapters="numpy"
        )
    assert first.keys() == {"y"}
    with pytest.raises(InvalidArgument, match=r"^batch 1: model .* must have size 4 in dimension 1"):
        second["y"]
