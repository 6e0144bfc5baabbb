"""A GGUF file as a language model, and how its weights are stored."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from dmlgpu.frontends.generation.gguf.architectures import network_config
from dmlgpu.frontends.generation.gguf.files import GgufFile, read_file
from dmlgpu.frontends.generation.gguf.network import network_of
from dmlgpu.frontends.generation.gguf.tokenizer import tokenizer_of, vocabulary_of
from dmlgpu.frontends.generation.gguf.weights import PACKINGS, check_supported, floats, packed
from dmlgpu.frontends.generation.language_model import LanguageConfig, LanguageModel, float_type
from dmlgpu.frontends.generation.sampling import recommended

_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
"""Metadata with recommended sampling options, by their names in Transformers."""


def read(path: str | os.PathLike[str], *, context: int | None = None, dtype: DTypeLike = np.float32) -> LanguageModel:
    """Read a language model from a GGUF file. Weights are memory-mapped, and repacked when they are uploaded.

    Args:
        path: The file; of a split model, the first.
        context: Number of positions; defaults to all that the model was trained for. Models with two sets of
            rotary factors (LongRoPE) use the long ones if it exceeds the original context.
        dtype: Type of activations, caches and scales, float32 or float16.

    Returns:
        A LanguageModel with the network as onnxruntime-genai exports it.

    Raises:
        ModelError: If the file is truncated, damaged, or its sizes contradict each other.
        NotSupported: If its architecture, a quantization or its tokenizer is not supported.
        InvalidArgument: If `context` or `dtype` is invalid.
    """
    kind = float_type(dtype, "dtype")
    file = read_file(path)
    config = network_config(file, context)
    vocabulary = vocabulary_of(file, config.vocabulary)
    network, weights = network_of(file, config, kind)
    language = LanguageConfig(
        architecture=config.name,
        context_length=config.context_length,
        vocabulary=config.vocabulary,
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_size=config.head_size,
        bos=None if vocabulary is None else vocabulary.bos,
        eos=() if vocabulary is None else vocabulary.eos,
        add_bos=vocabulary is not None and vocabulary.add_bos,
        trained_length=file.integer(f"{config.name}.context_length"),
    )
    tokenizer = None if vocabulary is None else tokenizer_of(file, vocabulary)
    template = file.text("tokenizer.chat_template", "")
    hints = {name: file.metadata[key] for key, name in _SAMPLING.items() if key in file.metadata}
    return LanguageModel(file.name, network, language, tokenizer, template, weights, sampling=recommended(hints))


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of one quantization.

    Attributes:
        kind: Its name.
        count: Number of tensors.
        elements: Number of elements.
        file_bytes: Bytes in the file.
        device_bytes: Bytes on the device.
        stored: Storage format there.
    """

    kind: str
    count: int
    elements: int
    file_bytes: int
    device_bytes: int
    stored: str

    def __str__(self) -> str:
        """Return ``Q4_K: 192 tensors, 4.50 bits per weight in the file, 6.00 as 4 bits in blocks of 32``."""
        tensors = f"{self.count} tensor{'s' * (self.count != 1)}"
        bits = [8 * size / self.elements for size in (self.file_bytes, self.device_bytes)]
        return f"{self.kind}: {tensors}, {bits[0]:.2f} bits per weight in the file, {bits[1]:.2f} as {self.stored}"


def stored_weights(path: str | os.PathLike[str], *, dtype: DTypeLike = np.float32) -> Sequence[StoredWeights]:
    """Return how the weights of a GGUF file are stored on a device, by quantization.

    Args:
        path, dtype: As for ``read``.

    Raises:
        DmlError: As ``read``.
    """
    kind, file = float_type(dtype, "dtype"), read_file(path)
    rows: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for name, (stored, size) in _sizes(file, kind).items():
        tensor = file.tensors[name]
        rows[tensor.kind.name, stored].append((math.prod(tensor.shape), tensor.data.nbytes, size))
    results = []
    for (name, stored), sizes in rows.items():
        elements, file_bytes, device_bytes = (sum(column) for column in zip(*sizes, strict=True))
        results.append(StoredWeights(name, len(sizes), elements, file_bytes, device_bytes, stored))
    return results


def _sizes(file: GgufFile, dtype: np.dtype[np.generic]) -> dict[str, tuple[str, int]]:
    """Return how each tensor is stored, and its bytes."""
    sizes = {}
    for name, tensor in file.tensors.items():
        check_supported(tensor, file.name)
        if tensor.kind in PACKINGS and len(tensor.shape) > 1:
            weight = packed(tensor, dtype)
            sizes[name] = f"{weight.bits} bits in blocks of {weight.block}", weight.nbytes
        elif tensor.kind not in PACKINGS:
            array = floats(tensor, dtype)
            sizes[name] = str(array.dtype), array.nbytes
    return sizes
