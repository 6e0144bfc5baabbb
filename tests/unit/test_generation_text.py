"""Text from tokens, stop texts, and prompts from conversations."""

import pytest
import tokenizers

from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.demo.language_model import tokenizer
from dmlgpu.frontends.generation.text import TextStream, conversation

TEXTS = ["hello world", "naïve façade 🙂🙃 日本語", " leading and  double spaces\n\n", "e\N{COMBINING ACUTE ACCENT}"]


def metaspace():
    """A tokenizer in the manner of SentencePiece, with bytes for characters that it lacks."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\N{LOWER ONE EIGHTH BLOCK}", *"helowrdan", "\N{LOWER ONE EIGHTH BLOCK}hello", "lo"]
    unigram = tokenizers.models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in pieces)], 0, byte_fallback=True)
    result = tokenizers.Tokenizer(unigram)
    result.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    decoders = tokenizers.decoders
    result.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    return result


@pytest.mark.parametrize("make", [lambda: tokenizer(300), metaspace], ids=["byte level", "metaspace"])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_make_up_the_text(make, text):
    model = make()
    tokens = model.encode(text).ids
    stream = TextStream(model)
    pieces = [stream.add(token) for token in tokens]
    assert "".join(pieces) + stream.finish() == model.decode(tokens)
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert sum(bool(piece) for piece in pieces) > 1 or len(text) < 3


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
