"""An HTTP server of a language model with OpenAI's protocol.

Needs the packages ``starlette`` and ``uvicorn``: ``pip install dmlgpu[server]``.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.frontends.generation.protocol import (
    Answer,
    GenerationRequest,
    ProtocolError,
    ServedModel,
    embeddings_json,
    usage,
)
from dmlgpu.frontends.generation.scheduler import Received, Scheduler, Submission

PORT = 8080
"""Default port."""

_MAX_BODY = 8 << 20
_SHUTDOWN_SECONDS = 3
_MIN_NORM = 1e-30
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # nginx passes pieces on as they arrive

_Handler: TypeAlias = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or address.
        port: Port; 0 picks a free one.
    """

    host: str = "127.0.0.1"
    port: int = PORT

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the address that ``HOST:PORT``, ``HOST``, ``:PORT`` or ``PORT`` names.

        Raises:
            InvalidArgument: If it is malformed.
        """
        host, separator, port = text.rpartition(":")
        if not separator or port.endswith("]"):
            host, port = ("", text) if text.isdecimal() else (text, str(PORT))
        elif ":" in host and not host.startswith("["):
            host, port = text, str(PORT)  # an address of IPv6
        if not (port.isdecimal() and int(port) < 1 << 16):
            raise InvalidArgument(f"address must be HOST:PORT, with a port from 0 to 65535, got {shown(text)}")
        return cls(host.removeprefix("[").removesuffix("]") or cls.host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        return _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def application(model: ServedModel, scheduler: Scheduler, *, api_key: str | None = None) -> Starlette:
    """Return the application.

    Args:
        model: The model.
        scheduler: Its scheduler, which has been started.
        api_key: Key that clients must send; None for none. Then, clients must address the server by a name of the
            loopback address, so that pages of other sites cannot reach it by names of theirs.
    """
    server = _Application(model, scheduler, api_key)
    routes = [
        Route("/health", server.health, methods=["GET"]),
        Route("/v1/models", server.models, methods=["GET"]),
        Route("/v1/models/{name:path}", server.model, methods=["GET"]),
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.completion, methods=["POST"]),
        Route("/v1/embeddings", server.embeddings, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _server_error})


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    """Answer unknown paths and methods."""
    assert isinstance(error, HTTPException)
    message = f"Invalid URL ({request.method} {request.url.path})" if error.status_code == 404 else error.detail
    return _response(ProtocolError(message, error.status_code), error.headers)


async def _server_error(request: HttpRequest, error: Exception) -> Response:
    return _response(ProtocolError.of(error))


def _response(error: ProtocolError, headers: Mapping[str, str] | None = None) -> Response:
    retry = {"Retry-After": "1"} if error.status == 429 else {}
    return JSONResponse(error.json, error.status, headers={**(headers or {}), **retry})


class _Application:
    """The functions of the paths."""

    def __init__(self, model: ServedModel, scheduler: Scheduler, api_key: str | None):
        self._model, self._scheduler, self._api_key = model, scheduler, api_key

    async def health(self, request: HttpRequest) -> Response:
        """Answer that the server runs."""
        return JSONResponse({"status": "ok"})

    async def models(self, request: HttpRequest) -> Response:
        """Answer with the list of models."""
        return await self._answered(request, self._models)

    async def model(self, request: HttpRequest) -> Response:
        """Answer with a model."""
        return await self._answered(request, self._one_model)

    async def chat(self, request: HttpRequest) -> Response:
        """Answer with the next message of a conversation."""
        return await self._answered(request, lambda request: self._generated(request, self._model.chat))

    async def completion(self, request: HttpRequest) -> Response:
        """Answer with the continuation of prompts."""
        return await self._answered(request, lambda request: self._generated(request, self._model.completion))

    async def embeddings(self, request: HttpRequest) -> Response:
        """Answer with embeddings."""
        return await self._answered(request, self._embedded)

    async def _answered(self, request: HttpRequest, handler: _Handler) -> Response:
        try:
            self._authorize(request)
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            return _response(ProtocolError.of(error))

    def _authorize(self, request: HttpRequest) -> None:
        """Raise ProtocolError if the client may not ask."""
        if self._api_key is None:
            host = request.url.hostname or ""
            if not _is_loopback(host):
                raise ProtocolError(
                    f"The host {shown(host)} is not this machine; a server without a key answers to localhost only",
                    403,
                    code="forbidden_host",
                )
            return
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._api_key.encode()):
            message = "Incorrect API key provided." if key else "You didn't provide an API key."
            raise ProtocolError(message, 401, code="invalid_api_key")

    async def _models(self, request: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._model.json]})

    async def _one_model(self, request: HttpRequest) -> Response:
        self._model.check_name(request.path_params["name"])
        return JSONResponse(self._model.json)

    async def _body(self, request: HttpRequest) -> bytes:
        """Return the body of a request.

        Raises:
            ProtocolError: If it is too large or not JSON. A page of another site cannot send JSON without asking.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProtocolError(f"Content-Type must be application/json, got {shown(kind)}", 415)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY:
                raise ProtocolError(f"The body must have at most {_MAX_BODY} bytes", 413)
        return bytes(body)

    async def _embedded(self, request: HttpRequest) -> Response:
        prompts, is_base64 = await run_in_threadpool(self._model.embeddings, await self._body(request))
        vectors = []
        for prompt in prompts:
            future = self._scheduler.embed(prompt, self._model.pooling)
            vector = await asyncio.wrap_future(future)
            vectors.append(vector / max(float(np.linalg.norm(vector)), _MIN_NORM))
        return JSONResponse(embeddings_json(self._model.name, vectors, sum(map(len, prompts)), is_base64))

    async def _generated(self, request: HttpRequest, parse: Callable[[bytes], GenerationRequest]) -> Response:
        generation = await run_in_threadpool(parse, await self._body(request))
        answers = _Answers(self._scheduler, generation)
        watch = asyncio.create_task(_watch(request, answers))
        try:
            pieces = answers.pieces()
            if not generation.stream:
                answer = Answer(self._model, generation)
                async for choice, piece in pieces:
                    answer.add(choice, piece)
                return JSONResponse(answer.whole(answers.usage(answer.tokens)))
            first = await anext(pieces, None)  # errors before it have a status
        except BaseException:
            watch.cancel()
            answers.cancel()
            raise
        finally:
            if not generation.stream:
                watch.cancel()
        events = self._events(generation, answers, first, pieces, watch)
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)

    async def _events(
        self,
        generation: GenerationRequest,
        answers: _Answers,
        first: Any,
        pieces: AsyncIterator[Any],
        watch: asyncio.Task[None],
    ) -> AsyncIterator[str]:
        """Yield server-sent events."""
        answer = Answer(self._model, generation)
        usage_field = {"usage": None} if generation.include_usage else {}
        try:
            for event in answer.beginning():
                yield _event({**event, **usage_field})
            current = first
            while current is not None:
                answer.add(*current)
                if (chunk := answer.chunk(*current)) is not None:
                    yield _event({**chunk, **usage_field})
                current = await anext(pieces, None)
            if generation.include_usage:
                yield _event(answer.final_usage(answers.usage(answer.tokens)))
            yield "data: [DONE]\n\n"
        except Exception as error:
            yield _event(ProtocolError.of(error).json)
        finally:
            watch.cancel()
            answers.cancel()


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def _watch(request: HttpRequest, answers: _Answers) -> None:
    """Cancel answers when their client breaks off."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answers.break_off()


class _Answers:
    """The submissions of a request, whose pieces arrive in the event loop.

    Args:
        scheduler: The scheduler.
        generation: The request.

    Raises:
        QueueFull: If not all prompts find a place in the queue.
        DmlError: As ``Scheduler.submit``.
    """

    def __init__(self, scheduler: Scheduler, generation: GenerationRequest):
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int, Received]] = asyncio.Queue()
        self._submissions: list[Submission] = []
        first = 0
        try:
            for request in generation.requests:
                self._submissions.append(scheduler.submit(request, self._receiver(first)))
                first += request.n
        except Exception:
            self.cancel()
            raise

    def _receiver(self, first: int) -> Callable[[Received], None]:
        """Return a function that passes pieces to the event loop from the thread of the scheduler."""
        return lambda received: self._put(first, received)

    def _put(self, first: int, received: Received) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (first, received))

    async def pieces(self) -> AsyncIterator[tuple[int, Any]]:
        """Yield pieces with the indices of their answers.

        Raises:
            Exception: That ended the answers.
        """
        remaining = len(self._submissions)
        while remaining:
            first, received = await self._queue.get()
            if isinstance(received, Exception):
                raise received
            if received is None:
                remaining -= 1
            else:
                yield first + received.index, received

    def usage(self, tokens: int) -> dict[str, Any]:
        """Return the numbers of tokens."""
        prompts = sum(len(request.prompt) for request in self._generation.requests)
        return usage(prompts, tokens, sum(submission.reused_tokens for submission in self._submissions))

    def cancel(self) -> None:
        """End the answers."""
        for submission in self._submissions:
            submission.cancel()

    def break_off(self) -> None:
        """End the answers, because their client has gone."""
        self.cancel()
        self._queue.put_nowait((0, ClientDisconnect()))


class _Server(uvicorn.Server):
    """A server whose answers end when it is interrupted."""

    def __init__(self, config: uvicorn.Config, scheduler: Scheduler):
        super().__init__(config)
        self._scheduler = scheduler

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._scheduler.stop()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(
    model: ServedModel,
    scheduler: Scheduler,
    address: Address,
    *,
    api_key: str | None = None,
    ready: Callable[[Address], None] = lambda address: None,
) -> None:
    """Answer requests until Ctrl-C.

    Args:
        model: The model.
        scheduler: Its scheduler, which is started and closed.
        address: Where to listen.
        api_key: Key that clients must send; None for none.
        ready: Called with the actual address when clients can connect.

    Raises:
        InvalidArgument: If other machines could connect without a key.
        OSError: If the address cannot be listened on.
    """
    check_access(address, api_key)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.create_server((address.host, address.port), family=family) as listening, scheduler:
        app = application(model, scheduler, api_key=api_key)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=_SHUTDOWN_SECONDS
        )
        ready(Address(address.host, listening.getsockname()[1]))
        _Server(config, scheduler).run(sockets=[listening])


def check_access(address: Address, api_key: str | None) -> None:
    """Raise InvalidArgument if other machines could connect without a key, or the key is malformed."""
    if api_key is not None and (not api_key.isascii() or not api_key.isprintable() or api_key != api_key.strip()):
        raise InvalidArgument("the key must be printable ASCII without spaces at its ends")
    if not api_key and not address.is_loopback:
        raise InvalidArgument(
            f"{address} can be reached by other machines, which needs a key: pass --api-key or set DMLGPU_API_KEY"
        )
