"""Connection of an executor to a page, through the server: frames go out, answers return in any order."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import connect

from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument, OutOfMemory, TimedOut
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.browser.facts import adapter_info, plain

_POLL_SECONDS = 0.1
_OPEN_SECONDS = 60.0
_MAX_TEXT = 2000
_CLOSED = "the page is closed, or its connection is lost"


class ListedPage(NamedTuple):
    """A page known to a server.

    Attributes:
        info: Its adapter.
        away: Seconds since it disconnected; None while it is connected.
    """

    info: AdapterInfo
    away: float | None


def listed(borrowing: str) -> list[ListedPage]:
    """Return all pages known to a server.

    Raises:
        DmlError: If the server does not answer, or its answer is invalid.
    """
    try:
        pages = json.loads(ask(borrowing, "pages"))
        return [ListedPage(adapter_info(page["facts"], index), page["away"]) for index, page in enumerate(pages, 1)]
    except (ValueError, LookupError, TypeError) as error:
        raise DmlError(f"the server of pages sent an invalid answer: {error}") from error


def ask(borrowing: str, name: str) -> bytes:
    """Return a server's answer to a request of an executor.

    Raises:
        DmlError: If it does not answer, or rejects the request.
    """
    parts = urlsplit(borrowing)
    try:
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("expected http://127.0.0.1:PORT/TOKEN")
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        try:
            connection.request("GET", f"{parts.path}/{name}")
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise ValueError(f"it answers {response.status}: {plain(response.read(200).decode(errors='replace'))}")
            return response.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DmlError(f"the server of pages at port {_port(parts)} cannot be reached: {error}") from error


def _port(parts: Any) -> str:
    """Return the port of an address for messages, which must not contain the token."""
    try:
        return str(parts.port)
    except ValueError:
        return "?"


def wait_for_pages(borrowing: str, count: int, timeout: float | None = None) -> list[AdapterInfo]:
    """Wait until a number of pages are connected; return their adapters.

    Raises:
        TimedOut: If that takes longer than ``timeout`` seconds.
        DmlError: As ``listed``.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        infos = [page.info for page in listed(borrowing) if page.away is None]
        if len(infos) >= count:
            return infos[:count]
        if deadline is not None and time.monotonic() >= deadline:
            raise TimedOut(f"{len(infos)} of {count} pages connected within {timeout:g} s")
        time.sleep(_POLL_SECONDS)


class Link:
    """A session on a page, until ``close``. Thread-safe. A page has a device per session.

    Args:
        borrowing: Address of the server for executors.
        index: 1-based index of the page on the server.
        label: Adapter, for messages.

    Raises:
        DeviceRemoved: If the page is not connected, or cannot create a device.
    """

    def __init__(self, borrowing: str, index: int, label: str):
        self._label = label
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.session = secrets.token_hex(8)
        self._pending: dict[int, Future[tuple[list[Any], memoryview]]] = {}
        self._lost: str | None = None
        self._closing = contextlib.ExitStack()
        address = f"ws{borrowing.removeprefix('http')}/page/{index}/{self.session}"
        try:
            self._connection = self._closing.enter_context(
                connect(address, proxy=None, compression=None, max_size=frames.MAX_FRAME_BYTES)
            )
        except (OSError, WebSocketException) as error:
            raise DeviceRemoved(f"{label}: the page is closed") from error
        threading.Thread(target=self._listen, daemon=True, name="dmlgpu page").start()
        try:
            self.call(self._send({"open": True}), _OPEN_SECONDS)
        except DmlError as error:
            self.close()
            raise DeviceRemoved(f"{label}: the page cannot create a device: {error}") from error

    def send(self, commands: Sequence[Sequence[Any]], blobs: Sequence[bytes | memoryview] = ()) -> int:
        """Send commands; return the number of the frame. Frames are processed in order.

        Raises:
            DeviceRemoved: If the page or its device is gone.
        """
        return self._send({"commands": commands}, blobs)

    def answer(self, request: int) -> Future[tuple[list[Any], memoryview]]:
        """Return the future of a frame's results and bytes."""
        with self._lock:
            return self._pending[request]

    def call(self, request: int, timeout: float | None = None) -> tuple[list[Any], memoryview]:
        """Wait for the results of a frame and discard it. Raises its error, TimedOut, or DeviceRemoved."""
        try:
            return self.answer(request).result(timeout)
        except TimeoutError as error:
            raise TimedOut(f"{self._label}: the page did not answer within {timeout:g} s") from error
        finally:
            self.forget(request)

    def forget_when_done(self, request: int) -> None:
        """Discard the results of a frame once they arrive; holders of its future keep them."""
        self.answer(request).add_done_callback(lambda _: self.forget(request))

    def forget(self, request: int) -> None:
        """Discard the results of a frame."""
        with self._lock:
            self._pending.pop(request, None)

    def check(self) -> None:
        """Raise DeviceRemoved if the page is gone."""
        if self._lost is not None:
            raise DeviceRemoved(f"{self._label}: {self._lost}")

    def close(self) -> None:
        """Release the page. Idempotent."""
        self._lose("the device is closed")
        self._closing.close()

    def _send(self, header: Mapping[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> int:
        gone = False
        with self._lock:
            self.check()
            request = next(self._numbers)
            self._pending[request] = Future()
            try:
                self._connection.send(frames.encode({**header, "session": self.session, "id": request}, blobs))
            except ConnectionClosed:
                gone = True
        if gone:
            self._lose(_CLOSED)
            self.forget(request)
            self.check()
        return request

    def _listen(self) -> None:
        reason = _CLOSED
        try:
            for message in self._connection:
                header, data = frames.decode(message)
                if "lost" in header:
                    reason = f"the browser's device is lost: {plain(header['lost'], 300)}"
                    break
                self._resolve(header, data)
        except ConnectionClosed:
            pass
        except InvalidArgument as error:
            reason = f"the page sent an invalid frame: {error}"
        self._lose(reason)

    def _resolve(self, header: Mapping[str, Any], data: memoryview) -> None:
        request = header.get("id")
        with self._lock:
            future = self._pending.get(request) if isinstance(request, int) else None
        if future is None:
            return
        problem, listed = _problem(header.get("problems"), self._label), header.get("results")
        results: list[Any] = listed if isinstance(listed, list) else []
        with contextlib.suppress(InvalidStateError):  # lost on another thread meanwhile, or answered twice
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result((results, data))

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = reason
            waiting = [future for future in self._pending.values() if not future.done()]
        for future in waiting:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(DeviceRemoved(f"{self._label}: {reason}"))


def printable(text: object) -> str:
    """Reduce text from a page to printable ASCII and line ends, with a length limit."""
    excerpt = text[:_MAX_TEXT] if isinstance(text, str) else ""
    return "".join(each if each == "\n" or " " <= each <= "~" else "?" for each in excerpt).strip()


def _problem(problems: object, label: str) -> DmlError | None:
    """Return the first problem of a frame as an exception."""
    if not isinstance(problems, list):
        return DmlError(f"{label}: the page's answer is malformed")
    if not problems:
        return None
    kind, text = problems[0] if isinstance(problems[0], list) and len(problems[0]) == 2 else ("", "")
    if kind == "memory":
        return OutOfMemory(f"{label}: {printable(text)}")
    return DmlError(f"{label}: {printable(text) or 'the page failed without a reason'}")
