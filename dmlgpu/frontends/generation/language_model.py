"""The parts of a language model, independent of its file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.frontends.onnx.model import Source
from dmlgpu.frontends.onnx.values import OnnxValue

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAST_LENGTH, NEW_LENGTH = "past_length", "new_length"
"""Inputs of networks with states, INT32 {batch}: the numbers of tokens before, and of new ones that count."""


@dataclass(frozen=True)
class LanguageConfig:
    """Sizes and special tokens of a language model.

    Attributes:
        architecture: Name of the architecture, ``llama``.
        context_length: Maximum number of tokens of prompt and answer together.
        vocabulary: Number of logits of a token.
        layers: Number of layers, each with a cache of keys and one of values unless the network has states.
        kv_heads: Number of key-value heads of a cache; 0 if no layer has caches.
        head_size: Elements of a head.
        bos: Token that begins a text; None if the model has none.
        eos: Tokens that end an answer.
        add_bos: Whether a prompt given as text begins with ``bos`` although the tokenizer does not add it.
        start: Tokens that begin an answer, of models with an encoder.
        trained_length: Context length of the model if the network was read for a shorter one; else 0.
    """

    architecture: str
    context_length: int
    vocabulary: int
    layers: int
    kv_heads: int
    head_size: int
    bos: int | None = None
    eos: tuple[int, ...] = ()
    add_bos: bool = False
    start: tuple[int, ...] = ()
    trained_length: int = 0


@dataclass(frozen=True)
class EncoderNetworks:
    """Networks and settings that only a model with an encoder has.

    Attributes:
        encoder: ONNX model from ``input_ids`` and ``attention_mask``, or ``input_features``, to ``last_hidden_state``.
        first: ONNX model of the first tokens, from ``input_ids`` and ``encoder_hidden_states`` to ``logits`` and all
            caches: ``present.N.decoder.key`` and ``.value``, ``present.N.encoder.key`` and ``.value``.
        prompt_length: Maximum number of tokens of a prompt.
        padding: Token that fills shorter prompts.
        suppressed: Tokens that an answer must not have.
        first_suppressed: Tokens that it must not begin with.
        settings: Values of the configuration files.
    """

    encoder: Source
    first: Source
    prompt_length: int
    padding: int = 0
    suppressed: tuple[int, ...] = ()
    first_suppressed: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class LanguageModel:
    """A language model, read but not yet on a device.

    Attributes:
        name: Name in messages.
        network: ONNX model: a path, or a ModelProto. Its inputs are ``input_ids`` {batch, new} and
            ``past_key_values.N.key`` and ``.value`` {batch, kv_heads, rows, head_size} per layer, with
            ``attention_mask`` {batch, total} and ``position_ids`` {batch, new} if it needs them. Its outputs are
            ``logits`` {batch, new, vocabulary} and ``present.N.key`` and ``.value``. Caches of GroupQueryAttention have
            fixed rows; others grow by concatenation. Layers with a state have inputs ``past_state.N.PART`` and outputs
            ``present_state.N.PART`` instead, and the inputs ``past_length`` and ``new_length``.
        config: Sizes and special tokens.
        tokenizer: Converts between text and tokens; None if only token ids are used.
        chat_template: Jinja2 template of a conversation; empty if there is none.
        special_tokens: Strings of special tokens by their names in the template, ``eos_token``, if the files have them.
        sampling: Sampling options that the files recommend, by the names of SamplingOptions; empty if there are none.
        weights: Initializers of the network that are in none of its files, by name.
        encoder: Networks that run before it; None if the model is a decoder. The network then has the caches
            ``past_key_values.N.decoder.key`` and so on, which grow, and those of ``encoder``, which do not change.
    """

    name: str
    network: Source
    config: LanguageConfig
    tokenizer: Tokenizer | None = None
    chat_template: str = ""
    weights: Mapping[str, OnnxValue] = field(default_factory=dict, repr=False)
    encoder: EncoderNetworks | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheFormat:
    """Storage format of caches.

    Attributes:
        dtype: Float32, float16 or int8.
        block: Adjacent elements of a head that share a scale, of int8.
    """

    dtype: np.dtype[Any]
    block: int

    @classmethod
    def of(cls, dtype: DTypeLike | None, block: int | None, head_size: int, label: str) -> CacheFormat | None:
        """Return the format that arguments request; None for that of the network.

        Raises:
            InvalidArgument: If it is not such a type, or the block does not divide a head.
        """
        if dtype is None and block is None:
            return None
        kind = None if dtype is None else float_type(dtype, f"{label}: cache_dtype", ("int8",))
        if block is None and kind is not None:
            return cls(kind, head_size)
        if kind is None or kind != np.int8:
            raise InvalidArgument(f"{label}: cache_block needs cache_dtype='int8', got {shown(dtype)}")
        if not isinstance(block, int) or isinstance(block, bool) or block < 1 or head_size % block:
            raise InvalidArgument(
                f"{label}: cache_block must divide a head of {head_size} elements, got {shown(block)}"
            )
        return cls(kind, block)


def float_type(dtype: DTypeLike, parameter: str, others: tuple[str, ...] = ()) -> np.dtype[Any]:
    """Return a floating-point type of networks and caches, or one of a few other types.

    Raises:
        InvalidArgument: If it is neither float32 nor float16, nor one of `others`; the message begins with `parameter`.
    """
    return type_among(dtype, parameter, ("float32", "float16", *others))


def type_among(dtype: DTypeLike, parameter: str, names: Sequence[str]) -> np.dtype[Any]:
    """Return a type.

    Raises:
        InvalidArgument: If it is not one of `names`; the message begins with `parameter`.
    """
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind is None or kind.name not in names:
        *first, last = names
        choices = f"{', '.join(first)} or {last}" if first else last
        raise InvalidArgument(f"{parameter} must be {choices}, got {shown(dtype)}")
    return kind
