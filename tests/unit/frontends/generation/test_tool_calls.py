"""Calls of tools in answers: the forms of known chat templates, and streams of any pieces."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from dmlgpu.frontends.generation import tool_calls
from dmlgpu.frontends.generation.text import TextStream, conversation
from dmlgpu.frontends.generation.tool_calls import (
    GLM,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    QWEN_CODER,
    CallStream,
    call_form,
    schemas_of,
)

TOOLS = [
    {"type": "function", "function": {"name": "now"}},
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "brief": {"type": "boolean"},
                },
                "required": ["city"],
            },
        },
    },
]
SCHEMAS = schemas_of(TOOLS)
ANSWERS = [
    (HERMES, 'Wait.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', "Wait.\n", [("now", {})]),
    (
        HERMES,
        '<tool_call>{"name": "weather", "arguments": {"city": "Nîmes"}}</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": "{}"}',  # arguments as text, and no end
        "",
        [("weather", {"city": "Nîmes"}), ("now", {})],
    ),
    (LLAMA, '\n{"name": "weather", "parameters": {"city": "x"}}', "", [("weather", {"city": "x"})]),
    (
        LLAMA,
        '<|python_tag|>{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}',
        "",
        [("now", {})] * 2,
    ),
    (LLAMA, 'In C: { "name" }', 'In C: { "name" }', []),
    (MISTRAL, 'So: [TOOL_CALLS] [{"name": "now", "arguments": {}}]', "So: ", [("now", {})]),
    (
        QWEN_CODER,
        "Wait.\n<tool_call>\n<function=weather>\n<parameter=city>\n 1\n<b>\n</parameter>\n<parameter=days>\n2\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "Wait.\n",
        [("weather", {"city": " 1\n<b>", "days": 2}), ("now", {})],
    ),
    (
        QWEN_CODER,
        "<tool_call>\n<function=weather>\n<parameter=city>\nTrue\n</parameter>\n<parameter=brief>\nTrue\n"
        "</parameter>\n</function>\n</tool_call>",
        "",
        [("weather", {"city": "True", "brief": True})],
    ),
    (
        GLM,
        "\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>[1]</arg_value>\n</tool_call><tool_call>now</tool_call>",
        "\n",
        [("weather", {"city": "12", "days": [1]}), ("now", {})],
    ),
    (
        GLM,
        "<tool_call>now<arg_key>zone</arg_key><arg_value>CET",
        "<tool_call>now<arg_key>zone</arg_key><arg_value>CET",
        [],
    ),
    (
        GLM,
        "<tool_call>now<arg_key>zone</arg_key><arg_value>CET</arg_value><arg_key>n</arg_key><arg_value>1</arg_value>",
        "",
        [("now", {"zone": "CET", "n": 1})],
    ),
    (
        MISTRAL_NAMED,
        '[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]weather[ARGS]{"city": "x"}',
        "",
        [("now", {}), ("weather", {"city": "x"})],
    ),
]
TEXTS = [
    (HERMES, '<tool_call>{"name": "delete", "arguments": {}}</tool_call> no'),
    (HERMES, '<tool_call>{"name": "now", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": "now"'),
    (HERMES, "<tool_call></tool_call><tool"),
    (LLAMA, '{"name": "now"}'),
    (LLAMA, '{"x": 1} {'),
    (MISTRAL, "[TOOL_CALLS]" + "[" * 100_000),
    (MISTRAL_NAMED, "[TOOL_CALLS]now {}"),
    (QWEN_CODER, "<tool_call><function=delete></function></tool_call>"),
    (QWEN_CODER, "<tool_call><function=now><parameter=a>1</tool_call>"),
    (QWEN_CODER, "<tool_call>" + "<parameter=a>1</parameter>" * 300),
    (GLM, "<tool_call>now<arg_key>a</arg_key>1<arg_value>2</arg_value></tool_call>"),
]


def separated(form, text, size):
    """Text and calls of an answer, some characters at a time."""
    stream = CallStream(form, SCHEMAS)
    parts = [stream.add(text[start : start + size]) for start in range(0, len(text), size)] + [stream.finish()]
    calls = [call for _, calls in parts for call in calls]
    assert calls == stream.calls
    return "".join(part for part, _ in parts), calls


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("form", "text", "content", "calls"), ANSWERS)
def test_calls_are_separated_from_text(form, text, content, calls, size):
    actual, separate = separated(form, text, size)
    assert actual == content
    assert [(call.name, json.loads(call.arguments)) for call in separate] == calls
    assert len({call.id for call in separate}) == len(separate)
    assert all(len(call.id) == 9 for call in separate) == (form in (MISTRAL, MISTRAL_NAMED) or not separate)


@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize(("form", "text"), TEXTS)
def test_anything_else_remains_text(form, text, size):
    assert separated(form, text, size) == (text, [])


def test_text_does_not_wait_unless_a_call_may_begin():
    stream = CallStream(HERMES, SCHEMAS)
    assert [stream.add(piece)[0] for piece in ("a <", "b", " <tool", "_box>")] == ["a ", "<b", " ", "<tool_box>"]


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{{ messages }}", HERMES),
        ("{% if tools %}{{ tools | tojson }}{% endif %}<tool_call>", HERMES),
        ("{{ tools }}<tool_call><function=name>", QWEN_CODER),
        ("{{ tools }}<tool_call>{{ name }}<arg_key>", GLM),
        ("{{ tools }}<|python_tag|>", LLAMA),
        ('{{ tools }}{"name": function name, "parameters": dictionary}', LLAMA),
        ("{{ tools }}[TOOL_CALLS]", MISTRAL),
        ("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]", MISTRAL_NAMED),
        ("{{ tools }}", None),
    ],
)
def test_forms_are_recognized_by_templates(template, form):
    assert call_form(template) is form


def byte_tokenizer(*special):
    """A tokenizer with a token per byte, and special ones."""
    tokenizer = Tokenizer(models.BPE({text: index for index, text in enumerate(ByteLevel.alphabet())}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    return tokenizer


@pytest.mark.parametrize("form", [HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, QWEN_CODER, GLM])
@pytest.mark.parametrize("is_special", [False, True])
def test_grammars_allow_calls_and_nothing_else(form, is_special):
    llguidance = pytest.importorskip("llguidance", reason="grammars need llguidance")
    from dmlgpu.frontends.generation.grammar import Grammar

    tokenizer = byte_tokenizer("<end>", *(form.marks if is_special else ()))
    matched = llguidance.LLTokenizer(tokenizer.to_str(), eos_token=tokenizer.token_to_id("<end>"))

    def accepts(text, tools=TOOLS, *, is_parallel=False):
        source = Grammar.lark(form.grammar(tools, tokenizer, is_parallel=is_parallel)).source
        matcher = llguidance.LLMatcher(matched, source, log_level=0)
        tokens = tokenizer.encode(text).ids
        return matcher.validate_tokens(tokens) == len(tokens)

    call = {
        HERMES: '<tool_call>\n{"name": "weather", "arguments": {"city": "x"}}\n</tool_call>',
        LLAMA: '{"name": "weather", "parameters": {"city": "x"}}',
        MISTRAL: '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "x"}}]',
        MISTRAL_NAMED: '[TOOL_CALLS]weather[ARGS]{"city": "x"}',
        QWEN_CODER: "<tool_call>\n<function=weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n2\n"
        "</parameter>\n</function>\n</tool_call>",
        GLM: "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>",
    }[form]
    assert accepts(call)
    assert not accepts(call, TOOLS[:1])
    assert not accepts(call.replace('"x"', "1").replace("2", "x"))
    if form.tags is not None:
        calls = CallStream(form, SCHEMAS).add(call)[1]
        assert [json.loads(each.arguments) for each in calls] == [{"city": "x", "days": 2}]
    assert not accepts(f"Well, {call}")
    two = {LLAMA: f"{call};{call}", MISTRAL: f"{call[:-1]}, {call[len('[TOOL_CALLS][') :]}"}.get(form)
    two = two or (f"{call}\n{call}" if form.end else call + call)
    assert accepts(two, is_parallel=True)
    assert not accepts(two)


def test_marks_that_are_special_tokens_are_part_of_the_text():
    tokenizer = byte_tokenizer("[TOOL_CALLS]", "<end>")
    tokens = tokenizer.encode("a[TOOL_CALLS]b<end>").ids
    marks = tool_calls.marked_tokens(MISTRAL, tokenizer)
    for shown, text in ((marks, "a[TOOL_CALLS]b"), ((), "ab")):
        stream = TextStream(tokenizer, marks=shown)
        assert "".join(map(stream.add, tokens)) + stream.finish() == text


def test_templates_without_tools_have_them_as_text():
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": '{"zone": 1}'}}
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    system, question, called, result = tool_calls.with_tools(messages, TOOLS)
    assert all(json.dumps(tool) in system["content"] for tool in TOOLS)
    assert question is messages[0]
    stream = CallStream(HERMES, SCHEMAS)
    assert stream.add(called["content"])[0] == ""
    assert [(call.name, call.arguments) for call in stream.calls] == [("now", '{"zone": 1}')]
    assert (result["role"], "noon" in result["content"]) == ("user", True)
    merged = tool_calls.with_tools([{"role": "system", "content": "Be short."}, *messages], TOOLS)
    assert len(merged) == 4
    assert merged[0]["content"].startswith("Be short.")


def test_templates_get_arguments_as_objects_or_as_text():
    call = {"type": "function", "function": {"name": "now", "arguments": '{"zone": 1}'}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    arguments = "messages[0].tool_calls[0].function.arguments"
    for template, text in ((f"{{{{ {arguments}.zone }}}}", "1"), (f"{{{{ '' + {arguments} }}}}", '{"zone": 1}')):
        assert conversation(template, messages, {}, "model") == text
