"""Access to browser pages through a server: one that is running elsewhere, or one of this process."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any
from urllib.parse import urlencode

import segno

from dmlgpu.common.errors import AdapterNotFound, DeviceRemoved
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.browser.backend import BrowserBackend
from dmlgpu.runtime.browser.facts import target_of
from dmlgpu.runtime.browser.link import ask, listed, wait_for_pages
from dmlgpu.runtime.browser.server import PageServer

__all__ = ["introduction", "open_page", "own_server", "pages", "show", "some_pages", "target_of"]

VARIABLE = "DMLGPU_BROWSER"
RETURN_SECONDS = 20.0
"""Seconds to wait for a disconnected page when a device is created on it."""

_lock = threading.Lock()
_servers: list[PageServer] = []
"""The server of this process, if it has one."""


def pages() -> tuple[AdapterInfo, ...]:
    """Return the adapters of all known pages, including disconnected ones.

    Raises:
        DmlError: If the server does not answer.
    """
    address = os.environ.get(VARIABLE)
    return tuple(page.info for page in listed(address)) if address else ()


def some_pages(count: int = 1) -> list[AdapterInfo]:
    """Wait for pages without limit; return their adapters.

    If DMLGPU_BROWSER names no server, one is started on the loopback address, instructions are printed on standard
    error, and the variable is set for child processes.

    Raises:
        DmlError: If the server does not answer.
    """
    address = os.environ.get(VARIABLE) or own_server(many=count > 1).borrowing
    return wait_for_pages(address, count)


def show(info: AdapterInfo, **shown: str | int) -> None:
    """Show in a page which work it runs: ``now``, ``done`` and ``count``, ``verdict``. No effect while it is
    disconnected.

    Raises:
        DmlError: If the server does not answer.
    """
    address = os.environ.get(VARIABLE, "")
    for index, page in enumerate(listed(address) if address else [], 1):
        if page.info == info:
            ask(address, f"show/{index}?{urlencode(shown)}")


def own_server(many: bool = False) -> PageServer:
    """Return the server of this process; start it first, and print instructions on standard error."""
    with _lock:
        if not _servers:
            server = PageServer(many=many)
            _servers.append(server)
            os.environ[VARIABLE] = server.borrowing
            print(introduction(server), file=sys.stderr, flush=True)
        return _servers[0]


def introduction(server: PageServer) -> str:
    """Return the instructions for opening the page: the address, also as a QR code."""
    code = "\n".join(_half_blocks(segno.make(server.address, error="l", micro=False).matrix_iter(border=2)))
    return f"dmlgpu: open this address in the browser whose GPU to use:\n\n{code}\n\n  {server.address}\n"


def _half_blocks(rows: object) -> list[str]:
    """Return a matrix of QR modules as lines of half blocks, two rows each, light on a dark terminal."""
    signs = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    matrix = [list(row) for row in rows]  # type: ignore[attr-defined]
    if len(matrix) % 2:
        matrix.append([0] * len(matrix[0]))
    pairs = zip(matrix[::2], matrix[1::2], strict=True)
    return ["".join(signs[int(upper), int(lower)] for upper, lower in zip(*pair, strict=True)) for pair in pairs]


def open_page(info: AdapterInfo, **options: Any) -> BrowserBackend:
    """Open a page, waiting a while for a disconnected one. The options are those of ``BrowserBackend``.

    Raises:
        AdapterNotFound: If no page had this adapter.
        DeviceRemoved: If the page does not reconnect, or cannot create a device.
        DmlError: If the server does not answer.
    """
    address = os.environ.get(VARIABLE, "")
    while True:
        known = listed(address) if address else []
        numbers = [index for index, page in enumerate(known, 1) if page.info == info]
        if not numbers:
            raise AdapterNotFound(str(info), [str(page.info) for page in known], "no such page has connected")
        away = known[numbers[0] - 1].away
        if away is None:
            break
        if away >= RETURN_SECONDS:
            raise DeviceRemoved(f"{info}: the page is closed, and did not reconnect within {RETURN_SECONDS:g} s")
        time.sleep(0.1)
    return BrowserBackend(info, address, numbers[0], **options)
