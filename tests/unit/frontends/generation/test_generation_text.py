"""Text from tokens, stop strings, and prompts from conversations."""

import enum

import numpy as np
import pytest
import tokenizers

from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.demo.language_model import tokenizer
from dmlgpu.frontends.generation.text import TextStream, conversation
from tests.text_streams import check_random_texts, check_text

TEXTS = ["hello world", "naïve façade 🙂🙃 日本語", " leading and  double spaces\n\n", "e\N{COMBINING ACUTE ACCENT}"]
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def with_bytes(tokenizer_model, *steps):
    """A tokenizer in the manner of SentencePiece, with bytes for characters that it lacks, and a control token."""
    result = tokenizers.Tokenizer(tokenizer_model)
    result.decoder = tokenizers.decoders.Sequence(list(steps))
    result.add_special_tokens(["<ctl>"])
    result.add_tokens(["<user>"])
    return result


def metaspace():
    """T5 and others."""
    pieces = [*BYTES, SPACE, *"helowrdan", f"{SPACE}hello", "lo"]
    unigram = tokenizers.models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in pieces)], 0, byte_fallback=True)
    decoders = tokenizers.decoders
    result = with_bytes(unigram, decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse())
    result.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    return result


def llama(*ends):
    """Llama 2, Mistral and Gemma, as their tokenizer.json has it."""
    names = ["<unk>", *BYTES, SPACE, f"{SPACE}the", f"{SPACE}{SPACE}", "a", "b", "é", "\N{REPLACEMENT CHARACTER}"]
    numbers = {name: index for index, name in enumerate(names)}
    decoders, normalizers = tokenizers.decoders, tokenizers.normalizers
    model = tokenizers.models.BPE(numbers, [], unk_token="<unk>", byte_fallback=True)
    result = with_bytes(model, decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ends)
    starts = [normalizers.Prepend(SPACE)] if ends else []
    result.normalizer = normalizers.Sequence([*starts, normalizers.Replace(" ", SPACE)])
    return result


def words(decoder, *names):
    """A tokenizer with whole words, and its decoder."""
    numbers = {name: index for index, name in enumerate(["[UNK]", "a", "b", "\N{LLAMA}", *names])}
    result = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, "[UNK]"))
    result.add_special_tokens(["[SEP]"])
    if decoder is not None:
        result.decoder = decoder
    return result


TOKENIZERS = {
    "byte level": lambda: tokenizer(300),
    "metaspace": metaspace,
    "llama": lambda: llama(tokenizers.decoders.Strip(" ", 1, 0)),
    "gemma": llama,
}
WORDS = {
    "words": lambda: words(None),
    "word pieces": lambda: words(tokenizers.decoders.WordPiece(), "##a", "##lo", ".", ","),
    "suffixes": lambda: words(tokenizers.decoders.BPEDecoder(), "lo</w>", "b</w>"),
    "strips": lambda: words(
        tokenizers.decoders.Sequence([tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 2, 0)]), " ", "  x"
    ),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_pieces_are_complete_characters_and_form_the_text(kind):
    model = TOKENIZERS[kind]()
    for text in TEXTS:
        tokens = model.encode(text).ids
        for cut in range(len(tokens) + 1):
            pieces = check_text(model, tokens, cut)
            if "\N{REPLACEMENT CHARACTER}" not in model.decode(tokens[:cut]):
                assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces), (text, cut, pieces)
        assert sum(map(bool, check_text(model, tokens, 0))) > 1 or len(text) < 3


@pytest.mark.parametrize("kind", TOKENIZERS | WORDS)
def test_pieces_of_any_tokens_are_the_text_of_the_tokenizer(kind):
    check_random_texts((TOKENIZERS | WORDS)[kind](), rounds=1500)


def test_pieces_are_not_held_longer_than_needed():
    """A token that is no byte releases the pending text; a character of byte-level tokens ends with its last byte."""
    for kind, text in (("llama", "a\N{LLAMA}b a"), ("byte level", "a\N{LLAMA}b the a")):
        model = TOKENIZERS[kind]()
        tokens = model.encode(text).ids
        stream, shown = TextStream(model), ""
        for count, token in enumerate(tokens, 1):
            shown += stream.add(token)
            whole = model.decode(tokens[:count])
            if "\N{REPLACEMENT CHARACTER}" not in whole and not (kind == "llama" and whole.endswith("\N{LLAMA}")):
                assert shown == whole, (kind, shown, whole)


def test_stop_strings_of_bytes_end_the_output_at_once():
    """Byte tokens are pending until another token follows, which may never happen."""
    model = llama(tokenizers.decoders.Strip(" ", 1, 0))
    newline = model.token_to_id("<0x0A>")
    stream = TextStream(model, ["\n\n"])
    tokens = [model.token_to_id("a"), newline, newline, newline]
    assert ([stream.add(token) for token in tokens[:3]], stream.stopped) == (["a", "", ""], True)


def test_stop_strings_may_begin_within_pending_text():
    model = tokenizer(300)
    for stops, text, expected in ((["abc", "bd"], "abd", "a"), (["aab"], "aaab", "a"), (["ab", "abc"], "xabc", "x")):
        tokens = [model.token_to_id(letter) for letter in text]
        assert "".join(check_text(model, tokens, 0, stops)) == expected


def test_bytes_that_are_no_character_are_not_held_back_forever():
    model = tokenizer(300)
    (lone,) = [model.token_to_id(model.encode("é").tokens[0])]
    stream = TextStream(model)
    pieces = [stream.add(lone) for _ in range(10)]
    assert any(pieces)
    assert "".join(pieces) + stream.finish() == model.decode([lone] * 10)


@pytest.mark.parametrize(
    ("stops", "text", "expected", "stopped"),
    [
        (["\nUser:"], "an answer\nUser: more", "an answer", True),
        (["\nUser:"], "a line\nUse it", "a line\nUse it", False),
        (["xx", "an"], "the banana", "the b", True),
        (["zz"], "ends in z", "ends in z", False),
        (["a"], "aaa", "", True),
    ],
)
def test_stop_texts_end_the_output(stops, text, expected, stopped):
    model = tokenizer(300)
    stream = TextStream(model, stops)
    shown = ""
    for token in model.encode(text).ids:
        shown += stream.add(token)
        if stream.stopped:
            break
    shown += stream.finish()
    assert (shown, stream.stopped) == (expected, stopped)


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_conversations_follow_the_template():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = conversation(TEMPLATE, messages, {"bos_token": "<s>"}, "model 'x'")
    assert text == "<s><|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>"


CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
EACH = "{%% for m in messages %%}%s{%% endfor %%}"
MARKED = """{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- generation %}
{{ message.content }}{% set x = true %}
        {%- endgeneration %}
    {%- else %}
        {{ message.content }}
    {% endif %}
{% endfor %}
{{ x is defined }}
"""
TEMPLATES = {
    "chatml": CHATML,
    "tools": "{% if tools is not none %}tools{% endif %}{{ tools is defined }}{{ documents is none }}",
    "generation": MARKED,
    "generation on its own lines": "a\n  {% generation %}\n  b\n  {%- endgeneration -%}\n c",
    "nested generation": EACH % "{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}",
    "tojson": "{{ messages | tojson }}{{ '<b>&\\'ü' | tojson }}",
    "tojson arguments": "{{ messages | tojson(ensure_ascii=True, indent=2) }}{{ messages | tojson(true, 4) }}",
    "tojson separators": "{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=False) }}",
    "tojson of unknown arguments": "{{ messages | tojson(skipkeys=True) }}",
    "continue": EACH % "{% if loop.first %}{% continue %}{% endif %}{{ m.content }}",
    "break": EACH % "{{ m.content }}{% break %}",
    "raise": "{{ raise_exception('no') }}",
    "date": "{{ strftime_now('%Y') | length }}",
    "namespace": "{% set ns = namespace(x=1, self=2) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}{{ ns.self }}{{ ns.y }}",
    "namespace of pairs": "{% set ns = namespace({'x': 5, 1: 2}) %}{{ ns.x }}",
    "names of objects": "{% set ns = namespace(_x=1) %}",
    "names of objects, set": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "dict": "{{ dict(a=1, b='x') }}{{ dict([('k', 1)]).k }}{{ dict.fromkeys(['a']) }}",
    "methods of dict": "{{ dict.mro() }}",
    "changed messages": "{{ messages.append(1) }}",
    "changed items": "{% set _ = messages[0].update({'a': 1}) %}",
    "whitespace": "  {% if true %}\n  a  \n  {% endif %}\n\n{# b #}\n c\n",
    "slices and methods": "{{ messages[::-1][0].content.strip().split(' ')[-1] | upper }}{{ messages[-1].role[1:] }}",
    "fields": EACH % "{% for key in m %}{{ key }}={{ m[key] }};{% endfor %}",
    "generation prompt": "{{ add_generation_prompt }}",
    "tests": "{{ messages[0].content is string }}{{ messages is iterable }}{{ messages[0] is mapping }}",
    "unclosed": "{% generation %}",
}


class Role(str, enum.Enum):  # noqa: UP042 - its str is not its value
    ASSISTANT = "assistant"


CONVERSATIONS = (
    [
        {"role": "user", "content": " Hi ü <b> "},
        {"role": "assistant", "content": "ho\n"},
        {"role": "user", "content": "x"},
    ],
    [{"role": "user", "content": "a", "name": None}, {"role": "assistant", "content": "b", "thinking": "hm"}],
    [{"role": "user", "content": "a"}, {"role": Role.ASSISTANT, "content": "b", "reasoning": "hm", "n": np.int64(3)}],
    [{"role": "user", "content": "a", "x": {"y": None, "z": (1.5, True, [None])}, "image": object()}],
)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_conversations_are_those_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer(300), bos_token="<|user|>")
    for messages in CONVERSATIONS:
        try:
            text = theirs.apply_chat_template(
                messages, chat_template=TEMPLATES[kind], tokenize=False, add_generation_prompt=True
            )
        except Exception:  # jinja2's, TypeError, and others
            with pytest.raises((InvalidArgument, ModelError), match=r"^m: (the|its) chat template"):
                conversation(TEMPLATES[kind], messages, {"bos_token": "<|user|>"}, "m")
        else:
            assert conversation(TEMPLATES[kind], messages, {"bos_token": "<|user|>"}, "m") == text, messages


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"é": {}}}}}]
SWITCHES = (
    "{% if tools %}{{ tools | tojson }}{{ tools[0].function.name }}{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{{ messages[-1].content }}"
)


@pytest.mark.parametrize("arguments", [{}, {"tools": TOOLS}, {"enable_thinking": False}, {"enable_thinking": True}])
def test_tools_and_thinking_are_passed_to_templates(arguments):
    transformers = pytest.importorskip("transformers", reason="transformers renders the expected text")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer(300))
    expected = theirs.apply_chat_template(USER, chat_template=SWITCHES, tokenize=False, **arguments)
    assert conversation(SWITCHES, USER, {}, "m", **arguments) == expected
    assert len(expected) > 2 or not arguments or arguments.get("enable_thinking")


PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "text", "text": " Hi"}, {"type": "text", "text": "you "}]},
]
IMAGE = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "u"}}]}
]
EXPECTING_PARTS = "{% for m in messages %}{% for p in m.content %}{{ p.type }}:{{ p.text }};{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "messages", "text"),
    [
        (
            "{% for m in messages %}{{ m.role + ':' + m.content | trim }};{% endfor %}",
            PARTS,
            "system:Be brief.;user:Hi\nyou;",
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", PARTS, "Be brief. Hi\nyou "),
        (EXPECTING_PARTS, PARTS, "text:Be brief.;text: Hi;text:you ;"),
        (EXPECTING_PARTS, IMAGE, "text:Hi;image_url:;"),
    ],
)
def test_parts_of_text_are_one_text_unless_the_template_expects_parts(template, messages, text):
    assert conversation(template, messages, {}, "m") == text


@pytest.mark.parametrize("tools", ["add", {"type": "function"}, ["add"]])
def test_tools_are_a_list_of_schemas(tools):
    with pytest.raises(InvalidArgument, match=r"^m: tools must be a list of \{\"type\": \"function\""):
        conversation(SWITCHES, USER, {}, "m", tools=tools)


USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("template", "messages", "kind", "message"),
    [
        ("", [{"role": "user"}], InvalidArgument, "chat needs a chat template, which the model lacks"),
        (TEMPLATE, "Hi", InvalidArgument, 'messages must be a list of {"role": "user", "content": "..."}, got \'Hi\''),
        (TEMPLATE, [{"content": "Hi"}], InvalidArgument, "messages must be a list"),
        (TEMPLATE, [{"role": "user"}], InvalidArgument, "messages must be a list"),
        ("{% if %}", USER, ModelError, "its chat template is malformed"),
        ("{{ raise_exception('no system') }}", USER, InvalidArgument, "rejects the messages: no system"),
        ("{{ messages.__class__.__mro__ }}", USER, InvalidArgument, "rejects the messages"),
        ("{% for x in range(10**9) %}{% endfor %}", USER, InvalidArgument, "rejects the messages"),
    ],
)
def test_malformed_conversations_are_rejected(template, messages, kind, message):
    with pytest.raises(kind, match=f"^model 'x': .*{message.replace('{', chr(92) + '{')}"):
        conversation(template, messages, {}, "model 'x'")
