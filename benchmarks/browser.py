"""A page of headless Chromium as an adapter, compared with wgpu-native on the same driver.

    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json python benchmarks/browser.py [SUITE]

First the way of one tiny dispatch to the page and back, by its fence; then the time of ``dmlgpu test`` over the quick
cases, or those of one suite, with the page and with wgpu-native, each from the command to its end. Exits with 1 when a
target is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from exported import FLAGS

from dmlgpu import BindingTable, BufferBinding, CommandList, DataType, Device, TensorDesc, descs
from dmlgpu.runtime.browser.lending import VARIABLE
from dmlgpu.runtime.browser.link import wait_for_pages
from dmlgpu.runtime.browser.server import PageServer

ROUND_TRIP, TIMES_NATIVE = 3e-3, 2.0
"""Targets: seconds of one dispatch; the time of the suites with the page, of that with wgpu-native."""

DISPATCHES, WARM_UP = 500, 50
COMMAND = (sys.executable, "-m", "dmlgpu")


@contextmanager
def chromium() -> Iterator[Callable[[str], Any]]:
    """A browser that opens addresses."""
    import shutil  # noqa: PLC0415 - only here

    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only here

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=[*FLAGS])

        def opened(address: str) -> Any:
            page = browser.new_page()
            page.goto(address)
            return page

        yield opened
        browser.close()


def recorded(device: Device, dispatchable: Any, table: BindingTable) -> CommandList:
    """Return a list that dispatches one thing."""
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, dispatchable, table)
    commands.close()
    return commands


def round_trips(device: Device) -> list[float]:
    """Seconds of dispatches of an operator on 16 numbers, each waited for."""
    row = TensorDesc(DataType.FLOAT32, (16,))
    compiled = device.compile_operator(
        device.create_operator(descs.ElementWiseIdentity(input_tensor=row, output_tensor=row))
    )
    initializer = device.create_operator_initializer([compiled])
    device.queue.execute([recorded(device, initializer, device.create_binding_table(initializer))])
    buffers = device.create_buffer(64), device.create_buffer(64)
    table = device.create_binding_table(compiled)
    table.bind_inputs([BufferBinding(buffers[0])])
    table.bind_outputs([BufferBinding(buffers[1])])
    commands = recorded(device, compiled, table)
    fence, durations = device.create_fence(), []
    for number in range(1, WARM_UP + DISPATCHES + 1):
        start = time.perf_counter()
        device.queue.execute([commands])
        device.queue.signal(fence, number)
        fence.wait(number)
        durations.append(time.perf_counter() - start)
    return durations[WARM_UP:]


def with_page(opened: Callable[[str], Any], selection: Sequence[str]) -> float:
    """Seconds of ``dmlgpu test`` on a page alone, from the command to its end."""
    start = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [*COMMAND, "test", "-a", "browser", "-p", "quick", *selection]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stderr is not None
        address = next(line.strip() for line in iter(process.stderr.readline, "") if line.startswith("  http"))
        page = opened(address)
        process.stderr.read()
        process.wait()
    seconds = time.perf_counter() - start
    page.close()
    return seconds


def without_page(selection: Sequence[str]) -> float:
    """Seconds of the same with wgpu-native."""
    start = time.perf_counter()
    command = [*COMMAND, "test", "-a", "vulkan", "-p", "quick", *selection]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(selection: Sequence[str]) -> int:
    """Measure and print the results."""
    with chromium() as opened:
        with PageServer() as server:
            page = opened(server.address)
            wait_for_pages(server.borrowing, 1, 60)
            os.environ[VARIABLE] = server.borrowing
            device = Device("browser")
            trips = np.array(round_trips(device)) * 1e3
            low, middle, high = np.percentile(trips, [5, 50, 95])
            verdict = "met   " if middle <= 1e3 * ROUND_TRIP else "MISSED"
            print(
                f"{verdict} a dispatch and back: {middle:.2f} ms in the median, 5 to 95 %: {low:.2f} to {high:.2f} ms"
            )
            met = middle <= 1e3 * ROUND_TRIP
            device.remove()
            page.close()
            del os.environ[VARIABLE]
        theirs, ours = without_page(selection), with_page(opened, selection)
    verdict = "met   " if ours <= TIMES_NATIVE * theirs else "MISSED"
    print(
        f"{verdict} dmlgpu test with the page / with wgpu-native: {ours / theirs:.2f} ({ours:.0f} s / {theirs:.0f} s)"
    )
    return 0 if met and ours <= TIMES_NATIVE * theirs else 1


if __name__ == "__main__":
    sys.exit(main(["--suite", sys.argv[1]] if len(sys.argv) > 1 else []))
