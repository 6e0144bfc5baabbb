"""Which adapters the workers have: each says so when asked, and offers them to Dask as resources."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distributed import Worker, get_worker
from distributed.utils import sync

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers import discovery
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, info_from_json
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.conformance.running.records import machine
from dmlgpu.conformance.suites.registry import list_digest, select, suite_by_name

SCHEDULER_LIMIT = 30.0
"""Seconds for the scheduler to register resources."""

_DRIVER_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_COMPARED = ("dmlgpu", "commit", "shaders", "wgpu", "python")
_IDENTITY = ("backend", "name", "vendor", "driver")

_idle: dict[str, queue.SimpleQueue[LocatedAdapter]] = {}
"""This worker's adapters that no shard runs on, by the resources that they were announced as."""


@dataclass(frozen=True)
class Announcement:
    """Facts reported by a worker.

    Attributes:
        machine: Versions and computer, as in records.
        cases: Hash of the names of cases for the same suite, profile and patterns.
        adapters: Its adapters, by names of resources.
        problems: Drivers that could not be examined, a text each.
    """

    machine: dict[str, str]
    cases: str
    adapters: dict[str, AdapterInfo]
    problems: tuple[str, ...] = ()

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> Announcement:
        """What ``announce`` returned."""
        adapters = {name: info_from_json(record) for name, record in answer["adapters"].items()}
        return cls(answer["machine"], answer["cases"], adapters, tuple(answer["problems"]))


def announce(suite: str, profile: str, patterns: Sequence[str]) -> dict[str, Any]:
    """Offer the adapters of the Dask worker in which this runs as its resources, each for one shard at a time.

    Of two equal ones there are two.

    Returns:
        The fields of an ``Announcement`` as plain data, which another version of dmlgpu understands too.

    Raises:
        InvalidArgument: For a suite, profile or pattern that this worker lacks.
    """
    software, cases = machine(), list_digest(select(suite_by_name(suite), profile, patterns))
    discovery_ = _found()
    named = [(_resource(adapter.info, software), adapter) for adapter in discovery_.adapters]
    _idle.update({name: queue.SimpleQueue() for name, _ in named})
    for name, located in named:
        _idle[name].put(located)
    _set_resources(get_worker(), Counter(name for name, _ in named))
    adapters = {name: asdict(located.info) for name, located in named}
    return {"machine": software, "cases": cases, "adapters": adapters, "problems": discovery_.problems}


def announce_task(suite: str, profile: str, patterns: Sequence[str]) -> Callable[[], dict[str, Any]]:
    """``announce`` for a worker that may have another dmlgpu, or none."""

    # Defined in no module, it is sent by value: Dask drops a worker that cannot import what it receives.
    def ask() -> dict[str, Any]:
        from dmlgpu.conformance.cluster.worker import announce  # noqa: PLC0415

        return announce(suite, profile, patterns)

    return ask


def _found() -> Discovery:
    """The adapters of the drivers that the worker's environment chooses; where it chooses none, of all drivers."""
    chosen = any(os.environ.get(name) for name in _DRIVER_FILES)
    return discovery.process_drivers() if chosen else discovery.all_drivers()


@contextlib.contextmanager
def reserved(name: str) -> Iterator[LocatedAdapter]:
    """An adapter that this worker announced under a name, for the caller alone.

    Raises:
        LookupError: If it announced none.
    """
    if name not in _idle:
        raise LookupError(f"this worker has not announced {name}")
    idle = _idle[name]
    adapter = idle.get()
    try:
        yield adapter
    finally:
        idle.put(adapter)


def run_shard(job: Job, resource: str, names: Sequence[str], workers: int) -> tuple[Outcome, ...]:
    """Run cases in child processes of the Dask worker in which this runs.

    Args:
        job: With the suite and limits; adapter and environment are this worker's.
        resource: Under which the adapter was announced.
        workers: Children at once.

    Raises:
        LookupError: If this worker has not announced the adapter.
    """
    with reserved(resource) as adapter:
        there = replace(job, adapter=adapter.number, environment=dict(adapter.environment))
        return tuple(run_cases(there, names, workers))


def _resource(info: AdapterInfo, software: Mapping[str, str]) -> str:
    """A name that two workers share if they have the same adapter, driver and version of everything.

    Limits are omitted: some depend on how much memory the machine has.
    """
    adapter = [asdict(info)[name] for name in _IDENTITY]
    versions = [_comparable(name, software[name]) for name in _COMPARED if name != "commit"]
    return f"dmlgpu-{hashlib.sha256(json.dumps([adapter, versions]).encode()).hexdigest()[:16]}"


def _set_resources(worker: Worker, counts: Mapping[str, int]) -> None:
    sync(worker.loop, worker.set_resources, callback_timeout=SCHEDULER_LIMIT, **counts)


def differences(own: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions in which two machines differ, if results depend on them: not the last part of Python's
    version.

    The commit is known only for a checkout.
    """
    pairs = ((name, _comparable(name, own[name]), _comparable(name, theirs[name])) for name in _COMPARED)
    return tuple(
        f"{name} {their_version} there, {own_version} here"
        for name, own_version, their_version in pairs
        if own_version != their_version and not (name == "commit" and "" in (own_version, their_version))
    )


def _comparable(name: str, version: str) -> str:
    return version.rpartition(".")[0] if name == "python" else version
