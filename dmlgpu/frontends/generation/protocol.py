"""OpenAI's protocol: requests from JSON, and answers as JSON. ``server`` sends them by HTTP."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidState, NotSupported, shown
from dmlgpu.frontends.generation.generator import MAX_LOGPROBS, Generator, PromptTooLong
from dmlgpu.frontends.generation.sampling import SamplingOptions, TokenLogprob
from dmlgpu.frontends.generation.scheduler import AnswerPiece, QueueFull, Request
from dmlgpu.frontends.generation.tool_calls import (
    CallForm,
    CallStream,
    Tool,
    ToolCall,
    call_form,
    marked_tokens,
    schemas_of,
)

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.grammar import Grammar

_MAX_STOPS = 16
_MAX_INPUTS = 2048
_DEFAULT_TOKENS = 16
"""Tokens of ``/v1/completions`` if the request does not say, as OpenAI's."""

_IGNORED = (
    *("user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "verbosity", "prediction"),
)
"""Fields of OpenAI's protocol that do not change answers here."""

_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "dimensions": (),
    "audio": (),
    "web_search_options": (),
}
"""Fields that are supported only with these values, and null."""


class ProtocolError(Exception):
    """An error that a client receives.

    Args:
        message: What is wrong.
        status: HTTP status.
        param: Field of the request that is wrong.
        code: Word for programs, of OpenAI's.
    """

    TYPES: ClassVar[Mapping[int, str]] = {401: "authentication_error", 429: "rate_limit_error"}

    def __init__(self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def json(self) -> dict[str, Any]:
        """OpenAI's object of an error."""
        kind = self.TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @classmethod
    def of(cls, error: Exception) -> ProtocolError:
        """Return the error that a client receives for an exception."""
        if isinstance(error, ProtocolError):
            return error
        if isinstance(error, PromptTooLong):
            return cls(str(error), param="messages", code="context_length_exceeded")
        if isinstance(error, QueueFull):
            return cls(f"{error}; try again later", 429, code="rate_limit_exceeded")
        if isinstance(error, InvalidState):
            return cls(str(error), 503, code="service_unavailable")
        if isinstance(error, InvalidArgument | NotSupported):
            return cls(str(error))
        return cls(str(error) if isinstance(error, DmlError) else "an internal error", 500, code="internal_error")


# ---- requests --------------------------------------------------------------------------------------------------------


class Fields:
    """The fields of a request, each of which is read once; null is an omitted field.

    Args:
        body: JSON.

    Raises:
        ProtocolError: If it is not an object.
    """

    def __init__(self, body: bytes):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"The body must be JSON: {error}") from None
        if not isinstance(value, dict):
            raise ProtocolError(f"The body must be a JSON object, got {shown(value)}")
        self._values: dict[str, Any] = {name: item for name, item in value.items() if item is not None}

    def take(self, name: str, expected: str, is_valid: Callable[[Any], bool], default: Any = None) -> Any:
        """Return the value of a field.

        Args:
            name: The field.
            expected: What it must be, for the message.
            is_valid: Whether a value is right.
            default: The value of an omitted field.

        Raises:
            ProtocolError: If the value is not right.
        """
        if name not in self._values:
            return default
        value = self._values.pop(name)
        if not is_valid(value):
            raise ProtocolError(f"{name} must be {expected}, got {shown(value)}", param=name, code="invalid_value")
        return value

    def required(self, name: str, expected: str, is_valid: Callable[[Any], bool]) -> Any:
        """Return the value of a field that must be there.

        Raises:
            ProtocolError: If it is omitted or not right.
        """
        if name not in self._values:
            message = f"{name} is required: {expected}"
            raise ProtocolError(message, param=name, code="missing_required_parameter")
        return self.take(name, expected, is_valid)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        """Return an integer of a range."""
        value: int | None = self.take(name, f"an integer from {low} to {high}", _is_integer(low, high), default)
        return value

    def boolean(self, name: str) -> bool:
        """Return a boolean, false by default."""
        return bool(self.take(name, "true or false", lambda value: isinstance(value, bool), False))

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object, empty by default."""
        value: dict[str, Any] = self.take(name, "an object", lambda value: isinstance(value, dict), {})
        return value

    def finish(self) -> None:
        """Raise ProtocolError if there is a field that has not been read."""
        for name in _IGNORED:
            self._values.pop(name, None)
        for name, neutral in _NEUTRAL.items():
            value = self._values.pop(name, None)
            if value is not None and value not in neutral:
                allowed = " or ".join(["null", *map(json.dumps, neutral)])
                raise ProtocolError(
                    f"{name} must be {allowed} on this server, got {shown(value)}", param=name, code="unsupported_value"
                )
        for name in self._values:
            raise ProtocolError(f"Unknown parameter: {name!r}.", param=name, code="unknown_parameter")


@dataclass
class GenerationRequest:
    """A request of ``/v1/chat/completions`` or ``/v1/completions``.

    Attributes:
        is_chat: Whether it is one of the former.
        requests: A request per prompt.
        stream: Whether pieces are sent as they arrive.
        include_usage: Whether the last piece has the numbers of tokens.
        call_form: Form of calls of tools in the answer; None if there are none.
        tools: Schemas of arguments by the names of tools.
    """

    is_chat: bool
    requests: list[Request]
    stream: bool = False
    include_usage: bool = False
    call_form: CallForm | None = None
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def choices(self) -> int:
        """Number of answers."""
        return sum(request.n for request in self.requests)


@dataclass(frozen=True)
class ServedModel:
    """What requests are answered with.

    Attributes:
        generator: The model, of which only functions of the host are called.
        defaults: Options of SamplingOptions that apply to requests without them.
        max_tokens: Maximum number of tokens of an answer, if the request does not say; None for the context's.
        rows: Maximum number of answers of a request.
        pooling: Pooling of embeddings.
        created: Time of the start.
    """

    generator: Generator
    defaults: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    rows: int = 4
    pooling: str = "mean"
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.generator.model.name

    @property
    def json(self) -> dict[str, Any]:
        """Its object in ``/v1/models``."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "dmlgpu"}

    def check_name(self, name: str | None) -> None:
        """Raise ProtocolError if a request names another model."""
        if name is not None and name != self.name:
            raise ProtocolError(
                f"The model {shown(name)} does not exist; this server has {self.name!r}",
                404,
                param="model",
                code="model_not_found",
            )

    def chat(self, body: bytes) -> GenerationRequest:
        """Return a request of ``/v1/chat/completions``.

        Raises:
            ProtocolError: If it is malformed.
            InvalidArgument: If the model rejects it.
        """
        values = Fields(body)
        self.check_name(values.take("model", "a string", _is_text))
        messages = values.required("messages", "a list of messages", lambda value: isinstance(value, list))
        tools = values.take("tools", _TOOLS, _is_tools, [])
        switches = values.mapping("chat_template_kwargs")
        effort = values.take("reasoning_effort", "a string", _is_text)
        switches |= {} if effort is None else {"reasoning_effort": effort}
        logprobs = values.boolean("logprobs")
        top = values.integer("top_logprobs", 0, MAX_LOGPROBS)
        if top is not None and not logprobs:
            raise ProtocolError("top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
        limits = [values.integer(name, 1, 2**31) for name in ("max_completion_tokens", "max_tokens")]
        choice = values.take("tool_choice", _TOOL_CHOICE, _is_tool_choice, "auto")
        is_parallel = values.boolean("parallel_tool_calls")
        common = self._common(values, (top or 0) if logprobs else None, limits[0] or limits[1] or self.max_tokens)
        tools = [] if choice == "none" else tools
        template = self.generator.model.chat_template
        form = call_form(template) if tools else None
        if choice not in ("none", "auto"):
            if common.request["grammar"] is not None:
                message = "tool_choice requires a call, and response_format other text; send one of them"
                raise ProtocolError(message, param="tool_choice", code="invalid_value")
            common.request["grammar"] = self._calls(form, tools, choice, is_parallel)
        prompt = self.generator.chat_tokens(messages, tools=tools, switches=switches)
        marks = frozenset[int]() if form is None else marked_tokens(form, self.generator.model.tokenizer)
        return GenerationRequest(
            True,
            [Request(prompt, **common.request, marks=marks)],
            common.stream,
            common.include_usage,
            form,
            schemas_of(tools),
        )

    def _calls(self, form: CallForm | None, tools: Sequence[Tool], choice: Any, is_parallel: bool) -> Grammar:
        """Return the grammar of an answer that calls a tool."""
        name = choice["function"]["name"] if isinstance(choice, dict) else None
        allowed = [tool for tool in tools if name in (None, tool["function"]["name"])]
        if not allowed:
            message = "tool_choice needs tools" if name is None else f"tools must have {shown(name)}, the tool_choice"
            raise ProtocolError(message, param="tool_choice", code="invalid_value")
        tokenizer = self.generator.model.tokenizer
        if form is None or tokenizer is None:
            message = 'tool_choice must be "none" or "auto": how this model calls tools is unknown'
            raise ProtocolError(message, param="tool_choice", code="unsupported_value")
        text = form.grammar(allowed, tokenizer, is_parallel=is_parallel and name is None)
        return self._checked_grammar("tool_choice", lambda grammars: grammars.lark(text))

    def completion(self, body: bytes) -> GenerationRequest:
        """Return a request of ``/v1/completions``.

        Raises:
            ProtocolError: If it is malformed.
            InvalidArgument: If the model rejects it.
        """
        values = Fields(body)
        self.check_name(values.take("model", "a string", _is_text))
        prompts = _prompts(values.required("prompt", "a string, a list of them, or of token ids", _is_prompt))
        logprobs = values.integer("logprobs", 0, MAX_LOGPROBS)
        max_tokens = values.integer("max_tokens", 1, 2**31)
        common = self._common(values, logprobs, max_tokens or self.max_tokens or _DEFAULT_TOKENS)
        requests = [Request(self._tokens_of(prompt, "prompt"), **common.request) for prompt in prompts]
        return GenerationRequest(False, requests, common.stream, common.include_usage)

    def embeddings(self, body: bytes) -> tuple[list[list[int]], bool]:
        """Return the prompts of a request of ``/v1/embeddings``, and whether vectors are sent in base64.

        Raises:
            ProtocolError: If it is malformed.
            InvalidArgument: If the model rejects it.
        """
        values = Fields(body)
        self.check_name(values.take("model", "a string", _is_text))
        prompts = _prompts(values.required("input", "a string, a list of them, or of token ids", _is_prompt))
        encoding = values.take("encoding_format", '"float" or "base64"', lambda value: value in ("float", "base64"))
        values.finish()
        return [self._tokens_of(prompt, "input") for prompt in prompts], encoding == "base64"

    def _tokens_of(self, prompt: str | list[int], param: str) -> list[int]:
        try:
            return self.generator.tokens_of(prompt)
        except PromptTooLong as error:
            raise ProtocolError(str(error), param=param, code="context_length_exceeded") from None

    def _grammar(self, response_format: dict[str, Any]) -> Grammar | None:
        """Return the grammar that a request requires; None for any text."""
        kind = response_format.get("type", "text")
        if kind == "text":
            return None
        described = response_format.get("json_schema")
        schema = described.get("schema", {}) if isinstance(described, dict) else None
        if kind not in ("json_object", "json_schema") or (kind == "json_schema" and not isinstance(schema, dict)):
            raise ProtocolError(
                'response_format must be {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", '
                f'"json_schema": {{"schema": {{...}}}}}}, got {shown(response_format)}',
                param="response_format",
                code="invalid_value",
            )
        return self._checked_grammar(
            "response_format",
            lambda grammars: grammars.json() if kind == "json_object" else grammars.json_schema(schema or {}),
        )

    def _checked_grammar(self, param: str, create: Callable[[type[Grammar]], Grammar]) -> Grammar:
        """Return the grammar that a field requires."""
        try:
            from dmlgpu.frontends.generation.grammar import Grammar  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            message = f"{param} needs the package {error.name} on the server"
            raise ProtocolError(message, param=param, code="unsupported_value") from None
        try:
            grammar = create(Grammar)
            self.generator.matchers(grammar, 1)
        except InvalidArgument as error:
            raise ProtocolError(str(error), param=param, code="invalid_value") from None
        return grammar

    def _common(self, values: Fields, logprobs: int | None, max_tokens: int | None) -> _Common:
        """Return the fields that both kinds of requests have, and check that there are no others."""
        options = {
            name: value for name in _SAMPLING if (value := values.take(name, "a number", _is_number)) is not None
        }
        if "repeat_penalty" in options:
            options["repetition_penalty"] = options.pop("repeat_penalty")
        bias = values.mapping("logit_bias")
        if bias:
            options["logit_bias"] = _biases(bias)
        seed = values.integer("seed", -(2**63), 2**64 - 1)
        if seed is not None:
            options["seed"] = seed % 2**64
        sampling = SamplingOptions(**self.generator.with_defaults({**self.defaults, **options}))
        try:
            sampling.check("request", self.generator.model.config.vocabulary)
        except InvalidArgument as error:
            name = next((name for name in options if f" {name} " in str(error)), None)
            raise ProtocolError(str(error).removeprefix("request: "), param=name, code="invalid_value") from None
        stop = values.take("stop", f"a string that is not empty, or up to {_MAX_STOPS} of them", _is_stop, [])
        n = values.integer("n", 1, self.rows, 1) or 1
        stream = values.boolean("stream")
        stream_options = values.mapping("stream_options")
        if stream_options and not stream:
            raise ProtocolError("stream_options needs stream: true", param="stream_options", code="invalid_value")
        grammar = self._grammar(values.mapping("response_format"))
        values.finish()
        request = {
            "options": sampling,
            "max_tokens": max_tokens,
            "stop": (stop,) if isinstance(stop, str) else tuple(stop),
            "logprobs": logprobs,
            "n": n,
            "grammar": grammar,
        }
        return _Common(request, stream, bool(stream_options.get("include_usage")))


_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty"),
)
assert {field.name for field in fields(SamplingOptions)} == {*_SAMPLING, "logit_bias", "seed"} - {"repeat_penalty"}


@dataclass(frozen=True)
class _Common:
    request: dict[str, Any]
    stream: bool
    include_usage: bool


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_TOOLS = 'a list of {"type": "function", "function": {"name": ..., "parameters": {...}}}'
_TOOL_CHOICE = '"none", "auto", "required" or {"type": "function", "function": {"name": ...}}'
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def _is_tools(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_function, value))


def _is_function(value: object) -> bool:
    """Return whether a value names a function, with a schema of its arguments or without."""
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("parameters"), dict | None):
        return False
    return isinstance(function.get("name"), str) and _NAME.fullmatch(function["name"]) is not None


def _is_tool_choice(value: object) -> bool:
    return value in ("none", "auto", "required") or _is_function(value)


def _is_stop(value: object) -> bool:
    texts = [value] if isinstance(value, str) else value
    return (
        isinstance(texts, list) and len(texts) <= _MAX_STOPS and all(isinstance(text, str) and text for text in texts)
    )


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_integer(0, 2**31 - 1), value))


def _is_prompt(value: object) -> bool:
    if isinstance(value, str) or _is_ids(value):
        return True
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_INPUTS
        and (all(map(_is_text, value)) or all(map(_is_ids, value)))
    )


def _prompts(value: Any) -> list[Any]:
    """Return the prompts of a field that has one or several."""
    return [value] if isinstance(value, str) or isinstance(value[0], int) else value


def _biases(bias: Mapping[str, Any]) -> dict[int, float]:
    if not all(key.isdecimal() and _is_number(value) for key, value in bias.items()):
        raise ProtocolError(
            f"logit_bias must be numbers by token id, got {shown(bias)}", param="logit_bias", code="invalid_value"
        )
    return {int(key): value for key, value in bias.items()}


# ---- answers ---------------------------------------------------------------------------------------------------------


def usage(prompt_tokens: int, tokens: int, reused_tokens: int) -> dict[str, Any]:
    """Return the numbers of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": prompt_tokens + tokens,
        "prompt_tokens_details": {"cached_tokens": reused_tokens},
    }


def embeddings_json(model: str, vectors: Sequence[NDArray[np.float32]], tokens: int, is_base64: bool) -> dict[str, Any]:
    """Return the answer of ``/v1/embeddings``."""
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode() if is_base64 else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    counts = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": counts}


class Answer:
    """The answers to a request as JSON: piece by piece, and as a whole.

    Args:
        model: The model.
        generation: The request.
    """

    def __init__(self, model: ServedModel, generation: GenerationRequest):
        self._model, self._is_chat, form = model, generation.is_chat, generation.call_form
        self._id = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._choices: list[list[AnswerPiece]] = [[] for _ in range(generation.choices)]
        self._streams = [None if form is None else CallStream(form, generation.tools) for _ in self._choices]

    @property
    def tokens(self) -> int:
        """Number of tokens of all answers."""
        return sum(map(len, self._choices))

    def add(self, choice: int, piece: AnswerPiece) -> None:
        """Add a piece to an answer."""
        self._choices[choice].append(piece)

    def beginning(self) -> list[dict[str, Any]]:
        """Return what is sent before the first piece."""
        if not self._is_chat:
            return []
        return [
            self._object(".chunk", [self._choice(index, delta={"role": "assistant", "content": ""})])
            for index in range(len(self._choices))
        ]

    def chunk(self, choice: int, piece: AnswerPiece) -> dict[str, Any] | None:
        """Return what is sent for the last piece of an answer; None if there is nothing to send."""
        text, calls = self._separated(choice, [piece])
        if not (text or calls or piece.finish or piece.logprob):
            return None
        finish = self._finish(choice, piece.finish) or None
        entry = self._choice(choice, finish=finish, logprobs=self._logprobs(choice, [piece]))
        delta: dict[str, Any] = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": index, **_call_json(call)} for index, call in calls]
        return self._object(".chunk", [entry | ({"delta": delta} if self._is_chat else {"text": text})])

    def _separated(self, choice: int, pieces: Sequence[AnswerPiece]) -> tuple[str, list[tuple[int, ToolCall]]]:
        """Return the text of pieces, and calls with their indices."""
        text, stream = "".join(piece.text for piece in pieces), self._streams[choice]
        if stream is None:
            return text, []
        before = len(stream.calls)
        text, _ = stream.add(text)
        if pieces and pieces[-1].finish:
            text += stream.finish()[0]
        return text, list(enumerate(stream.calls))[before:]

    def _finish(self, choice: int, finish: str) -> str:
        """Return the reason why an answer ended."""
        stream = self._streams[choice]
        return "tool_calls" if finish == "stop" and stream is not None and stream.calls else finish

    def final_usage(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the last piece, which has the numbers of tokens."""
        return {**self._object(".chunk", []), "usage": counts}

    def whole(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return all answers."""
        entries = []
        for index, pieces in enumerate(self._choices):
            text, calls = self._separated(index, pieces)
            finish = self._finish(index, pieces[-1].finish if pieces else "stop")
            entry = self._choice(index, finish=finish, logprobs=self._logprobs(index, pieces))
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if calls:
                message |= {"content": text.strip() or None, "tool_calls": [_call_json(call) for _, call in calls]}
            entries.append(entry | ({"message": message} if self._is_chat else {"text": text}))
        return {**self._object("", entries), "usage": counts}

    def _object(self, suffix: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self._is_chat else "text_completion"
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
        }

    def _choice(self, index: int, *, finish: str | None = None, logprobs: Any = None, **more: Any) -> dict[str, Any]:
        return {"index": index, **more, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, choice: int, pieces: Sequence[AnswerPiece]) -> dict[str, Any] | None:
        entries = [piece.logprob for piece in pieces if piece.logprob is not None]
        if not entries:
            return None
        if self._is_chat:
            content = [
                {
                    **self._token(entry.token, entry.logprob),
                    "top_logprobs": [self._token(token, number) for token, number in entry.top],
                }
                for entry in entries
            ]
            return {"content": content, "refusal": None}
        return self._token_lists(choice, pieces, entries)

    def _token_lists(
        self, choice: int, pieces: Sequence[AnswerPiece], entries: Sequence[TokenLogprob]
    ) -> dict[str, Any]:
        """Return the probabilities of ``/v1/completions``."""
        before = self._choices[choice]
        start = sum(len(piece.text) for piece in before[: len(before) - len(pieces)])
        offsets = [start]
        for piece in pieces[:-1]:
            offsets.append(offsets[-1] + len(piece.text))
        return {
            "tokens": [self._text_of(entry.token) for entry in entries],
            "token_logprobs": [_finite(entry.logprob) for entry in entries],
            "top_logprobs": [
                {self._text_of(token): _finite(number) for token, number in entry.top} for entry in entries
            ],
            "text_offset": offsets,
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._text_of(token)
        is_whole = "\N{REPLACEMENT CHARACTER}" not in text
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode()) if is_whole else None}

    def _text_of(self, token: int) -> str:
        tokenizer = self._model.generator.model.tokenizer
        return str(token) if tokenizer is None else tokenizer.decode([token], skip_special_tokens=False)


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finite(number: float) -> float:
    """Return a number that JSON has."""
    return max(number, -9999.0)
