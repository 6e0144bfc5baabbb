"""A cluster whose workers have different drivers."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.conformance.cluster import Cluster, ClusterJob
from dmlgpu.conformance.drivers.discovery import machine_manifests
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.conformance.suites.registry import select, suite_by_name
from dmlgpu.runtime.wgpu import adapters
from tests.unit.dask_cluster import cluster

pytestmark = pytest.mark.gpu

SUITE = "hazards"


def drivers() -> dict[str, dict[str, str]]:
    """What brings each of the machine's software drivers alone, as far as they are there."""
    environments = {}
    for name, file in (("lavapipe", "lvp_icd"), ("SwiftShader", "vk_swiftshader")):
        for manifest in (path for path in machine_manifests() if path.name.startswith(file)):
            environments[name] = {"VK_DRIVER_FILES": str(manifest), "__EGL_VENDOR_LIBRARY_FILENAMES": os.devnull}
    if any(info.backend == "OpenGL" for info in adapters()):
        environments["OpenGL"] = {"VK_DRIVER_FILES": os.devnull}
    return environments


def comparable(outcome: Outcome) -> Outcome:
    return replace(outcome, seconds=0.0)


def test_every_driver_gets_every_case_once(tmp_path: Path):
    environments = drivers()
    if len(environments) < 2:
        pytest.skip(f"this takes two of lavapipe, SwiftShader and OpenGL, found {', '.join(environments) or 'none'}")
    first = next(iter(environments.values()))
    names = select(suite_by_name(SUITE), "quick")
    notes: list[str] = []
    with cluster(tmp_path) as local, local.workers(first, *environments.values()) as workers:
        cluster_ = Cluster(local.client, ClusterJob(Job(SUITE, 0), "quick", (), names), notes.append)
        adapters = [
            adapter for adapter in cluster_.adapters if adapter.info.backend != "NumPy" and not adapter.info.is_of_dawn
        ]
        killer = threading.Thread(target=local.kill_one_at_work, args=(workers[:2],))
        killer.start()
        outcomes = [(adapter.info, outcome) for adapter, outcome in cluster_.run(adapters)]
        killer.join()
    assert notes == []
    assert len(adapters) == len(environments)
    assert Counter((info, outcome.case) for info, outcome in outcomes) == Counter(
        (adapter.info, name) for adapter in adapters for name in names
    )
    alone = [
        frozenset(map(comparable, run_cases(Job(SUITE, 0, environment=environment), names)))
        for environment in environments.values()
    ]
    assert Counter(alone) == Counter(
        frozenset(comparable(outcome) for info, outcome in outcomes if info == adapter.info) for adapter in adapters
    )
