"""Text from tokens as it arrives, and prompts from conversations."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dmlgpu.common.errors import InvalidArgument, ModelError, abridged, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Message = Mapping[str, Any]

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
_MOST_UNFINISHED = 4
"""Maximum number of tokens that are held back for a character: as many as UTF-8 has bytes."""


class TextStream:
    """Pieces of text from tokens, cut between characters.

    Args:
        tokenizer: Converts tokens to text.
        stop: Strings that end the output; they are not part of it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()):
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._tokens: list[int] = []
        self._shown = 0
        self._text = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Return the text that a token completes; empty if it is part of a character, or of a stop string."""
        self._tokens.append(token)
        before, after = self._decoded(self._tokens[: self._shown]), self._decoded(self._tokens)
        unfinished = len(self._tokens) - self._shown < _MOST_UNFINISHED and after.endswith(_UNFINISHED)
        if unfinished or len(after) <= len(before):
            return ""
        # The last tokens decide about spaces at the beginning of the next piece.
        self._tokens, self._shown = self._tokens[self._shown :], len(self._tokens) - self._shown
        return self._released(after[len(before) :], last=False)

    def finish(self) -> str:
        """Return the text that was held back."""
        if self.stopped:
            return ""
        text = self._decoded(self._tokens)[len(self._decoded(self._tokens[: self._shown])) :]
        return self._released(text, last=True)

    def _decoded(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _released(self, text: str, *, last: bool) -> str:
        """Return the text before a stop string, and without the beginning of one."""
        self._text += text
        ends = [place for stop in self._stop if (place := self._text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._text[: min(ends)]
        held = 0 if last else max((_overlap(self._text, stop) for stop in self._stop), default=0)
        released = self._text[: len(self._text) - held]
        self._text = self._text[len(released) :]
        return released


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that begins a stop string."""
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


def conversation(template: str, messages: Sequence[Message], names: Mapping[str, str], label: str) -> str:
    """Return a conversation as a prompt.

    Args:
        template: Jinja2 template of the model. It runs in a sandbox.
        messages: Each with ``role`` and ``content``.
        names: Strings of special tokens, by name: ``bos_token``.
        label: Name of the model in messages.

    Raises:
        InvalidArgument: If there is no template, a message is malformed, or the template rejects the messages.
        ModelError: If the template is malformed.
    """
    if not template:
        raise InvalidArgument(f"{label}: chat needs a chat template, which the model lacks; pass a prompt to generate")
    messages = checked_messages(messages, label)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _reject
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
    except jinja2.TemplateError as error:
        raise ModelError(label, f"its chat template is malformed: {abridged(str(error))}") from None
    try:
        return compiled.render(messages=list(messages), add_generation_prompt=True, **names)
    except Exception as error:  # a template raises whatever it likes
        raise InvalidArgument(f"{label}: the chat template rejects the messages: {abridged(str(error))}") from None


def checked_messages(messages: Sequence[Message], label: str) -> Sequence[Message]:
    """Return a conversation.

    Raises:
        InvalidArgument: If it is empty, or a message is malformed; the message begins with `label`.
    """
    if not isinstance(messages, Sequence) or not messages or not all(map(_is_message, messages)):
        raise InvalidArgument(
            f'{label}: messages must be a list of {{"role": "user", "content": "..."}}, got {shown(messages)}'
        )
    return messages


def _is_message(message: object) -> bool:
    """Return whether a message has a role, and text, parts or calls of tools."""
    return (
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and (isinstance(message.get("content"), str | list) or bool(message.get("tool_calls")))
    )


def _reject(message: str) -> None:
    raise jinja2.TemplateError(message)
