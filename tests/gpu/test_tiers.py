"""Kernels that have proved hot get constants in the background, on each adapter, and nothing else changes."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, Device, TensorDesc, descs
from dmlgpu.common.errors import DeviceRemoved, OutOfMemory, ShaderError
from dmlgpu.compiler.aliasing import with_bindings
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend, tiers
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.tensors.session import session_of

ROWS = [4, 6, 10]
SHADERS = Path(__file__).parents[2] / "shaders"


@pytest.fixture
def hot(fresh: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuBackend]:
    """An executor on which everything that has run is hot."""
    if fresh.info.backend == "OpenGL":
        pytest.skip("OpenGL's kernels never get constants in the background: its one context would wait")
    monkeypatch.setattr(tiers, "HOT", 0.0)
    fresh.specializer = Specializer(Specialize.AUTO)
    yield fresh
    wait_for_constants()


def wait_for_constants() -> None:
    """Wait for the threads that make pipelines."""
    for thread in threading.enumerate():
        if thread.name == "dmlgpu constants":
            thread.join(60)
            assert not thread.is_alive()


def doubling(backend: GpuBackend, device: Device | None = None) -> Callable[[int], np.ndarray]:
    """Return a compiled function of rows of numbers, whose kernel all sizes share, and which has seen all of them."""
    double = dmlgpu.compile(lambda x: x + x, device=device or Device.from_backend(backend))

    def run(rows: int) -> np.ndarray:
        return np.asarray(double(np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)))

    for rows in ROWS:
        run(rows)
    return run


def labels(backend: GpuBackend, run: Callable[[int], Any], rows: int) -> set[str]:
    """Return the labels of the kernels that run."""
    with dmlgpu.profile() as profile:
        run(rows)
    return set(profile.by_kernel())


def subtracting(self: RenderedKernel) -> RenderedKernel:
    """Stand in for ``with_constants``: subtracts where the kernel adds, so that results tell which one ran."""
    special = with_constants(self)
    body = special.source.body.replace("(a + b)", "(a - b)")
    return replace(special, source=replace(special.source, body=body))


with_constants: Any = RenderedKernel.with_constants.fget  # type: ignore[attr-defined]


def test_hot_kernels_get_constants_and_cold_ones_do_not(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "HOT", 1e9)
    run = doubling(hot)
    monkeypatch.setattr(RenderedKernel, "with_constants", property(subtracting))
    expected = np.arange(50, dtype=np.float32).reshape(10, 5) * 2
    for _ in range(20):
        np.testing.assert_array_equal(run(10), expected)
    assert not [thread for thread in threading.enumerate() if thread.name == "dmlgpu constants"]
    monkeypatch.setattr(tiers, "HOT", 0.0)
    hot.tiers.epoch += 1  # so that it is asked again what is hot
    deadline = time.monotonic() + 60
    while np.array_equal(run(10), expected) and time.monotonic() < deadline:
        time.sleep(0.01)
    np.testing.assert_array_equal(run(10), expected * 0)
    np.testing.assert_array_equal(run(4), np.arange(20, dtype=np.float32).reshape(4, 5) * 2)


def test_results_of_both_kinds_agree(hot: GpuBackend) -> None:
    device, rng = Device.from_backend(hot), np.random.default_rng(37)
    weights = rng.standard_normal((24, 20), dtype=np.float32)
    layer = dmlgpu.compile(lambda x: dmlgpu.ops.softmax(dmlgpu.ops.relu(x @ weights), axis=-1), device=device)
    for rows in ROWS:
        x = rng.standard_normal((rows, 24), dtype=np.float32)
        general = np.asarray(layer(x))
        layer(x)
        wait_for_constants()
        np.testing.assert_allclose(np.asarray(layer(x)), general, rtol=1e-5, atol=1e-6)
    assert hot.tiers.epoch >= 1
    assert any(tier.pipeline is not None for tier in hot.tiers.known.values())


@pytest.mark.parametrize(
    "error", [ShaderError("no"), OutOfMemory("no"), MemoryError("no")], ids=lambda e: type(e).__name__
)
def test_a_failed_specialization_is_reported_once(
    hot: GpuBackend, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    run = doubling(hot)

    def refuse(self: GpuPipelines, operator: str, kernel: RenderedKernel, immediates: bool) -> Any:
        tried.append(kernel.wgsl)
        raise error

    monkeypatch.setattr(GpuPipelines, "get", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            np.testing.assert_array_equal(run(10), np.arange(50, dtype=np.float32).reshape(10, 5) * 2)
            wait_for_constants()
    messages = [str(warning.message) for warning in caught if "parameters" in str(warning.message)]
    assert len(tried) == len(set(tried)) == len(messages) > 0


def test_kernels_whose_slots_share_a_binding_get_constants(hot: GpuBackend) -> None:
    tensor = TensorDesc(DataType.FLOAT32, (3, 5))
    program = compile_operator(
        descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor), hot.target.general
    )
    shared = with_bindings(program.operator, program.kernels[0], (0, 0, 1))
    tier = hot.tiers.of(program.operator, shared, program.immediates)
    assert tier is not None
    hot.tiers.request([tier])
    wait_for_constants()
    assert tier.pipeline is not None and not tier.is_rejected


def test_kernels_that_are_no_faster_with_constants_get_none(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all((SHADERS / f"{name}.wgsl").exists() for name in tiers.NO_FASTER)
    run = doubling(hot)
    (schedule,) = (file for file in next(iter(hot.tiers.known.values())).kernel.shaders if "schedules/" in file)
    monkeypatch.setattr(tiers, "NO_FASTER", frozenset({schedule}))
    hot.tiers.known.clear()
    run(14)
    assert not hot.tiers.known


@pytest.mark.parametrize("policy", [Specialize.NEVER, Specialize.ALWAYS])
def test_other_policies_change_nothing_later(hot: GpuBackend, policy: Specialize) -> None:
    hot.specializer = Specializer(policy)
    run = doubling(hot)
    for _ in range(5):
        run(10)
    wait_for_constants()
    assert hot.tiers.epoch == 0
    assert not hot.tiers.known


def test_profiles_name_kernels_with_constants(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "HOT", 1e9)
    run = doubling(hot)
    before = labels(hot, run, 10)
    monkeypatch.setattr(tiers, "HOT", 0.0)
    hot.tiers.epoch += 1  # so that it is asked again what is hot
    run(10)
    wait_for_constants()
    assert not any("with constants" in label for label in before)
    after = labels(hot, run, 10)
    if hot.target.has("timestamp-query"):  # else there is one time for all kernels
        assert after == {f"{label} with constants" for label in before}


def test_work_that_is_recorded_again_continues_to_count(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "HOT", 1e9)
    device = Device.from_backend(hot)
    run = doubling(hot, device)
    times = [tier.time for tier in hot.tiers.known.values()]
    before = sum(time.seconds for time in times)
    session_of(device).recorded.clear()
    run(10)
    assert sum(time.seconds for time in times) > before > 0


def test_a_closed_device_ends_the_thread(hot: GpuBackend) -> None:
    run = doubling(hot)
    for rows in ROWS:
        run(rows)
        run(rows)
    hot.close()
    wait_for_constants()


def blocked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], threading.Event]:
    """Make the thread wait in each kernel; return the sources of the kernels, and the event that it waits for."""
    begun: list[str] = []
    is_open, get = threading.Event(), GpuPipelines.get

    def wait(self: GpuPipelines, operator: str, kernel: RenderedKernel, immediates: bool) -> Any:
        if threading.current_thread().name == "dmlgpu constants":
            begun.append(kernel.wgsl)
            assert is_open.wait(60)
        return get(self, operator, kernel, immediates)

    monkeypatch.setattr(GpuPipelines, "get", wait)
    return begun, is_open


def layers(backend: GpuBackend) -> Callable[[int], np.ndarray]:
    """Return a compiled function of several kernels that all sizes share, and which has seen all of them."""
    weights = np.ones((24, 20), np.float32)
    layer = dmlgpu.compile(
        lambda x: dmlgpu.ops.softmax(dmlgpu.ops.softmax(x @ weights, axis=-1) @ weights.T, axis=0),
        device=Device.from_backend(backend),
    )

    def run(rows: int) -> np.ndarray:
        return np.asarray(layer(np.ones((rows, 24), np.float32)))

    for rows in ROWS:
        run(rows)
    return run


def run_until_begun(run: Callable[[int], Any], begun: list[str]) -> None:
    deadline = time.monotonic() + 60
    while not begun and time.monotonic() < deadline:
        run(10)
    assert begun


def test_an_error_of_any_kind_is_reported_once(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once(self: RenderedKernel) -> RenderedKernel:
        failed.append(self.label)
        if len(failed) == 1:
            raise RecursionError("too deep")
        return with_constants(self)  # type: ignore[no-any-return]

    failed: list[str] = []
    run = layers(hot)
    monkeypatch.setattr(RenderedKernel, "with_constants", property(fail_once))
    with pytest.warns(RuntimeWarning, match="too deep; kernel .* keeps reading sizes from parameters") as caught:
        run_until_begun(run, failed)
        wait_for_constants()
    assert len([warning for warning in caught if "too deep" in str(warning.message)]) == 1
    assert len(failed) > 1
    assert hot.tiers.epoch >= 1


def test_warnings_that_are_errors_do_not_end_the_thread(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    reported: list[threading.ExceptHookArgs] = []
    run = layers(hot)

    def refuse(self: GpuPipelines, operator: str, kernel: RenderedKernel, immediates: bool) -> Any:
        tried.append(kernel.wgsl)
        raise ShaderError("no")

    monkeypatch.setattr(threading, "excepthook", reported.append)
    monkeypatch.setattr(GpuPipelines, "get", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_until_begun(run, tried)
        wait_for_constants()
        run(10)
    assert len(tried) == len(reported) > 1
    assert all("parameters" in str(report.exc_value) for report in reported)


def test_a_rejected_kernel_is_not_tried_again_for_new_work(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(self: GpuPipelines, operator: str, kernel: RenderedKernel, immediates: bool) -> Any:
        if kernel.wgsl not in general:
            tried.append(kernel.wgsl)
            raise OutOfMemory("no")
        return get(self, operator, kernel, immediates)

    get, general = GpuPipelines.get, set[str]()
    first = doubling(hot)
    general |= {key[0] for key in hot.pipelines.living}
    monkeypatch.setattr(GpuPipelines, "get", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_until_begun(first, tried)
        wait_for_constants()
        number = len(tried)
        del first
        gc.collect()
        second = doubling(hot)
        for _ in range(5):
            second(10)
            wait_for_constants()
    assert len(tried) == number == len([warning for warning in caught if "parameters" in str(warning.message)])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_thread_that_does_not_start_is_started_later(
    hot: GpuBackend, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[threading.Thread] = []

    def fail(self: threading.Thread) -> None:
        failures.append(self)
        raise kind

    run = doubling(hot)
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(KeyboardInterrupt) if kind is KeyboardInterrupt else contextlib.nullcontext():
        run_until_begun(run, failures)  # type: ignore[arg-type]
    monkeypatch.setattr(threading.Thread, "start", start)
    expected = np.arange(30, dtype=np.float32).reshape(6, 5) * 2
    deadline = time.monotonic() + 60
    while not hot.tiers.epoch and time.monotonic() < deadline:
        np.testing.assert_array_equal(run(6), expected)
    assert hot.tiers.epoch


def test_dropped_work_is_not_compiled(hot: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    run = layers(hot)
    begun, is_open = blocked(monkeypatch)
    run_until_begun(run, begun)
    assert len(hot.tiers.known) > 1
    del run
    session_of(Device.from_backend(hot)).clear()
    gc.collect()
    is_open.set()
    wait_for_constants()
    assert len(set(begun)) == 1


def test_two_devices_compile_their_own_constants(hot: GpuBackend) -> None:
    other = GpuBackend(hot.info)
    other.specializer = Specializer(Specialize.AUTO)
    runs = [layers(hot), layers(other)]
    general = [run(10) for run in runs]
    for _ in range(2):
        for run in runs:
            run(10)
    wait_for_constants()
    assert hot.tiers.epoch >= 1
    assert other.tiers.epoch >= 1
    for run, expected in zip(runs, general, strict=True):
        np.testing.assert_allclose(run(10), expected, rtol=1e-5)
    other.close()
    np.testing.assert_allclose(runs[0](10), general[0], rtol=1e-5)
    wait_for_constants()


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.01, 0.03])
def test_closing_a_device_during_compilation_reports_nothing(hot: GpuBackend, delay: float) -> None:
    backend = GpuBackend(hot.info)
    backend.specializer = Specializer(Specialize.AUTO)
    run = layers(backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(10)
        run(10)
        time.sleep(delay)
        backend.close()
        wait_for_constants()
    assert [str(warning.message) for warning in caught if "parameters" in str(warning.message)] == []
    with pytest.raises(DeviceRemoved):
        run(10)


PROGRAM = """
import sys, time
import numpy as np
import dmlgpu
from dmlgpu.runtime.wgpu import tiers

tiers.HOT = 0.0
device = dmlgpu.Device({adapter!r}, specialize="auto")
layers = [dmlgpu.compile(lambda x, n=n: dmlgpu.ops.softmax(x * n + x, axis=-1), device=device) for n in range(2, 6)]
for rows in (4, 6, 10):
    for layer in layers:
        for _ in range(2):
            layer(np.ones((rows, 37), np.float32))
{last}
"""


@pytest.mark.parametrize(
    "last",
    [
        "sys.exit(7)",
        "import os\nif os.fork() == 0: os._exit(0)\nassert os.wait()[1] == 0\nsys.exit(7)",
        "del device, layers, layer\nsys.exit(7)",
    ],
    ids=["exit", "fork", "dropped"],
)
def test_a_process_ends_while_pipelines_are_made(last: str, hot: GpuBackend) -> None:
    program = PROGRAM.format(adapter=hot.info.name, last=last)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
