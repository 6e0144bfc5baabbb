"""Calls of tools: the forms in which models write them, and the calls in the text of an answer.

A form is recognized by the text of the chat template, which shows the model's own earlier calls in it:

    Hermes, Qwen     <tool_call>{"name": "now", "arguments": {}}</tool_call>
    Llama 3          {"name": "now", "parameters": {}}, also after <|python_tag|>
    Mistral          [TOOL_CALLS][{"name": "now", "arguments": {}}], or [TOOL_CALLS]now[ARGS]{}
    Qwen3-Coder      <tool_call><function=now><parameter=zone>CET</parameter></function></tool_call>
    GLM              <tool_call>now<arg_key>zone</arg_key><arg_value>CET</arg_value></tool_call>

Arguments of the last two are text if the function's schema says that they are strings, else JSON. Templates of
Qwen3-Coder show booleans as Python prints them: ``True`` is read like ``true``.

If the template does not read tools, the system message lists them and the first form.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmlgpu.frontends.generation.text import Message, overlap

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Tool = Mapping[str, Any]
"""A function as a JSON schema: ``{"type": "function", "function": {"name": ..., "parameters": {...}}}``."""

_READS_TOOLS = re.compile(r"\btools\b")
_ARGUMENTS_MARK = "[ARGS]"
_WHITE_SPACE = r"( |\n {0,8})?"

_SYSTEM = """You may call functions. Their signatures:
<tools>
{tools}
</tools>
To call a function, answer with its name and arguments as JSON:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True)
class ToolCall:
    """A call in an answer.

    Attributes:
        name: Name of the function.
        arguments: Its arguments, as JSON.
        id: Identifier, to which the message with the result refers.
    """

    name: str
    arguments: str
    id: str


@dataclass(frozen=True)
class CallTags:
    """Marks of a call whose arguments are text, each between white space.

    Attributes:
        name: Before and after the function's name.
        key: Before and after the name of an argument.
        value: Before and after its value.
        end: After the arguments.
    """

    name: tuple[str, str]
    key: tuple[str, str]
    value: tuple[str, str]
    end: str = ""


@dataclass(frozen=True)
class CallForm:
    """A form in which a model writes calls.

    Attributes:
        begin: Text before a call.
        end: Text after it; empty if calls extend to the end of the answer.
        arguments: Key of the arguments.
        is_bare: Whether a call may lack ``begin``, in an answer that begins with JSON.
        is_list: Whether calls are elements of a list.
        has_named_arguments: Whether a call is a name, ``[ARGS]``, and the arguments.
        id_length: Length of an identifier; 0 for one in the form of OpenAI's.
        tags: Marks of calls whose arguments are text; None for JSON.
    """

    begin: str
    end: str = ""
    arguments: str = "arguments"
    is_bare: bool = False
    is_list: bool = False
    has_named_arguments: bool = False
    id_length: int = 0
    tags: CallTags | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """Strings that may be special tokens."""
        marks = (self.begin, self.end, _ARGUMENTS_MARK if self.has_named_arguments else "")
        return tuple(mark for mark in marks if mark)

    def call_id(self) -> str:
        """Return a new identifier."""
        return uuid.uuid4().hex[: self.id_length] if self.id_length else f"call_{uuid.uuid4().hex[:24]}"

    def calls(self, text: str, schemas: Mapping[str, Mapping[str, Any]]) -> list[ToolCall] | None:
        """Return the calls in a text between ``begin`` and ``end``; None if it is anything else.

        Args:
            text: The text.
            schemas: Schemas of arguments by the names of functions.
        """
        try:
            pairs = list(self._pairs(text) if self.tags is None else _tagged(self.tags, text, schemas))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        calls = []
        for name, arguments in pairs:
            value = json.loads(arguments) if isinstance(arguments, str) else arguments
            if name not in schemas or not isinstance(value, dict):
                return None
            calls.append(ToolCall(name, json.dumps(value, ensure_ascii=False), self.call_id()))
        return calls or None

    def _pairs(self, text: str) -> Iterator[tuple[Any, Any]]:
        """Yield names and arguments. Any exception of Python says that the text is malformed."""
        if self.has_named_arguments:
            for part in text.split(self.begin):
                name, separator, arguments = part.partition(_ARGUMENTS_MARK)
                if not separator:
                    raise ValueError("a call has no arguments")
                value = json.loads(arguments)
                yield name.strip(), value
            return
        decoder, position = json.JSONDecoder(), 0
        text = text.strip()
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            for call in value if isinstance(value, list) else [value]:
                yield call["name"], call[self.arguments]
            position += len(text[position:]) - len(text[position:].lstrip("; \n"))

    def grammar(self, tools: Sequence[Tool], tokenizer: Tokenizer, *, is_parallel: bool) -> str:
        """Return the grammar of an answer that calls a function, in Lark's syntax as llguidance documents it.

        Args:
            tools: The functions, one of which is called.
            tokenizer: Tokenizer of the model.
            is_parallel: Whether several calls are allowed.
        """
        begin = _terminal(self.begin, tokenizer)
        if self.tags is not None:
            return _tagged_grammar(self.tags, tools, (begin, _terminal(self.end, tokenizer)), is_parallel=is_parallel)
        if self.has_named_arguments:
            mark = _terminal(_ARGUMENTS_MARK, tokenizer)
            options = (
                f"{begin} {json.dumps(name)} {mark} {_json(parameters)}" for name, parameters in _signatures(tools)
            )
            return f"start: call{'+' if is_parallel else ''}\ncall: {' | '.join(options)}\n"
        objects = [
            {
                "type": "object",
                "properties": {"name": {"const": name}, self.arguments: parameters},
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for name, parameters in _signatures(tools)
        ]
        schema: dict[str, Any] = objects[0] if len(objects) == 1 else {"anyOf": objects}
        if self.is_list:
            schema = {"type": "array", "items": schema, "minItems": 1}
            return f"start: {begin} {_json(schema if is_parallel else {**schema, 'maxItems': 1})}\n"
        if self.is_bare:
            more = ' (";" call)*' if is_parallel else ""
            return f"start: call{more}\ncall: {_json(schema)}\n"
        end = _terminal(self.end, tokenizer)
        more = ' ("\\n" call)*' if is_parallel else ""
        return f'start: call{more}\ncall: {begin} "\\n" {_json(schema)} "\\n" {end}\n'


def _tagged(
    tags: CallTags, text: str, schemas: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the arguments of a call. Any exception says that the text is malformed."""
    head, *parts = text.strip().removesuffix(tags.end).split(tags.key[0])
    name = head.strip().removeprefix(tags.name[0]).removesuffix(tags.name[1])
    properties = schemas.get(name, {}).get("properties")
    types = {key: schema.get("type") for key, schema in (properties or {}).items()}
    arguments = {}
    for part in parts:
        key, _, rest = part.partition(tags.key[1])
        rest = rest.lstrip() if tags.value[0] else rest
        value, has_end, after = rest.removeprefix(tags.value[0]).partition(tags.value[1])
        if not rest.startswith(tags.value[0]) or not has_end or after.strip():
            raise ValueError("an argument is incomplete")
        arguments[key.strip()] = _argument(value.removeprefix("\n").removesuffix("\n"), types.get(key.strip()))
    yield name, arguments


def _argument(text: str, type_name: Any) -> Any:
    """Return the value of an argument: text if that is its type, else JSON, if it is."""
    if type_name == "string":
        return text
    if type_name == "boolean":
        text = text.lower()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


HERMES = CallForm("<tool_call>", "</tool_call>")
LLAMA = CallForm("<|python_tag|>", arguments="parameters", is_bare=True)
MISTRAL = CallForm("[TOOL_CALLS]", is_list=True, id_length=9)
MISTRAL_NAMED = CallForm("[TOOL_CALLS]", has_named_arguments=True, id_length=9)
QWEN_CODER = CallForm(
    "<tool_call>",
    "</tool_call>",
    tags=CallTags(("<function=", ">"), ("<parameter=", ">"), ("", "</parameter>"), "</function>"),
)
GLM = CallForm(
    "<tool_call>",
    "</tool_call>",
    tags=CallTags(("", ""), ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")),
)


def call_form(template: str) -> CallForm | None:
    """Return the form in which a model writes calls; None if it is unknown.

    Args:
        template: Chat template.
    """
    if not reads_tools(template):
        return HERMES
    if MISTRAL.begin in template:
        return MISTRAL_NAMED if _ARGUMENTS_MARK in template else MISTRAL
    if HERMES.begin in template:
        return QWEN_CODER if "<function=" in template else GLM if "<arg_key>" in template else HERMES
    if LLAMA.begin in template or ('"parameters":' in template and '"name":' in template):
        return LLAMA
    return None


def reads_tools(template: str) -> bool:
    """Return whether a chat template has a place for tools."""
    return _READS_TOOLS.search(template) is not None


def marked_tokens(form: CallForm, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Return special tokens that are part of calls: the text of an answer must have them."""
    tokens = (None if tokenizer is None else tokenizer.token_to_id(mark) for mark in form.marks)
    return frozenset(token for token in tokens if token is not None)


def with_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Return a conversation for a template that has no place for tools: they, their calls and results become text.

    Args:
        messages: The messages.
        tools: The functions.
    """
    texts = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    described = _SYSTEM.format(tools="\n".join(texts))
    plain = [_as_text(message) for message in messages]
    if plain and plain[0].get("role") == "system" and isinstance(plain[0].get("content"), str):
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{described}"}, *plain[1:]]
    return [{"role": "system", "content": described}, *plain]


def _as_text(message: Message) -> Message:
    """Return a message whose calls, or result of a call, are text."""
    content = message.get("content")
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    texts = [content] if isinstance(content, str) and content else []
    for call in calls:
        function = call.get("function", call)
        arguments = function.get("arguments")
        value = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        written = f'{{"name": {json.dumps(function.get("name"))}, "arguments": {value}}}'
        texts.append(f"{HERMES.begin}\n{written}\n{HERMES.end}")
    return {"role": message.get("role"), "content": "\n".join(texts)}


class CallStream:
    """Separates the text of an answer from its calls.

    Args:
        form: Form of the calls.
        schemas: Schemas of arguments by the names of functions. Calls of others remain text.

    Attributes:
        calls: The calls so far.
    """

    def __init__(self, form: CallForm, schemas: Mapping[str, Mapping[str, Any]]):
        self._form, self._schemas = form, schemas
        self._text = ""
        self._is_call = self._is_bare = self._has_begun = self._follows_call = False
        self.calls: list[ToolCall] = []

    def add(self, text: str) -> tuple[str, list[ToolCall]]:
        """Add a piece of the answer; return text and calls that are complete. Text waits while a call may begin."""
        self._text += text
        content, calls = "", []
        while True:
            more, complete, is_waiting = self._advance()
            content += more
            calls += complete
            if is_waiting:
                return content, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """Return the remaining text and calls."""
        text, self._text = self._text, ""
        if not self._is_call:
            return text, []
        calls = self._form.calls(text, self._schemas)
        self.calls += calls or []
        return ("", calls) if calls else (f"{'' if self._is_bare else self._form.begin}{text}", [])

    def _advance(self) -> tuple[str, list[ToolCall], bool]:
        """Return text, calls, and whether the rest waits for more."""
        form = self._form
        if not self._is_call:
            return self._before_call()
        end = self._text.find(form.end) if form.end else -1
        if end < 0:
            return "", [], True
        body, self._text = self._text[:end], self._text[end + len(form.end) :]
        self._is_call = False
        calls = form.calls(body, self._schemas)
        self.calls += calls or []
        self._follows_call = calls is not None
        return ("", calls, False) if calls else (f"{form.begin}{body}{form.end}", [], False)

    def _before_call(self) -> tuple[str, list[ToolCall], bool]:
        form = self._form
        self._text = self._text.lstrip("\n") if self._follows_call else self._text
        self._follows_call = self._follows_call and not self._text
        begin = self._text.find(form.begin)
        if begin < 0 and form.is_bare and not self._has_begun:
            start = self._text.lstrip()
            if not start:
                return "", [], True
            self._is_call = self._is_bare = start.startswith("{")
            if self._is_call:
                return "", [], True
        if begin >= 0:
            content, self._text = self._text[:begin], self._text[begin + len(form.begin) :]
            self._is_call, self._is_bare, self._has_begun = True, False, True
            return content, [], False
        held = overlap(self._text, form.begin)
        content, self._text = self._text[: len(self._text) - held], self._text[len(self._text) - held :]
        self._has_begun = self._has_begun or bool(content)
        return content, [], True


def _tagged_grammar(tags: CallTags, tools: Sequence[Tool], marks: tuple[str, str], *, is_parallel: bool) -> str:
    """Return the grammar of calls whose arguments are text, in the order of the schema."""
    rules, calls = [], []
    for number, (name, schema) in enumerate(_signatures(tools)):
        parts = [json.dumps("\n".join(["", f"{tags.name[0]}{name}{tags.name[1]}", ""]) if tags.end else f"{name}\n")]
        for index, (key, value) in enumerate((schema.get("properties") or {}).items()):
            rule = f"value_{number}_{index}"
            separator = "\n"
            before = json.dumps(f"{tags.key[0]}{key}{tags.key[1]}{separator}{tags.value[0]}")
            inner = "" if tags.value[0] else separator
            after = f"{inner}{tags.value[1]}\n"
            if value.get("type") == "string" and "enum" not in value:
                rules.append(f"{rule}[suffix={json.dumps(after)}]: /(?s:.*)/")
                argument = f"{before} {rule}"
            else:
                argument = f"{before} {_json(value)} {json.dumps(after)}"
            parts.append(argument if key in schema.get("required", ()) else f"({argument})?")
        calls.append(" ".join([*parts, *([json.dumps(f"{tags.end}\n")] if tags.end else [])]))
    more = ' ("\\n" call)*' if is_parallel else ""
    options = " | ".join(f"({call})" for call in calls)
    return "\n".join([f"start: call{more}", f"call: {marks[0]} ({options}) {marks[1]}", *rules, ""])


def schemas_of(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    """Return the schemas of arguments by the names of functions."""
    return dict(_signatures(tools))


def _signatures(tools: Sequence[Tool]) -> list[tuple[str, dict[str, Any]]]:
    """Return names and schemas of arguments."""
    functions = [tool["function"] for tool in tools]
    return [(function["name"], {"type": "object", **(function.get("parameters") or {})}) for function in functions]


def _json(schema: Mapping[str, Any]) -> str:
    """Return a terminal of Lark for JSON of a schema. Keywords that llguidance lacks are ignored."""
    return f"%json {json.dumps({**schema, 'x-guidance': {'whitespace_pattern': _WHITE_SPACE, 'lenient': True}})}"


def _terminal(text: str, tokenizer: Tokenizer) -> str:
    """Return a terminal of Lark: a token if the text is a special one, else a string."""
    token = tokenizer.token_to_id(text)
    is_special = token is not None and not tokenizer.decode([token], skip_special_tokens=True)
    return f"<[{token}]>" if is_special else json.dumps(text)
