"""Tokenizers from the metadata of GGUF files, against the tokenizers that they were written from."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf: Any = pytest.importorskip("gguf", reason="GGUF files need the package gguf")
tokenizers: Any = pytest.importorskip("tokenizers", reason="tokenizers need the package tokenizers")

from gguf.constants import TokenType  # noqa: E402

from dmlgpu.common.errors import DmlError, ModelError, NotSupported  # noqa: E402
from dmlgpu.frontends.generation.gguf.files import read_file  # noqa: E402
from dmlgpu.frontends.generation.gguf.tokenizer import (  # noqa: E402
    TokenTypeWarning,
    Vocabulary,
    tokenizer_of,
    vocabulary_of,
)
from tests.text_streams import check_random_texts  # noqa: E402

TEXTS = (
    "Hello, world! It's 12345 o'clock; I'LL be back.",
    "  two  spaces\n\nand lines \t tabs  ",
    "Größe, naïve café, 東京タワー, привет, 🙂🚀",
    "def f(x):\n    return x ** 2  # HTTPServer2",
    "",
    " ",
    "<|im_start|>user\nhi<|im_end|>",
)
CORPUS = [*TEXTS, "the quick brown fox jumps over the lazy dog", "It's the dog's house, isn't it? 2026-11-26"] * 3

# As the tokenizer.json of the models write them.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS: Mapping[str, str | None] = {
    "gpt-2": None,  # the pattern of the package's own ByteLevel
    "llama-bpe": LLAMA3,
    "qwen2": LLAMA3.replace("{1,3}", ""),
    "gpt-4o": GPT4O,
    "tekken": GPT4O.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", ""),
}


def byte_level(pattern: str | None) -> Any:
    """A byte-level BPE tokenizer, trained on the samples."""
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers
    steps = [] if pattern is None else [split.Split(tokenizers.Regex(pattern), "isolated")]
    own.pre_tokenizer = split.Sequence([*steps, split.ByteLevel(add_prefix_space=False, use_regex=pattern is None)])
    own.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=split.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(CORPUS, trainer)
    return own


def write_tokenizer(path: Path, model: str, tokens: Sequence[str], kinds: Sequence[int], **metadata: Any) -> None:
    """Write a file with a tokenizer and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(kinds))
    for name, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        add[type(value)](f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_byte_level(path: Path, own: Any, pre: str, **metadata: Any) -> int:
    """Write a byte-level tokenizer; return its number of tokens."""
    data = json.loads(own.to_str())
    special = {token["id"] for token in data["added_tokens"]}
    tokens = [own.id_to_token(index) for index in range(own.get_vocab_size())]
    kinds = [TokenType.CONTROL if index in special else TokenType.NORMAL for index in range(len(tokens))]
    merges = [" ".join(merge) for merge in data["model"]["merges"]]
    write_tokenizer(path, "gpt2", tokens, kinds, **{"pre": pre, "merges": merges, "eos_token_id": 0, **metadata})
    return len(tokens)


def read_tokenizer(path: Path, count: int) -> tuple[Any, Vocabulary]:
    file = read_file(path)
    vocabulary = vocabulary_of(file, count)
    assert vocabulary is not None
    return tokenizer_of(file, vocabulary), vocabulary


@pytest.mark.parametrize("pre", PATTERNS)
def test_byte_level(pre: str, tmp_path: Path) -> None:
    own, path = byte_level(PATTERNS[pre]), tmp_path / "m.gguf"
    count = write_byte_level(path, own, pre, add_bos_token=False)
    tokenizer, vocabulary = read_tokenizer(path, count)
    for text in TEXTS:
        expected = own.encode(text).ids
        if pre not in ("llama-bpe", "tekken"):  # these take words that are tokens whole
            assert tokenizer.encode(text).ids == expected, text
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
        assert [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == [
            word for word, _ in own.pre_tokenizer.pre_tokenize_str(text)
        ]
    assert vocabulary.eos == (0, own.token_to_id("<|im_end|>"))
    check_random_texts(tokenizer, rounds=200)


def test_whole_words(tmp_path: Path) -> None:
    """Llama 3 does not merge a word that is a token."""
    own, path = byte_level(LLAMA3), tmp_path / "m.gguf"
    data = json.loads(own.to_str())
    data["model"]["vocab"]["zqz"] = len(data["model"]["vocab"])
    data["model"]["ignore_merges"] = True
    own = tokenizers.Tokenizer.from_str(json.dumps(data))
    tokenizer, _ = read_tokenizer(path, write_byte_level(path, own, "llama-bpe", add_bos_token=False))
    assert tokenizer.encode("zqz").ids == own.encode("zqz").ids == [own.token_to_id("zqz")]


def test_first_token(tmp_path: Path) -> None:
    own, path = byte_level(None), tmp_path / "m.gguf"
    count = write_byte_level(path, own, "gpt-2", add_bos_token=True, bos_token_id=0)
    tokenizer, vocabulary = read_tokenizer(path, count)
    assert vocabulary.add_bos
    assert tokenizer.encode("hi").ids == [0, *own.encode("hi").ids]
    assert tokenizer.encode("hi", add_special_tokens=False).ids == own.encode("hi").ids


ENDINGS = (  # of llama.cpp
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
    *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~["),
    "<\N{FULLWIDTH VERTICAL LINE}end\u2581of\u2581sentence\N{FULLWIDTH VERTICAL LINE}>",
)


@pytest.mark.parametrize("kind", [TokenType.CONTROL, TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED])
def test_tokens_that_end_a_turn(kind: TokenType, tmp_path: Path) -> None:
    """They end an answer regardless of their type in the file, are one token of a prompt, and not part of a text."""
    path = tmp_path / "m.gguf"
    for ending in ENDINGS:
        tokens = [
            "<unk>",
            "<x>",
            *"<|>_[]/~\u2581",
            *sorted(set("".join(ENDINGS)) - set("<|>_[]/~\u2581")),
            ending,
            "<y>",
        ]
        size = len(tokens)
        kinds = [TokenType.UNKNOWN, *(size - 3) * [TokenType.NORMAL], kind, kind]
        metadata = {"scores": size * [-1.0], "unknown_token_id": 0, "add_bos_token": False}
        write_tokenizer(path, "llama", tokens, kinds, **metadata)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tokenizer, vocabulary = read_tokenizer(path, size)
        messages = [str(warning.message) for warning in caught if warning.category is TokenTypeWarning]
        assert len(messages) == (kind != TokenType.CONTROL)
        assert all(message.startswith(f"model 'm.gguf': {ending} must be of type control") for message in messages)
        assert vocabulary.eos == (size - 2,)
        assert tokenizer.encode(f"a{ending}").ids[-1] == size - 2
        assert tokenizer.decode([size - 2, tokens.index("a"), 0]) == "a"


@pytest.mark.parametrize(
    ("tokens", "count"),
    [
        (["<|end|>", "<|return|>", "<|call|>"], 2),
        (["<|end|>", "<|flush|>", "<|calls|>"], 2),
        (["<|end|>", "<|return|>"], 2),
        (["</s>", "<|tool_response>"], 1),
        (["</s>", "<end_of_turn>"], 1),
        (["</s>", "<|im_end|>"], 2),
    ],
)
def test_tokens_that_end_a_part_of_an_answer(tokens: list[str], count: int, tmp_path: Path) -> None:
    """Harmony ends the channels of an answer with <|end|>, and </s> is a tag of HTML in Gemma's vocabulary."""
    path = tmp_path / "m.gguf"
    kinds = len(tokens) * [TokenType.CONTROL]
    write_tokenizer(path, "llama", ["a", *tokens], [TokenType.NORMAL, *kinds], scores=[0.0] * (len(tokens) + 1))
    _, vocabulary = read_tokenizer(path, len(tokens) + 1)
    assert sorted(vocabulary.eos) == list(range(len(tokens) - count + 1, len(tokens) + 1))


# ---- SentencePiece

PIECES = {
    **dict.fromkeys("\u2581abcdehlortw", -20.0),
    **{"he": -1.0, "ll": -2.0, "hell": -3.0, "hello": -4.0, "\u2581hello": -5.0, "\u2581w": -2.5, "or": -6.0},
    **{"ld": -7.0, "orld": -8.0, "\u2581world": -9.0, "\u2581worl": -30.0, "lo": -1.5, "\u2581\u2581": -3.5},
}


def merged(text: str, ids: Mapping[str, int]) -> list[int]:
    """SentencePiece's algorithm: merge the neighbors whose sum has the best score, the leftmost of equal ones."""
    parts = list(text)
    while True:
        scores = [PIECES.get(left + right, -np.inf) for left, right in itertools.pairwise(parts)]
        if not scores or max(scores) == -np.inf:
            break
        at = int(np.argmax(scores))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [
        number
        for part in parts
        for number in ([ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()])
    ]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece(prefix: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "<end_of_turn>"]
    kinds = [TokenType.UNKNOWN, *2 * [TokenType.CONTROL], *256 * [TokenType.BYTE], *len(PIECES) * [TokenType.NORMAL]]
    scores = [*259 * [0.0], *PIECES.values(), 0.0]
    metadata = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, "add_space_prefix": prefix}
    write_tokenizer(path, "llama", tokens, [*kinds, TokenType.CONTROL], scores=scores, **metadata)
    tokenizer, vocabulary = read_tokenizer(path, len(tokens))
    ids = {token: index for index, token in enumerate(tokens)}
    assert vocabulary.eos == (2, len(tokens) - 1)
    assert vocabulary.add_bos
    for text in ("hello world", "hello  hello", "world", "hé 🙂 hello", "aardwolf cold"):
        spaced = ("\u2581" if prefix else "") + text.replace(" ", "\u2581")
        result = tokenizer.encode(text).ids
        assert result == [1, *merged(spaced, ids)], text
        assert tokenizer.decode(result) == text
    assert tokenizer.encode("hello<end_of_turn>", add_special_tokens=False).ids[-1] == len(tokens) - 1
    check_random_texts(tokenizer, rounds=1000)


# ---- bad metadata


@pytest.mark.parametrize(
    ("metadata", "error", "text"),
    [
        (
            {"pre": "no-such"},
            NotSupported,
            "tokenizer.ggml.pre 'no-such' is not supported: it must be one of default, ",
        ),
        ({"merges": ["a zzzz"]}, ModelError, "tokenizer.ggml.merges has 'a zzzz', whose parts or sum are not tokens"),
        ({"merges": [1, 2]}, ModelError, "tokenizer.ggml.merges must be an array of strings"),
        ({"eos_token_id": 10**6}, ModelError, "tokenizer.ggml.eos_token_id must be an integer from 0 to"),
    ],
)
def test_bad_metadata(metadata: dict[str, Any], error: type[Exception], text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    count = write_byte_level(path, byte_level(None), **{"pre": "gpt-2", **metadata})
    with pytest.raises(error, match=text):
        read_tokenizer(path, count)


def test_other_algorithms(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tokenizer(path, "bert", ["a", "b"], [1, 1])
    with pytest.raises(NotSupported, match=r"tokenizer.ggml.model must be gpt2 or llama, got 'bert'"):
        read_tokenizer(path, 2)
    with pytest.raises(ModelError, match="the tokenizer has 2 tokens, the network 3; they must be equal"):
        read_tokenizer(path, 3)
    write_tokenizer(path, "llama", ["a", "b"], [1, 1])
    with pytest.raises(ModelError, match=r"metadata tokenizer.ggml.scores are missing"):
        read_tokenizer(path, 2)


def test_flipped_bytes(tmp_path: Path) -> None:
    """Damaged metadata are read or rejected."""
    path = tmp_path / "m.gguf"
    count = write_byte_level(path, byte_level(None), "gpt-2")
    content, random = path.read_bytes(), np.random.default_rng(3)
    for place in random.integers(24, len(content), 150):
        damaged = bytearray(content)
        damaged[place] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        try:
            read_tokenizer(path, count)
        except DmlError as error:
            assert "\n" not in str(error)
