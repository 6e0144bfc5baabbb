"""An exported network in headless Chromium against wgpu-native on the same driver.

    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json python benchmarks/exported.py [ROUNDS]

The network is that of ``graphs.py``: eight convolutions of 64 channels, 56 by 56, with relu and residual adds; image
in, result out. It is exported, served, and loaded by a browser with an empty profile, then by browsers restarted with
the same profile. Rounds are interleaved. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from graphs import FILTERS, residual_graphs
from targets import Result

from dmlgpu import Device, export
from dmlgpu.bench.ratios import MINIMUM_ROUNDS, summarize
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.runtime.executor import Range, Resources

START_SECONDS = 2.0
"""Within which a model is loaded from a warm cache."""

WARM_STARTS = 3
"""How often; the shortest counts, on a machine that does other things, too."""

FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--enable-unsafe-webgpu",
    "--enable-features=Vulkan,WebGPU",
    "--use-webgpu-adapter=swiftshader",
)
LOAD = """async () => {
    const {load} = await import('./runtime.js');
    const start = performance.now();
    window.model = await load('./');
    const loaded = performance.now() - start;
    const [{name, shape}] = model.inputs;
    window.given = {[name]: Float32Array.from({length: shape.reduce((a, b) => a * b)}, (_, at) => Math.sin(at))};
    await model.run(given);
    return [loaded, performance.now() - start];
}"""
RUN = """async () => {
    const start = performance.now();
    await model.run(given);
    return performance.now() - start;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def residual_network() -> tuple[Any, list[Any]]:
    """The network, and its image and filters."""
    graph, _ = residual_graphs()
    return graph, list(Workload("network", "GRAPH", graph, contents=FILTERS).inputs())


def native() -> Callable[[], float]:
    """The network, compiled for wgpu-native: seconds that a run takes, from the image to the result on the host."""
    graph, inputs = residual_network()
    backend: Any = Device("vulkan").backend
    print(f"wgpu-native: {backend.info}", file=sys.stderr)
    network = resolve(graph)
    program = compile_network(network, backend.target.exact).program
    executable = backend.prepare(program)

    def buffer(size: int) -> Range[Any]:
        return Range(backend.create_buffer(size, "benchmark"), 0, size)

    bound = [buffer(array.nbytes) for array in inputs]
    for binding, array in zip(bound, inputs, strict=True):
        backend.write(binding.buffer, 0, np.ascontiguousarray(array).view(np.uint8).ravel())
    output = buffer(network.output_tensors[0].byte_size)
    temporary, persistent = buffer(executable.temporary_size), buffer(executable.persistent_size)
    resources = Resources(tuple(bound), (output,), temporary, persistent)
    backend.submit(executable.bind_initialization(resources))
    work = backend.record(executable.bind(resources))
    image = inputs[0].view(np.uint8).ravel()

    def run() -> float:
        start = time.perf_counter()
        backend.write(bound[0].buffer, 0, image)
        backend.submit(work)
        backend.read(output.buffer, 0, output.size)
        return time.perf_counter() - start

    run()
    return run


def main(rounds: int) -> int:
    """Measure and print the results."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only here

    graph, (_, *filters) = residual_network()
    browser = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        names = ["image", *(f"filter{number}" for number in range(len(filters)))]
        weights = dict(zip(names[1:], filters, strict=True))
        written = export.write(graph, folder, inputs=names, weights=weights, schedules="cpu")
        print(f"exported: {written.kernels} dispatches of {written.shaders} kernels", file=sys.stderr)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as started:

            def opened() -> Any:
                context = started.chromium.launch_persistent_context(
                    profile, executable_path=browser, args=[*FLAGS], headless=True
                )
                page = context.pages[0]
                page.goto(f"http://localhost:{server.server_port}/blank.html")
                return context, page

            starts = []
            for _ in range(1 + WARM_STARTS):
                context, page = opened()
                starts.append(page.evaluate(LOAD))
                if len(starts) <= WARM_STARTS:
                    context.close()
            first, again = starts[0], min(starts[1:])
            for name, (loaded, ran) in (("never seen", first), ("warm cache, the shortest", again)):
                print(f"load, {name}: {loaded:.0f} ms; with the first run {ran:.0f} ms")
            ours, theirs = [], []
            run = native()
            for number in range(rounds):
                for side in (0, 1) if number % 2 else (1, 0):
                    if side:
                        ours.append(page.evaluate(RUN) / 1e3)
                    else:
                        theirs.append(run())
            context.close()
        server.shutdown()
        size = sum(file.stat().st_size for file in Path(profile).rglob("*") if file.is_file())
        print(f"the browser's profile: {size:,} bytes", file=sys.stderr)
    steady = Result("8 convolutions in Chromium / wgpu-native, one driver", summarize(ours, theirs), at_most=1.2)
    in_time = again[0] / 1e3 < START_SECONDS
    print(steady)
    print(f"{'met' if in_time else 'MISSED':<6} < {START_SECONDS:g} s  load from a warm cache: {again[0] / 1e3:.2f} s")
    return 0 if steady.met and in_time else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else MINIMUM_ROUNDS))
