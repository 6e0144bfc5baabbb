"""The server of pages on the loopback address, and an executor's link to a page that a thread of the test plays."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import queue
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dmlgpu import Device
from dmlgpu.common.errors import AdapterNotFound, DeviceRemoved, DmlError, InvalidArgument, OutOfMemory, TimedOut
from dmlgpu.conformance.running import worker
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.adapters import adapters, choose
from dmlgpu.runtime.browser import frames, lending
from dmlgpu.runtime.browser.backend import BrowserBackend
from dmlgpu.runtime.browser.link import Link, listed, wait_for_pages
from dmlgpu.runtime.browser.server import PageServer
from tests.unit.cli.cli_process import run_here
from tests.unit.runtime.browser.test_browser_frames import FACTS

LIMIT = 30
"""Seconds after which a test that waits in vain fails."""


@pytest.fixture
def server():
    with PageServer() as started:
        yield started


def get(server, path, **headers):
    """The status and the headers that the pages' side answers."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=LIMIT)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.headers), body


def socket_of(server, origin=True):
    parts = urlsplit(server.address)
    header = f"http://{parts.netloc}" if origin is True else origin
    return connect(f"ws://{parts.netloc}{parts.path}socket", origin=header, proxy=None)


class ScriptedPage:
    """A page without a browser: memory is bytes, programs are lost."""

    def __init__(self, server, identity="0123456789abcdef", answer=None):
        self.commands = queue.SimpleQueue()
        self.memory = {}
        self.answer = answer or self.computed
        self.closing = contextlib.ExitStack()
        self.connection = self.closing.enter_context(socket_of(server))
        self.connection.send(frames.encode({"hello": {"page": identity, "facts": FACTS}}))
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while (message := self.received()) is not None:
            header, data = frames.decode(message)
            if "id" in header:
                reply, blobs = self.answer(header.get("commands", []), data)
                if reply is not None:
                    self.connection.send(
                        frames.encode({"session": header["session"], "id": header["id"], **reply}, blobs)
                    )

    def received(self):
        try:
            return self.connection.recv()
        except ConnectionClosed:
            return None

    def computed(self, commands, data):
        blobs = []
        for name, *arguments in commands:
            self.commands.put(name)
            if name == "create":
                self.memory[arguments[0]] = bytearray(arguments[1])
            elif name == "write":
                number, offset, start, size = arguments
                self.memory[number][offset : offset + size] = data[start : start + size]
            elif name == "read":
                number, offset, size = arguments
                blobs.append(bytes(self.memory[number][offset : offset + size]))
        return {"results": ["" for _ in commands], "problems": []}, blobs

    def close(self):
        self.closing.close()
        self.thread.join(LIMIT)


def ready(server, count=1):
    return wait_for_pages(server.borrowing, count, LIMIT)


# ---- who is let in ---------------------------------------------------------------------------------------------------


def test_it_listens_on_the_loopback_address(server):
    assert server.address.startswith("http://localhost:")
    assert urlsplit(server.borrowing).hostname == "127.0.0.1"
    assert all(server.socket.getsockname()[0] == "127.0.0.1" for server in server.listeners)


def test_the_page_is_whole_and_small(server):
    path = urlsplit(server.address).path
    total = 0
    for name in ("", "page.css", "main.js", "frames.js", "executor.js"):
        status, headers, body = get(server, path + name)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert b"https://" not in body
        total += len(body)
    assert total < 50_000
    assert get(server, path + "../server.py")[0] == 404


def test_without_the_token_nothing_is_given_out(server):
    right = urlsplit(server.address).path
    for path in ("/", "/main.js", "/x/", right[:-2] + "/", urlsplit(server.borrowing).path + "/", "/%00/"):
        assert get(server, path)[0] == 403


def test_another_host_is_rejected(server):
    assert get(server, urlsplit(server.address).path, Host="rebound.example")[0] == 403


@pytest.mark.parametrize("origin", [None, "null", "https://example.org", "http://localhost:1"])
def test_another_origin_is_rejected(server, origin):
    with pytest.raises(InvalidStatus) as refused, socket_of(server, origin):
        pass
    assert refused.value.response.status_code == 403


def test_browsers_do_not_get_to_the_executors_side(server):
    parts = urlsplit(server.borrowing)
    for path, headers in ((parts.path + "/pages", {"Origin": "null"}), ("/wrong/pages", {})):
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=LIMIT)
        connection.request("GET", path, headers=headers)
        assert connection.getresponse().status == 403
        connection.close()
    with pytest.raises(DmlError, match="403") as refused:
        listed(server.borrowing + "x")
    assert parts.path[1:] not in str(refused.value)


@pytest.mark.parametrize(
    "hello",
    [
        "text",
        b"",
        frames.encode({}),
        frames.encode({"hello": {"page": "../..", "facts": FACTS}}),
        frames.encode({"hello": {"page": "0123456789abcdef", "facts": {**FACTS, "limits": {}}}}),
    ],
)
def test_connections_without_a_greeting_are_closed(server, hello):
    with socket_of(server) as connection, pytest.raises(ConnectionClosed) as closed:
        connection.send(hello)
        connection.recv(LIMIT)
    assert closed.value.rcvd.code == 1008
    assert server.pages == ()


def test_a_frame_beyond_the_bound_ends_the_connection(server):
    page = ScriptedPage(server)
    ready(server)
    page.connection.send(bytes(frames.MAX_FRAME_BYTES + 1))
    page.thread.join(LIMIT)
    assert not page.thread.is_alive()


def test_one_page_at_a_time_unless_many(server):
    first = ScriptedPage(server)
    ready(server)
    with socket_of(server) as second, pytest.raises(ConnectionClosed, match="another page is connected"):
        second.send(frames.encode({"hello": {"page": "f" * 16, "facts": FACTS}}))
        second.recv(LIMIT)
    first.close()
    with PageServer(many=True) as many:
        pages = [ScriptedPage(many, "1" * 16), ScriptedPage(many, "2" * 16)]
        infos = ready(many, 2)
        assert [info.driver for info in infos] == ["Safari 26.0", "Safari 26.0, page 2"]
        for page in pages:
            page.close()


def test_a_key_needs_its_certificate(tmp_path):
    with pytest.raises(InvalidArgument, match="--cert"):
        PageServer(key=tmp_path / "key.pem")


# ---- the executor ----------------------------------------------------------------------------------------------------


def test_bytes_go_to_the_page_and_back_in_one_frame(server):
    page = ScriptedPage(server)
    (info,) = ready(server)
    backend = BrowserBackend(info, server.borrowing, 1)
    buffer = backend.create_buffer(64, "x")
    data = np.arange(64, dtype=np.uint8)
    backend.write(buffer, 0, data)
    assert page.commands.empty()  # nothing is sent without a waiting reader
    assert np.array_equal(backend.read(buffer, 16, 32), data[16:48])
    backend.destroy_buffer(buffer)
    backend.wait(backend.submit([]), LIMIT)
    assert [page.commands.get(timeout=LIMIT) for _ in range(5)] == ["create", "write", "read", "submit", "destroy"]
    backend.close()
    page.close()


def test_long_transfers_go_in_several_frames(server, monkeypatch):
    monkeypatch.setattr(frames, "CHUNK_BYTES", 1000)
    page = ScriptedPage(server)
    (info,) = ready(server)
    backend = BrowserBackend(info, server.borrowing, 1, memory_budget=8000)
    buffer = backend.create_buffer(4000, "x")
    data = np.random.default_rng(0).integers(0, 256, 4000).astype(np.uint8)
    backend.write(buffer, 0, data)
    assert np.array_equal(backend.read(buffer, 0, 4000), data)
    with pytest.raises(OutOfMemory, match="memory budget"):
        backend.create_buffer(4004, "y")
    with pytest.raises(OutOfMemory, match="exceed"):
        backend.create_buffer(1 << 40, "z")
    backend.close()
    page.close()


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        ({"problems": [["memory", "no more"]]}, OutOfMemory, "no more"),
        ({"problems": [["validation", "a \x1b[0m fault"]]}, DmlError, r"a \?\[0m fault"),
        ({"problems": "x"}, DmlError, "malformed"),
        ({"problems": [{}]}, DmlError, "without a reason"),
        ({"problems": [], "results": []}, DmlError, "0 bytes instead of 16"),
    ],
)
def test_errors_of_the_page_are_raised(server, reply, error, text):
    def answer(commands, data):
        return ({"results": [], "problems": []} if not commands else reply), []

    page = ScriptedPage(server, answer=answer)
    (info,) = ready(server)
    backend = BrowserBackend(info, server.borrowing, 1)
    buffer = backend.create_buffer(16, "x")
    with pytest.raises(error, match=text):
        backend.read(buffer, 0, 16)
    backend.close()
    page.close()


def test_a_page_that_closes_removes_the_device(server, monkeypatch):
    monkeypatch.setenv(lending.VARIABLE, server.borrowing)
    page = ScriptedPage(
        server, answer=lambda commands, data: ((None if commands else {"results": [], "problems": []}), [])
    )
    (info,) = ready(server)
    device = Device("browser")
    assert device.adapter == info
    buffer = device.create_buffer(16)
    threading.Timer(0.05, page.connection.close).start()
    with pytest.raises(DeviceRemoved, match="the page is closed"):
        buffer.read()
    assert device.removed_reason is not None
    monkeypatch.setattr(lending, "RETURN_SECONDS", 0.0)
    with pytest.raises(DeviceRemoved, match="did not reconnect"):
        Device(info)
    again = ScriptedPage(server)
    ready(server)
    with_it = Device(info)
    memory = with_it.create_buffer(16)
    assert not memory.read().any()
    with_it.remove()
    again.close()


def test_a_page_works_for_several_executors(server):
    def answer(commands, data):
        return {"results": [each[0] for each in commands], "problems": []}, []

    page = ScriptedPage(server, answer=answer)
    ready(server)
    first, second = Link(server.borrowing, 1, "first"), Link(server.borrowing, 1, "second")
    numbers = first.send([["a"]]), second.send([["b"]])
    assert second.call(numbers[1], LIMIT)[0] == ["b"]
    assert first.call(numbers[0], LIMIT)[0] == ["a"]
    first.close()
    page.connection.send(frames.encode({"session": first.session, "id": 3, "results": ["stale"], "problems": []}))
    assert second.call(second.send([["c"]]), LIMIT)[0] == ["c"]
    second.close()
    page.close()


def test_pages_are_adapters(server, monkeypatch):
    monkeypatch.setenv(lending.VARIABLE, server.borrowing)
    page = ScriptedPage(server)
    (info,) = ready(server)
    assert adapters()[-1] == info
    assert choose("browser") == choose("apple m2") == info
    monkeypatch.delenv(lending.VARIABLE)
    assert info not in adapters()
    with pytest.raises(AdapterNotFound, match="no such page"):
        Device(info)
    page.close()


def test_waiting_for_a_page_ends(server):
    with pytest.raises(TimedOut, match="0 of 1 pages"):
        wait_for_pages(server.borrowing, 1, 0.0)


def test_the_address_is_printed_with_a_qr_code(server):
    text = lending.introduction(server)
    assert server.address in text
    assert server.borrowing not in text
    lines = [line for line in text.splitlines() if "█" in line]
    assert len({len(line) for line in lines}) == 1


def test_a_child_whose_page_is_away_says_so():
    """One answer, to the first case; the next child looks for the page again."""
    answers = io.StringIO()
    requests = io.StringIO('"argmin-example1"\n"argmax-example1"\n')
    worker.CaseServer(None, answers).reject(requests, DeviceRemoved("the page is closed"))
    _, record = map(json.loads, answers.getvalue().splitlines())
    outcome = Outcome.from_json(record)
    assert (outcome.case, outcome.status) == ("argmin-example1", Status.DEVICE_LOST)
    assert outcome.message == "the page is closed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--key", "key.pem"), "a key needs its certificate"),
        (("serve", "--cert", "nonesuch.pem"), "certificate nonesuch.pem cannot be used: No such file or directory"),
    ],
)
def test_serving_with_wrong_files(arguments, message):
    done = run_here(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
