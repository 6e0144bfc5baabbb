"""Streams of text from tokens, and prompts from conversations."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dmlgpu.common.errors import InvalidArgument, ModelError, abridged, shown

if TYPE_CHECKING:
    from jinja2.parser import Parser
    from tokenizers import Tokenizer

Message = Mapping[str, Any]

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""Name of a token for one byte. Some tokenizers write characters without a token as such bytes."""


class TextStream:
    """Converts the tokens of an answer to pieces of text.

    The pieces continue the prompt: prompt and pieces together equal the decoded text of all tokens. A piece is
    returned when no further token can change it. The last character waits while it may lack bytes. A run of byte
    tokens waits for its end, because one invalid byte turns all of them into replacement characters.

    Args:
        tokenizer: Converts tokens to text.
        stop: Strings that end the output; they are not part of it.
        prompt: Tokens before the answer.
        marks: Special tokens that the text has, such as those that mark calls of tools.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        prompt: Sequence[int] = (),
        marks: Collection[int] = (),
    ):
        self._tokenizer, self._stop, self._marks = tokenizer, tuple(stop), marks
        # Recent tokens, the index of the first one after the last boundary between characters, and the returned text of
        # all of them. A few tokens before the boundary suffice: they decide about spaces after it.
        self._tokens, self._boundary = list(prompt), len(prompt)
        self._shown = self._decoded(self._tokens)
        self._text = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Return the text that a token completes; empty if it ends within a character or a stop string."""
        name, alone = self._tokenizer.id_to_token(token), self._decoded([token])
        is_special = not alone and self._tokenizer.decode([token], skip_special_tokens=False)
        if name is None or is_special:
            return self._released(self._next(last=True) + name, last=False) if name and token in self._marks else ""
        self._tokens.append(token)
        if alone == name or not _BYTE.fullmatch(name):
            return self._released(self._next(last=False), last=False)
        if any(stop in self._text + self._beyond(self._decoded(self._tokens)) for stop in self._stop):
            return self.finish()
        return ""

    def finish(self) -> str:
        """Return the remaining text."""
        return "" if self.stopped else self._released(self._next(last=True), last=True)

    def _next(self, *, last: bool) -> str:
        """Return the new text, except for a last character that may be incomplete."""
        text = self._decoded(self._tokens)
        complete = text if last else text.removesuffix(_UNFINISHED)
        piece = self._beyond(complete)
        if piece:
            self._shown = complete
            recent = self._tokens[self._boundary :]
            shown = self._decoded(recent) if complete == text else ""
            if shown:
                self._tokens, self._boundary, self._shown = recent, len(recent), shown
        return piece

    def _beyond(self, text: str) -> str:
        """Return the part of a text that has not been returned."""
        pairs = zip(self._shown, text, strict=False)
        end = min(len(self._shown), len(text))
        return text[next((index for index, (before, after) in enumerate(pairs) if before != after), end) :]

    def _decoded(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _released(self, text: str, *, last: bool) -> str:
        """Return the text before a stop string, without an end that may begin one."""
        self._text += text
        ends = [position for stop in self._stop if (position := self._text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._text[: min(ends)]
        held = 0 if last else max((overlap(self._text, stop) for stop in self._stop), default=0)
        released = self._text[: len(self._text) - held]
        self._text = self._text[len(released) :]
        return released


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of a text that is a prefix of a stop string."""
    return next((size for size in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:size])), 0)


def checked_stops(stop: str | Sequence[str], label: str) -> tuple[str, ...]:
    """Return the strings that end an output.

    Args:
        stop: One string, or several.
        label: Name of the model in messages.

    Raises:
        InvalidArgument: If one of them is empty or not a string.
    """
    stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Sequence) else (None,)
    if not all(isinstance(text, str) and text for text in stops):
        raise InvalidArgument(f"{label}: stop must be strings that are not empty, got {shown(stop)}")
    return tuple(text for text in stops if text)


def conversation(
    template: str,
    messages: Sequence[Message],
    names: Mapping[str, str],
    label: str,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    enable_thinking: bool | None = None,
    switches: Mapping[str, Any] | None = None,
) -> str:
    """Return a conversation as a prompt.

    Args:
        template: Jinja2 template of the model. It runs in a sandbox.
        messages: Each with ``role`` and ``content``.
        names: Strings of special tokens, by name: ``bos_token``.
        label: Name of the model in messages.
        tools: JSON schemas of functions that the model may call; None for none.
        enable_thinking: Value of the switch of that name; None leaves it undefined.
        switches: Values of other names that the template may read.

    Raises:
        InvalidArgument: If there is no template, a message or tool is malformed, or the template rejects the messages.
        ModelError: If the template is malformed.
    """
    if not template:
        raise InvalidArgument(f"{label}: chat needs a chat template, which the model lacks; pass a prompt to generate")
    messages, schemas = checked_messages(messages, label), checked_tools(tools, label)
    values = {} if switches is None else _plain(switches)
    values |= {} if enable_thinking is None else {"enable_thinking": bool(enable_thinking)}
    try:
        compiled = _environment().from_string(template)
    except jinja2.TemplateError as error:
        raise ModelError(label, f"its chat template is malformed: {abridged(str(error))}") from None
    try:
        plain = [_plain_message(message) for message in messages]
        texts = [_with_text(message) for message in plain]
        values |= {"tools": schemas or None, "documents": None, "add_generation_prompt": True, **names}
        for candidates in ([_with_objects(message) for message in texts], texts):
            with contextlib.suppress(Exception):  # a template may raise any, also because it expects text, or parts
                prompt = compiled.render(values | {"messages": candidates})
                if texts == plain or _has_question(prompt, texts):
                    return prompt
        return compiled.render(values | {"messages": plain})
    except Exception as error:
        raise InvalidArgument(f"{label}: the chat template rejects the messages: {abridged(str(error))}") from None


def checked_messages(messages: Sequence[Message], label: str) -> Sequence[Message]:
    """Return a conversation after checking it.

    Raises:
        InvalidArgument: If it is empty, or a message is malformed; the text of the error begins with `label`.
    """
    if not isinstance(messages, Sequence) or not messages or not all(map(_is_message, messages)):
        raise InvalidArgument(
            f'{label}: messages must be a list of {{"role": "user", "content": "..."}}, got {shown(messages)}'
        )
    return messages


def checked_tools(tools: Sequence[Mapping[str, Any]] | None, label: str) -> list[dict[str, Any]]:
    """Return the functions that a model may call as JSON types, after checking them.

    Raises:
        InvalidArgument: If they are malformed; the message begins with `label`.
    """
    if tools is not None and not (isinstance(tools, Sequence) and all(isinstance(tool, Mapping) for tool in tools)):
        raise InvalidArgument(
            f'{label}: tools must be a list of {{"type": "function", "function": {{...}}}}, got {shown(tools)}'
        )
    return [_plain(tool) for tool in tools or ()]


def _is_message(message: object) -> bool:
    """Return whether a message has a role, and text, parts or calls of tools."""
    return (
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and (isinstance(message.get("content"), str | list) or bool(message.get("tool_calls")))
    )


# ---- templates, as Transformers renders them -------------------------------------------------------------------------

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning; templates read one of the first two."""


def _environment() -> ImmutableSandboxedEnvironment:
    """Return an environment with the names, filters, tags and whitespace rules of Transformers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _reject,
        "strftime_now": lambda form: datetime.datetime.now().strftime(form),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``, which marks the assistant's text for training."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block as the body of a call, so that names set in it are local, as in Transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """Provides ``dict(...)`` without the attributes of Python's type."""

    fromkeys = staticmethod(dict.fromkeys)

    def __call__(self, *pairs: Any, **items: Any) -> dict[Any, Any]:
        return dict(*pairs, **items)


class _Namespace(jinja2.utils.Namespace):
    """Provides ``namespace(...)`` without the attributes of Python's objects."""

    def __init__(*args: Any, **items: Any):  # a name may be `self`
        jinja2.utils.Namespace.__init__(args[0])
        for name, value in dict(*args[1:], **items).items():
            args[0][name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"names in a namespace must not begin with '_', got {name!r}")
        super().__setitem__(name, value)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _reject(message: str) -> None:
    raise jinja2.TemplateError(message)


def _plain(value: Any) -> Any:
    """Return a value as JSON types, whose methods are safe. Other objects become the names of their types."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = map(_plain, value)
        return list(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, np.generic):
        return _plain(value.item())
    for kind in (str, int, float):  # such as a member of an enumeration
        if isinstance(value, kind) and not isinstance(value, bool):
            return getattr(kind, f"__{kind.__name__}__")(value)
    return value if value is None or isinstance(value, bool) else f"<{type(value).__name__}>"


def _with_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with parts of text as one text, as most templates expect it; clients may send parts."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        return message
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.get("type") == "text" and "text" in part]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        return message
    return {**message, "content": "\n".join(texts)}


def _has_question(prompt: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a prompt has the last message of the user: templates that expect parts may omit text."""
    last = next((message["content"] for message in reversed(messages) if message.get("role") == "user"), "")
    return not isinstance(last, str) or last.strip() in prompt


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of its calls as objects, as most templates expect them; clients send text."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> Any:
    """Return a call whose arguments are an object, if they are one as text."""
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        value = None
    is_changed = isinstance(function, dict) and isinstance(value, dict)
    return {**call, "function": function | {"arguments": value}} if is_changed and function else call


def _plain_message(message: Message) -> dict[str, Any]:
    """Return a message without fields that are None, and with its reasoning under both names that templates read."""
    plain = {_plain(name): _plain(value) for name, value in message.items() if value is not None}
    reasoning = next((plain[name] for name in _REASONING if name in plain), None)
    return plain if reasoning is None else {"thinking": reasoning, **plain, "reasoning_content": reasoning}
