"""Tokenizers from the metadata of GGUF files: byte-level BPE (``gpt2``) and SentencePiece with scores (``llama``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf.constants import TokenType
from numpy.typing import NDArray

from dmlgpu.common.errors import ModelError, NotSupported, shown, warn_caller
from dmlgpu.frontends.generation.gguf.files import GgufFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_TOKENS = 1 << 21

_SPACE = "\u2581"
"""Stands for a space in SentencePiece's tokens."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"


def _by_words(digits: str) -> str:
    """Return the pattern of Llama 3 and Qwen, which differ in digits."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_PUNCTUATION}|{_SPACES}"


def _by_case(digits: str, ending: str) -> str:
    """Return the pattern of Tekken and GPT-4o, which begins words at upper case."""
    before = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{before}{_UPPER}*{_LOWER}+{ending}|{before}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


@dataclass(frozen=True)
class _Splitting:
    """The way in which byte-level BPE splits a text into words.

    Attributes:
        patterns: Regular expressions, applied one after the other; each match and each gap becomes a word.
        whole_words: Whether a word that is a token is not merged from its bytes.
        normalizes: Whether the text is in Unicode's form NFC first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    normalizes: bool = False


_LLAMA3 = _Splitting((_by_words(r"\p{N}{1,3}"),), whole_words=True)
_SINGLE_DIGITS = _Splitting((r"\p{N}", _GPT2))
_PLAIN = _Splitting((_GPT2,))
_SPLITTINGS: Mapping[str, _Splitting] = {
    "default": _Splitting((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _Splitting(_LLAMA3.patterns)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _Splitting((_by_words(r"\p{N}"),), normalizes=True)),
    "stablelm2": _Splitting((_by_words(r"\p{N}"),)),
    "tekken": _Splitting((_by_case(r"\p{N}", ""),), whole_words=True),
    **dict.fromkeys(("gpt-4o", "llama4"), _Splitting((_by_case(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),))),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), _PLAIN),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _SINGLE_DIGITS),
}
"""Ways of splitting, by the name in ``tokenizer.ggml.pre``."""

_ENDINGS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>"),
    *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>", "<|endofturn|>", "<end_of_utterance>", "<turn|>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>", "[e~["),
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""Tokens that end an answer, whether or not the metadata say so."""

_NO_ENDINGS = (
    ("<|end|>", {"<|return|>", "<|call|>"}),
    ("<|end|>", {"<|calls|>", "<|flush|>"}),
    ("</s>", {"<|tool_response>"}),
    ("</s>", {"<end_of_turn>"}),
)
"""Exceptions: tokens that end only a part of an answer, or are HTML tags, if the vocabulary has certain other tokens.
"""


class TokenTypeWarning(UserWarning):
    """A GGUF file declares a token that ends an answer as ordinary text."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of a file.

    Attributes:
        tokens: Strings by token id.
        kinds: Values of ``TokenType``.
        bos: Token that begins a text; None if there is none.
        eos: Tokens that end an answer.
        add_bos: Whether a text begins with ``bos``.
        model: Name of the algorithm.
    """

    tokens: Sequence[str]
    kinds: Sequence[int]
    bos: int | None
    eos: tuple[int, ...]
    add_bos: bool
    model: str

    def of_kind(self, *kinds: TokenType) -> list[str]:
        """Return the tokens of some kinds."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]


def vocabulary_of(file: GgufFile, size: int) -> Vocabulary | None:
    """Return the tokens of a file; None if it has none.

    Args:
        file: The file.
        size: Number of tokens that the network has.

    Raises:
        ModelError: If metadata are malformed, or the tokens do not fit the network.
    """
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if tokens is None:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelError(file.name, "tokenizer.ggml.tokens must be an array of strings")
    if len(tokens) != size or size > _MAX_TOKENS:
        raise ModelError(
            file.name,
            f"the tokenizer has {len(tokens)} tokens, the network {size}; they must be equal, at most {_MAX_TOKENS}",
        )
    kinds = _numbers(file, "tokenizer.ggml.token_type", size, "iu")
    kinds = np.full(size, int(TokenType.NORMAL)) if kinds is None else kinds.copy()
    model = file.text("tokenizer.ggml.model")
    ids = {token: index for index, token in enumerate(tokens)}
    eos = [_token(file, key, size) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    eos += _endings(file, ids, kinds)
    bos = _token(file, "bos_token_id", size)
    add_bos = bos is not None and file.flag("tokenizer.ggml.add_bos_token", model == "llama" or _is_llama3(file))
    ends = tuple(dict.fromkeys(token for token in eos if token is not None))
    return Vocabulary(tokens, [int(kind) for kind in kinds], bos, ends, add_bos, model)


def _endings(file: GgufFile, ids: Mapping[str, int], kinds: NDArray[Any]) -> list[int]:
    """Return the tokens that end an answer by their names, and type them as control tokens."""
    excluded = {token for token, others in _NO_ENDINGS if others <= ids.keys()}
    endings = [token for token in _ENDINGS if token in ids and token not in excluded]
    mistyped = [token for token in endings if kinds[ids[token]] != TokenType.CONTROL]
    for token in mistyped:
        kinds[ids[token]] = TokenType.CONTROL
    if mistyped:
        warn_caller(
            f"model {file.name!r}: {', '.join(mistyped)} must be of type control in tokenizer.ggml.token_type; an "
            "answer ends there nevertheless, as in llama.cpp",
            TokenTypeWarning,
        )
    return [ids[token] for token in endings]


def tokenizer_of(file: GgufFile, vocabulary: Vocabulary) -> Tokenizer:
    """Return the tokenizer of a file.

    Raises:
        ModelError: If metadata are malformed.
        NotSupported: If its algorithm or its way of splitting words is not supported.
    """
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if vocabulary.model not in builders:
        raise NotSupported(
            f"model {file.name!r}: tokenizer.ggml.model must be gpt2 or llama, got {shown(vocabulary.model)}"
        )
    from tokenizers import AddedToken, processors  # noqa: PLC0415 - an extra

    tokenizer = builders[vocabulary.model](file, vocabulary)
    groups = ((True, (TokenType.CONTROL, TokenType.UNKNOWN)), (False, (TokenType.USER_DEFINED,)))
    for special, kinds in groups:
        added = [AddedToken(token, special=special, normalized=False) for token in vocabulary.of_kind(*kinds) if token]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)
    if vocabulary.add_bos and vocabulary.bos is not None:
        bos = vocabulary.tokens[vocabulary.bos]
        single = [bos, "$A"]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(bos, vocabulary.bos)])
    return tokenizer


def _byte_level(file: GgufFile, vocabulary: Vocabulary) -> Tokenizer:
    """Return byte-level BPE with the merges of the file."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: PLC0415 - an extra

    name = file.text("tokenizer.ggml.pre", "default")
    splitting = _SPLITTINGS.get(name)
    if splitting is None:
        raise NotSupported(
            f"model {file.name!r}: tokenizer.ggml.pre {shown(name)} is not supported: it must be one of "
            f"{', '.join(_SPLITTINGS)}"
        )
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise ModelError(file.name, "tokenizer.ggml.merges must be an array of strings")
    pairs = []
    ids = _ids(vocabulary)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise ModelError(file.name, f"tokenizer.ggml.merges has {shown(merge)}, whose parts or sum are not tokens")
        pairs.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=splitting.whole_words))
    if splitting.normalizes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(file: GgufFile, vocabulary: Vocabulary) -> Tokenizer:
    """Return BPE whose merges follow the scores of tokens; other characters become tokens of bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers  # noqa: PLC0415 - an extra

    scores = _numbers(file, "tokenizer.ggml.scores", len(vocabulary.tokens), "f")
    if scores is None:
        raise ModelError(file.name, "metadata tokenizer.ggml.scores are missing")
    unknown = _token(file, "unknown_token_id", len(vocabulary.tokens))
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_ids(vocabulary),
            merges=list(_merges(vocabulary, scores)),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=bool(vocabulary.of_kind(TokenType.BYTE)),
        )
    )
    adds_space = file.flag("tokenizer.ggml.add_space_prefix", True)
    steps = [normalizers.Prepend(_SPACE)] if adds_space else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    ends = [decoders.Strip(" ", 1, 0)] if adds_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    return tokenizer


def _merges(vocabulary: Vocabulary, scores: Any) -> Iterator[tuple[str, str]]:
    """Return all pairs of tokens that form a token, those with the best score first."""
    usual = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    ids = {
        token: index
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in usual
    }
    for token in sorted(ids, key=lambda token: (-scores[ids[token]], ids[token])):
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        valid = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        yield from sorted(valid, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {token: index for index, token in enumerate(vocabulary.tokens)}


def _is_llama3(file: GgufFile) -> bool:
    return _SPLITTINGS.get(file.metadata.get("tokenizer.ggml.pre", "")) is _LLAMA3


def _token(file: GgufFile, key: str, size: int) -> int | None:
    """Return the id of a special token; None if the file has none."""
    key = f"tokenizer.ggml.{key}"
    return file.integer(key, low=0, high=size - 1) if key in file.metadata else None


def _numbers(file: GgufFile, key: str, count: int, kinds: str) -> Any:
    """Return an array of the metadata; None if it is missing."""
    array = file.metadata.get(key)
    if array is None:
        return None
    if not isinstance(array, np.ndarray) or array.shape != (count,) or array.dtype.kind not in kinds:
        raise ModelError(file.name, f"{key} must be an array of {count} numbers")
    return array
