"""A page in headless Chromium with a WebGPU device: Dawn and Tint in place of wgpu-native and naga."""

from __future__ import annotations

import contextlib
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import chromium
import pytest

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.browser.link import wait_for_pages
from dmlgpu.runtime.browser.server import PageServer

ADDRESS = "http://localhost/"
"""WebGPU is offered to secure contexts, and pages of this host are; nothing is fetched from it."""

DEVICE = """async () => {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) return null;
    const names = ['maxStorageBufferBindingSize', 'maxBufferSize'];
    const limits = Object.fromEntries(names.map(name => [name, adapter.limits[name]]));
    window.device = await adapter.requestDevice({requiredLimits: limits});
    const layouts = new Map();
    window.layoutOf = count => {
        if (!layouts.has(count)) {
            const entry = (binding, type) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}});
            const storage = Array.from({length: count}, (_, binding) => entry(binding, 'storage'));
            const group = device.createBindGroupLayout({entries: [...storage, entry(count, 'uniform')]});
            layouts.set(count, [group, device.createPipelineLayout({bindGroupLayouts: [group]})]);
        }
        return layouts.get(count);
    };
    const {vendor, architecture} = adapter.info, alignment = device.limits.minStorageBufferOffsetAlignment;
    return {name: `${vendor} ${architecture}`, limits, alignment};
}"""


@pytest.fixture(scope="session")
def page() -> Iterator[Any]:
    """A page of a secure context, in which WebGPU is offered."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if chromium.PATH is None:
        pytest.skip(chromium.MISSING)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium.PATH, args=chromium.WEBGPU)
        new_page = browser.new_page()
        new_page.route("**/*", lambda route: route.fulfill(body="<title>WebGPU</title>", content_type="text/html"))
        new_page.goto(ADDRESS)
        yield new_page
        browser.close()


@pytest.fixture(scope="session")
def facts(page: Any) -> dict[str, Any]:
    """Name, limits and offset alignment of the page's ``device``; ``layoutOf(count)`` there gives kernels' layouts."""
    device_facts = page.evaluate(DEVICE)
    if device_facts is None:
        pytest.skip("the browser offers no WebGPU adapter")
    return device_facts


@contextlib.contextmanager
def opened(page: Any, address: str) -> Iterator[Any]:
    """Another page of the same browser, in which an address is open; nothing of it is routed."""
    new_page = page.context.browser.new_page()
    faults: list[str] = []
    new_page.on("pageerror", lambda error: faults.append(str(error)))
    new_page.goto(address)
    yield new_page
    new_page.close()
    assert faults == []


@contextlib.contextmanager
def served(page: Any, folder: Path, name: str = "index.html", **options: Any) -> Iterator[Any]:
    """Another page of the same browser, in which a folder's page is open; faults of it are the test's.

    Args:
        page: of the browser.
        folder: what lies below the address. A file that it lacks is answered as missing.
        name: of the page.
        options: of the browser's context: ``viewport``, ``color_scheme``.
    """

    def answer(route: Any) -> None:
        file = folder / urlsplit(route.request.url).path.removeprefix("/folder/")
        if file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            route.fulfill(body=file.read_bytes(), content_type=kind)
        else:
            route.fulfill(status=404, body="missing")

    context = page.context.browser.new_context(**options)
    new_page = context.new_page()
    faults: list[str] = []
    new_page.on("pageerror", lambda error: faults.append(str(error)))
    new_page.route("**/*", answer)
    new_page.goto(f"{ADDRESS}folder/{name}")
    yield new_page
    context.close()
    assert faults == []


@pytest.fixture(scope="module")
def lent(page: Any, facts: dict[str, Any]) -> Iterator[tuple[PageServer, AdapterInfo, Any]]:
    """A server, the adapter of a page that is open there, and the page."""
    with PageServer() as server, opened(page, server.address) as lending:
        (info,) = wait_for_pages(server.borrowing, 1, 60)
        yield server, info, lending
