"""A Dask cluster on this machine whose workers have the adapters and the software that a test wants."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from dmlgpu.common.dask_client import connect, workers
from tests.unit.conformance import conformance_suite

START_LIMIT = 60.0
"""Seconds for a worker to come, or to be missed."""

NO_PROFILE = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
"""Keeps Dask's profiler out of workers: it calls ``sys._current_frames``, which can hang Python before 3.11.9 when a
thread ends at that moment (python/cpython#106883)."""

OPTIONS = ("--no-nanny", "--no-dashboard", "--nthreads=1", "--local-directory=.")


def numpy(version: str, path: str = "") -> dict[str, str]:
    """What makes a version of the ``numpy`` adapter a worker's only one; modules at a path go before others."""
    no_driver = {"VK_DRIVER_FILES": os.devnull, "__EGL_VENDOR_LIBRARY_FILENAMES": os.devnull}
    return {**no_driver, "ALTERED_NUMPY": version, "ALTERED_PATH": path}


RIG = """import os, sys, numpy
numpy.__version__ = os.environ.get("ALTERED_NUMPY", numpy.__version__)
sys.path[:0] = filter(None, [os.environ.get("ALTERED_PATH")])
"""
"""What every Python process of a worker does first."""


@dataclass(frozen=True)
class Worker:
    """A worker's process, and what Dask calls it."""

    process: subprocess.Popen[bytes]
    address: str


class DaskCluster:
    """A scheduler in this process, and workers in processes of their own, started as anybody would."""

    def __init__(self, address: str, folder: Path):
        self.address, self.folder = address, folder
        self.environment = conformance_suite.install(folder, "many", conformance_suite.ManySuite)
        (folder / "sitecustomize.py").write_text(RIG)
        self.client: Client = connect(address)

    @contextlib.contextmanager
    def workers(self, *environments: Mapping[str, str]) -> Iterator[list[Worker]]:
        """Workers with these environments besides this process's, until the block ends."""
        started = {str(uuid.uuid4()): environment for environment in environments}
        with contextlib.ExitStack() as stack:
            processes = {name: stack.enter_context(self._process(name, started[name])) for name in started}
            self.wait_until(lambda: processes.keys() <= self.addresses().keys())
            addresses = self.addresses()
            yield [Worker(process, addresses[name]) for name, process in processes.items()]
        self.wait_until(lambda: not processes.keys() & self.addresses().keys())

    @contextlib.contextmanager
    def _process(self, name: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--name", name, *OPTIONS],
                cwd=self.folder,
                env={**os.environ, **NO_PROFILE, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def addresses(self) -> dict[str, str]:
        """Those of the workers that are there, by name."""
        return {facts["name"]: address for address, facts in workers(self.client).items()}

    def kill_one_at_work(self, workers: Sequence[Worker]) -> None:
        """Kill a worker as soon as it has a shard to run."""

        def at_work() -> list[Worker]:
            keys = self.client.processing()
            return [
                worker for worker in workers if any(key.startswith("run_shard") for key in keys.get(worker.address, ()))
            ]

        self.wait_until(at_work)[0].process.kill()

    def wait_until(self, condition: Callable[[], Any]) -> Any:
        """What a function finds, once it does."""
        end = time.monotonic() + START_LIMIT
        while not (result := condition()):
            assert time.monotonic() < end, (self.folder / "worker.log").read_text()
            time.sleep(0.05)
        return result


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[DaskCluster]:
    """A cluster without workers."""
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=0, **quiet) as local:
        dask_cluster = DaskCluster(local.scheduler_address, folder)
        with dask_cluster.client:
            yield dask_cluster
