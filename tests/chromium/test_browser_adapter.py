"""The page lends Chromium's GPU: as an adapter, to commands in other processes, with faults, and when it goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import DeviceRemoved, ShaderError
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Matrices, MatrixDialect
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.driver.suite import DriverSuite
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.browser.backend import BrowserBackend
from dmlgpu.runtime.browser.facts import units_of
from dmlgpu.runtime.browser.lending import VARIABLE
from dmlgpu.runtime.browser.link import wait_for_pages
from dmlgpu.runtime.browser.server import PageServer
from dmlgpu.runtime.executor import Range, Resources
from tests.chromium.conftest import opened

pytestmark = pytest.mark.xdist_group("chromium")  # it is started once

VECTOR = TensorDesc(DataType.FLOAT32, (1000,))
COMMAND = (sys.executable, "-c", "import sys; from dmlgpu.cli.main import main; sys.exit(main())")
ADD = descs.ElementWiseAdd(a_tensor=VECTOR, b_tensor=VECTOR, output_tensor=VECTOR)


@pytest.fixture
def browser(lent, monkeypatch):
    """Where ``browser`` names the page that is open."""
    server, info, page = lent
    monkeypatch.setenv(VARIABLE, server.borrowing)
    return info, page


def test_a_page_is_an_adapter(browser):
    info, _ = browser
    device = Device("browser")
    assert device.adapter == info
    assert str(info).startswith("Browser: ")
    assert "Chrome" in info.driver
    assert info.kind == "cpu"
    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
    (total,) = dmlgpu.evaluate(ADD, [a, b], device=device)
    assert np.array_equal(total, a + b)
    device.remove()


LISTING = """
const has = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'features').get;
const asked = GPUAdapter.prototype.requestDevice;
const units = {componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16};
Object.defineProperties(GPUAdapter.prototype, {
    features: {get() {
        return new Set([...has.call(this), 'shader-f16', 'chromium-experimental-subgroup-matrix']);
    }},
    requestDevice: {value({requiredFeatures, ...more}) {
        window.asked = requiredFeatures;
        return asked.call(this, {requiredFeatures: requiredFeatures.filter(name => has.call(this).has(name)), ...more});
    }},
});
Object.defineProperties(GPUAdapterInfo.prototype, Object.fromEntries(Object.entries({
    vendor: 'nvidia', architecture: 'hopper', description: '', device: '', isFallbackAdapter: false,
    subgroupMatrixConfigs: [units], subgroupMaxSize: 32,
}).map(([name, value]) => [name, {get: () => value}])));
"""
"""Lists matrix units that the adapter lacks: none of SwiftShader are, and Chromium takes no other CPU adapter."""


def test_matrix_units_that_the_browser_lists_are_measured(page, monkeypatch):
    """These products do not compile, so ordinary ones take their place."""
    with PageServer() as server:
        lending = page.context.browser.new_page()
        lending.add_init_script(LISTING)
        lending.goto(server.address)
        (info,) = wait_for_pages(server.borrowing, 1, 60)
        units = Matrices(lanes=32, dialect=MatrixDialect.TINT, turns=False)
        assert (info.kind, units_of(info)) == ("unknown", units)
        monkeypatch.setenv(VARIABLE, server.borrowing)
        texts = []
        backend = BrowserBackend(info, server.borrowing, 1, tell=lambda _, wgsl: texts.extend(wgsl))
        assert [("subgroup_matrix_left<f16, 16, 16>" in text) for text in texts] == [True]
        assert backend.target.matrices is None
        assert {"subgroups", "chromium-experimental-subgroup-matrix"} <= set(lending.evaluate("window.asked"))
        backend.close()
        monkeypatch.setenv("DMLGPU_MATRICES", "always")
        backend = BrowserBackend(info, server.borrowing, 1)
        assert backend.target.matrices == units
        backend.close()
        lending.close()


def test_long_buffers_go_there_and_back(browser, monkeypatch):
    monkeypatch.setattr(frames, "CHUNK_BYTES", 1 << 20)
    device = Device("browser")
    data = np.random.default_rng(1).integers(0, 256, (2 << 20) + 12).astype(np.uint8)
    buffer = device.create_buffer(data.size)
    buffer.write(data)
    assert np.array_equal(buffer.read(), data)
    device.remove()


def test_work_is_timed_by_the_pages_timestamps(browser):
    info, _ = browser
    device = Device("browser")
    count = 1 << 20
    tensor = TensorDesc(DataType.FLOAT32, (count,))
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    executable = device.backend.compile(desc)
    buffers = [device.backend.create_buffer(4 * count, name) for name in "abo"]
    a, b, output = (Range(buffer, 0, 4 * count) for buffer in buffers)
    device.backend.write(buffers[0], 0, np.ones(count, np.float32).view(np.uint8))
    copy = device.backend.copy(buffers[0], 0, buffers[1], 0, 4 * count)
    (addition,) = executable.bind(Resources((a, b), (output,)))
    timing = device.backend.time([copy, addition, addition], parts=True)
    assert np.array_equal(device.backend.read(buffers[2], 0, 4 * count).view(np.float32), np.full(count, 2))
    assert [work.label for work in (copy, addition)] == ["copy", executable.program.kernels[0].label]
    assert 0 < timing.seconds <= 2 * timing.host_seconds
    if "timestamp-query" in info.features and timing.source == "gpu":  # a driver may round all of it to nothing
        assert len(timing.parts) == 3
        assert sum(timing.parts) <= timing.seconds * 1.001
    device.remove()


def test_tints_errors_show_the_lines_around(lent):
    server, info, _ = lent
    backend = BrowserBackend(info, server.borrowing, 1)
    program = compile_operator(ADD, backend.target)
    (kernel,) = program.kernels
    wrong = kernel.wgsl + "\nfn wrong() -> u32 {\n    return nonesuch;\n}\n"
    faulty = RenderedKernel("wrong", KernelSource(wrong), kernel.slots, kernel.grid)
    with pytest.raises(ShaderError, match="kernel 'wrong' does not compile on Browser: ") as refused:
        backend.prepare(Program("ADD", (faulty,), immediates=False))
    assert "nonesuch" in str(refused.value).splitlines()[0]
    (line,) = [line for line in str(refused.value).splitlines() if line.startswith(">")]
    assert line.endswith("|     return nonesuch;")
    backend.prepare(program)  # the page goes on
    backend.close()


SCALED = """override FACTOR: u32 = 2u;
struct Shift { by: u32 }
@group(0) @binding(0) var<uniform> shift: Shift;
@group(0) @binding(2) var<storage, read> words: array<u32>;
@group(0) @binding(5) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(32)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&results)) { results[id.x] = FACTOR * words[id.x] + shift.by; }
}
"""


def test_own_kernels_run_in_the_page(browser):
    device, words = Device("browser"), np.arange(100, dtype=np.uint32)
    for factor in (2, 7):
        kernel = dmlgpu.Kernel(SCALED, constants={"FACTOR": factor})
        shift = np.array([5], np.uint32)
        results = kernel(shift=shift, words=words, outputs={"results": ((100,), "uint32")}, grid=4, device=device)
        assert np.array_equal(results, factor * words + 5)
    with pytest.raises(ShaderError, match=r"broken does not compile on Browser: .*line \d+: .*nothing"):
        dmlgpu.Kernel(SCALED.replace("shift.by", "nothing"), name="broken").compile(device)
    device.remove()


@pytest.mark.parametrize(
    "name",
    ["driver-f32-exp-1024", "driver-i32-divide-1024", "driver-memory-workgroup-zeroed", "driver-memory-buffer-eight"],
)
def test_the_driver_of_the_page_is_tested(browser, name):
    device = Device("browser")
    outcome = DriverSuite().run(name, device)
    assert outcome.status is Status.PASS, outcome
    device.remove()


def test_a_page_that_goes_away_comes_back(page, facts, monkeypatch):
    with PageServer() as server:
        monkeypatch.setenv(VARIABLE, server.borrowing)
        with opened(page, server.address):
            wait_for_pages(server.borrowing, 1, 60)
            device = Device("browser")
            buffer = device.create_buffer(64)
            assert not buffer.read().any()
        with pytest.raises(DeviceRemoved, match="the page is closed"):
            buffer.read()
        with opened(page, server.address):
            wait_for_pages(server.borrowing, 1, 60)
            again = Device("browser")
            assert not again.create_buffer(64).read().any()
            again.remove()


def test_two_pages_at_once(page, facts, monkeypatch):
    with PageServer(many=True) as server:
        monkeypatch.setenv(VARIABLE, server.borrowing)
        with opened(page, server.address), opened(page, server.address):
            devices = [Device(info) for info in wait_for_pages(server.borrowing, 2, 60)]
            buffers = [device.create_buffer(16) for device in devices]
            for number, buffer in enumerate(buffers):
                buffer.write(np.full(4, number, np.float32))
            for number, buffer in enumerate(buffers):
                assert np.array_equal(buffer.read().view(np.float32), np.full(4, number))
            for device in devices:
                device.remove()


def test_cases_run_from_the_command_line(page, facts, tmp_path):
    """The command starts a server, tells the address, waits, and merges the page with a local adapter."""
    output = tmp_path / "run.jsonl"
    cases = ("-k", "gather_elements-example*", "--adapter", "numpy")
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    process = subprocess.Popen(
        [*COMMAND, "test", "--browser", *cases, "-o", output],
        env={**environment, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        lines = iter(process.stderr.readline, "")
        address = next(line.strip() for line in lines if line.startswith("  http"))
        with opened(page, address) as lending:
            printed, problems = process.communicate(timeout=120)
            verdict = lending.inner_text("#verdict")
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, printed + problems
    text = output.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    adapters = [record["adapter"]["backend"] for record in records if "adapter" in record]
    passed = [record["case"] for record in records if record.get("status") == "pass"]
    assert adapters == ["NumPy", "Browser"]
    assert passed
    assert verdict == f"{len(passed) // 2} cases: {len(passed) // 2} pass"
    assert "Browser: " in printed
    assert address.split("/")[3] not in text + printed  # the token
