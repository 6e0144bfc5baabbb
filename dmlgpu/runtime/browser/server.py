"""Server of the browser page; connects pages with executors, which may be in other processes.

It has two sockets: one for pages, on any address; one for executors, on the loopback address only. Each has a token in
its addresses, without which all requests are rejected. Browsers cannot use the second one.
"""

from __future__ import annotations

import contextlib
import hmac
import http
import importlib.resources
import json
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync import server as websockets

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.browser.facts import adapter_info

LOOPBACK: Final = "127.0.0.1"

_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "main.js": ("main.js", "text/javascript; charset=utf-8"),
    "frames.js": ("frames.js", "text/javascript; charset=utf-8"),
    "executor.js": ("executor.js", "text/javascript; charset=utf-8"),
}
_HELLO_SECONDS: Final = 10.0
_LOST: Final = 1001
"""WebSocket close code if the other side disconnects."""

_IDENTITY = re.compile(r"[0-9a-f]{16}")
MAX_PAGES: Final = 64


@dataclass
class Page:
    """A page. It keeps its index when it disconnects.

    Attributes:
        index: 1-based index among the pages of the server.
        info: Its adapter.
        hidden: Whether its tab is in the background, where browsers may pause it.
        connection: Its WebSocket; None while it is disconnected.
        left: Time of its disconnection, of the monotonic clock.
        borrowers: WebSockets of the executors that use it, by session.
    """

    index: int
    identity: str
    info: AdapterInfo
    facts: Mapping[str, Any]
    hidden: bool = False
    connection: websockets.ServerConnection | None = None
    borrowers: dict[str, websockets.ServerConnection] = field(default_factory=dict)
    left: float = 0.0

    @property
    def away(self) -> float | None:
        """Seconds since the page disconnected; None while it is connected."""
        return None if self.connection is not None else time.monotonic() - self.left


class PageServer:
    """Server of pages, on threads of its own, until ``close``. A context manager.

    Args:
        host: Address to listen on for pages. An address other than loopback admits other machines that know the token.
        port: Port; 0 picks a free one.
        many: Whether several pages may be connected at a time.
        certificate, key: PEM files for TLS.
        changed: Called, on any thread, with a page that connects, disconnects, or becomes hidden or visible.

    Attributes:
        address: Address of the page, with the token.
        borrowing: Address for executors, with its token.

    Raises:
        OSError: If the address cannot be listened on.
        InvalidArgument: If there is a key without a certificate, or a file cannot be used.
    """

    def __init__(
        self,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        many: bool = False,
        certificate: Path | None = None,
        key: Path | None = None,
        changed: Callable[[Page], None] = lambda page: None,
    ):
        if key is not None and certificate is None:
            raise InvalidArgument("serve: a key needs its certificate: --cert FILE.pem --key FILE.pem")
        self._many, self._changed = many, changed
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self._token, self._own_token = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(certificate, key)
            except OSError as error:  # names no file; raised for files that are not PEM as well
                files = f"{certificate}{f' with key {key}' if key else ''}"
                raise InvalidArgument(
                    f"serve: certificate {files} cannot be used: {error.strerror or error}"
                ) from error
        self._scheme = "https" if context else "http"
        options: dict[str, Any] = {"compression": None, "max_size": frames.MAX_FRAME_BYTES, "server_header": None}
        self.listeners = [
            websockets.serve(self._lend, host, port, ssl=context, process_request=self._answer_browser, **options)
        ]
        try:
            self.listeners.append(
                websockets.serve(self._borrow, LOOPBACK, 0, process_request=self._answer_executor, **options)
            )
        except BaseException:
            self.listeners[0].shutdown()
            raise
        port, own = (server.socket.getsockname()[1] for server in self.listeners)
        shown = reachable_host(host)
        self._hosts = {f"{name}:{port}" for name in _names(host, shown)}
        if port == {"http": 80, "https": 443}[self._scheme]:  # which browsers leave out
            self._hosts |= set(_names(host, shown))
        self.address = f"{self._scheme}://{_bracketed(shown)}:{port}/{self._token}/"
        self.borrowing = f"http://{LOOPBACK}:{own}/{self._own_token}"
        for server in self.listeners:
            threading.Thread(target=server.serve_forever, daemon=True, name="dmlgpu serve").start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect all pages and stop listening."""
        for server in self.listeners:
            server.shutdown()
        for page in self.pages:
            if page.connection is not None:
                page.connection.close(_LOST, "the server has ended")

    @property
    def pages(self) -> tuple[Page, ...]:
        """All known pages, in order of connection."""
        with self._lock:
            return tuple(self._pages)

    def show(self, index: int, **shown: str | int) -> None:
        """Show in a page which work it runs: ``now``, ``done`` and ``count``, ``verdict``. No effect while it is
        disconnected."""
        connection = self.pages[index - 1].connection
        if connection is not None:
            with contextlib.suppress(ConnectionClosed):
                connection.send(frames.encode({"show": shown}))

    # ---- HTTP requests -----------------------------------------------------------------------------------------------

    def _answer_browser(self, _: websockets.ServerConnection, request: Request) -> Response | None:
        """Return a file of the page or an error response; None to continue with the WebSocket."""
        name = _below(request.path, self._token)
        if name is None:
            return _response(http.HTTPStatus.FORBIDDEN, "the token in the address is missing or wrong\n")
        if request.headers.get("Host", "") not in self._hosts:
            return _response(http.HTTPStatus.FORBIDDEN, "the address names another host\n")
        if name == "socket":
            allowed = {f"{self._scheme}://{host}" for host in self._hosts}
            if request.headers.get("Origin") not in allowed:
                return _response(http.HTTPStatus.FORBIDDEN, "only this server's own page may connect\n")
            return None
        if name not in _FILES:
            return _response(http.HTTPStatus.NOT_FOUND, "there is no such file\n")
        file, kind = _FILES[name]
        content = importlib.resources.files("dmlgpu.runtime.browser").joinpath("page", file).read_bytes()
        host = request.headers["Host"]
        return _response(http.HTTPStatus.OK, content, kind, f"'self' ws://{host} wss://{host}")

    def _answer_executor(self, _: websockets.ServerConnection, request: Request) -> Response | None:
        """Return the list of pages or an error response; None to continue with the WebSocket of an open page."""
        name = _below(request.path, self._own_token)
        if name is None or "Origin" in request.headers:
            return _response(
                http.HTTPStatus.FORBIDDEN, "the token in the address is missing, or a browser sent the request\n"
            )
        if name == "pages":
            listed = [{"facts": dict(page.facts), "away": page.away} for page in self.pages]
            return _response(http.HTTPStatus.OK, json.dumps(listed), "application/json")
        if name.startswith("show/"):
            page = self._named(f"page/{name.removeprefix('show/')}")
            if page is not None:
                self.show(page.index, **_shown(request.path.partition("?")[2]))
            return _response(http.HTTPStatus.OK, "")
        page = self._named(name)
        if page is None or page.connection is None:
            return _response(http.HTTPStatus.NOT_FOUND, "there is no such page, or it is disconnected\n")
        return None

    def _named(self, name: str) -> Page | None:
        pages = self.pages
        match = re.fullmatch(r"page/([0-9]{1,3})(?:/[0-9a-f]{16})?", name)
        return pages[int(match[1]) - 1] if match and 1 <= int(match[1]) <= len(pages) else None

    # ---- connections ------------------------------------------------------------------------------------------------

    def _lend(self, connection: websockets.ServerConnection) -> None:
        """Register a page, and pass its frames to the executors that borrow it until it disconnects."""
        try:
            page = self._admit(connection)
        except (InvalidArgument, TimeoutError) as error:
            connection.close(1008, str(error)[:120])
            return
        self._changed(page)
        try:
            for message in connection:
                self._hand_on(page, message)
        except (ConnectionClosed, InvalidArgument):
            pass
        finally:
            with self._lock:
                page.connection, page.left, borrowers = None, time.monotonic(), list(page.borrowers.values())
            connection.close(1008, "")
            for borrower in borrowers:
                borrower.close(_LOST, "the page is closed, or its connection is lost")
            self._changed(page)

    def _admit(self, connection: websockets.ServerConnection) -> Page:
        """Return the page that a greeting identifies, a new one if it is unknown.

        Raises:
            InvalidArgument: If it says something else, or there is a page already.
            TimeoutError: If it says nothing.
        """
        header, _ = frames.decode(connection.recv(_HELLO_SECONDS))
        hello = header.get("hello")
        if not isinstance(hello, dict):
            raise InvalidArgument("page: the first frame must say hello")
        identity = hello.get("page")
        if not isinstance(identity, str) or not _IDENTITY.fullmatch(identity):
            raise InvalidArgument("page: the identity must be 16 hexadecimal digits")
        with self._lock:
            known = next((page for page in self._pages if page.identity == identity), None)
            if not self._many and known is None:
                known = next((page for page in self._pages if page.connection is None), None)
                if known is None and self._pages:
                    raise InvalidArgument("another page is connected already; use dmlgpu serve --many for several")
            if known is not None and known.connection is not None:
                raise InvalidArgument("this page is connected already")
            if known is None and len(self._pages) == MAX_PAGES:
                raise InvalidArgument(f"the limit of {MAX_PAGES} pages is reached")
            index = known.index if known else len(self._pages) + 1
            facts = hello.get("facts")
            info = adapter_info(facts, index)
            if known is None:
                known = Page(index, identity, info, {})
                self._pages.append(known)
            known.identity, known.info, known.facts = identity, info, _bounded(facts)
            known.connection, known.hidden = connection, hello.get("hidden") is True
        return known

    def _hand_on(self, page: Page, message: object) -> None:
        header, _ = frames.decode(message)
        if "hidden" in header:
            page.hidden = header["hidden"] is True
            self._changed(page)
            return
        session = header.get("session")
        borrower = page.borrowers.get(session) if isinstance(session, str) else None
        if borrower is not None:
            with contextlib.suppress(ConnectionClosed):
                borrower.send(message)  # type: ignore[arg-type]

    def _borrow(self, connection: websockets.ServerConnection) -> None:
        """Pass an executor's frames to a page until either disconnects."""
        assert connection.request is not None
        name = _below(connection.request.path, self._own_token) or ""
        page, session = self._named(name), name.rpartition("/")[2]
        if page is None:
            return
        with self._lock:
            lent = page.connection
            if lent is not None:
                page.borrowers[session] = connection
        if lent is None:
            connection.close(_LOST, "the page is closed, or its connection is lost")
            return
        try:
            for message in connection:
                lent.send(message)
        except ConnectionClosed:
            pass
        finally:
            with self._lock:
                page.borrowers.pop(session, None)
            with contextlib.suppress(ConnectionClosed):
                lent.send(frames.encode({"close": True, "session": session}))


def reachable_host(host: str) -> str:
    """Return the name or address by which other machines reach a server: for the wildcard address, that of outgoing
    packets."""
    if host not in ("0.0.0.0", "::", ""):
        return "localhost" if host in (LOOPBACK, "::1") else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of no host; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _names(host: str, shown: str) -> list[str]:
    """Return the host names by which browsers may reach the server."""
    return [_bracketed(name) for name in (host, shown, "localhost", LOOPBACK, socket.gethostname())]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _below(path: str, token: str) -> str | None:
    """Return the part of a request's path after the token; None if the token is wrong."""
    prefix, _, name = path.partition("?")[0].removeprefix("/").partition("/")
    return name if hmac.compare_digest(prefix.encode(), token.encode()) else None


def _bounded(facts: object) -> dict[str, Any]:
    """Return a page's checked facts, reduced to those that are used."""
    assert isinstance(facts, Mapping)
    texts = ("vendor", "architecture", "device", "description", "browser")
    bounded: dict[str, Any] = {name: str(facts.get(name, ""))[:500] for name in texts}
    return {**bounded, **{name: facts.get(name) for name in ("fallback", "features", "limits", "matrices")}}


def _shown(query: str) -> dict[str, str | int]:
    """Return a page's display from the query of an address."""
    parameters = dict(parse_qsl(query[:4000]))
    texts: dict[str, str | int] = {name: parameters[name] for name in ("now", "verdict") if name in parameters}
    numbers = {name: int(parameters[name]) for name in ("done", "count") if parameters.get(name, "").isdecimal()}
    return texts | numbers


def _response(
    status: http.HTTPStatus, content: str | bytes, kind: str = "text/plain; charset=utf-8", connect: str = "'none'"
) -> Response:
    data = content.encode() if isinstance(content, str) else content
    policy = f"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src {connect}"
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # the address holds the token
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
    )
    return Response(status.value, status.phrase, headers, data)
