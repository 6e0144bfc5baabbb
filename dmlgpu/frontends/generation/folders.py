"""Folders of language models: as onnxruntime-genai writes them, and as Optimum and Transformers do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from dmlgpu.common.errors import InvalidArgument, ModelError, abridged, shown
from dmlgpu.common.files import is_gguf
from dmlgpu.frontends.generation.joining import NetworkPart, joined
from dmlgpu.frontends.generation.language_model import EncoderNetworks, LanguageConfig, LanguageModel
from dmlgpu.frontends.generation.memory import MAX_DEFAULT
from dmlgpu.frontends.generation.sampling import recommended

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from dmlgpu.frontends.onnx.model import Source
    from dmlgpu.frontends.onnx.values import OnnxValue

_GENAI = "genai_config.json"
_SETTINGS = "tokenizer_config.json"
_GENERATION = "generation_config.json"
_NETWORKS = (
    "model.onnx",
    "decoder_model_merged.onnx",
    "decoder_with_past_model.onnx",
    "onnx/model.onnx",
    "onnx/decoder_model_merged.onnx",
    "onnx/decoder_with_past_model.onnx",
)
_MERGED = "decoder_model_merged.onnx"
_ENCODER_DECODER = (("encoder_model.onnx",), ("decoder_model.onnx", _MERGED), ("decoder_with_past_model.onnx", _MERGED))
"""Files of a model with an encoder, each with its alternative."""

_PYTORCH = ("*.safetensors", "pytorch_model*.bin")
_MAX_JSON_BYTES = 256 << 20
_MAX_SIZE = 2**31 - 1

_SIZES = {
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "vocabulary": ("vocab_size",),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "num_attention_heads", "n_head", "num_heads", "n_heads"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
}
"""Names of each size in a config.json; the first one present counts."""

_DECODER_SIZES = {
    "context_length": ("max_target_positions", *_SIZES["context_length"]),
    "layers": ("decoder_layers", "num_decoder_layers", *_SIZES["layers"]),
    "heads": ("decoder_attention_heads", *_SIZES["heads"]),
    "kv_heads": ("decoder_attention_heads", *_SIZES["heads"]),
}
"""The same of models with an encoder, where they differ."""

_PROMPT_SIZES = ("max_source_positions", *_SIZES["context_length"])


def read(source: str | os.PathLike[str], context: int | None = None) -> LanguageModel:
    """Read a language model, without its weights.

    Args:
        source: A folder, or a GGUF file.
        context: Tokens that will be used at most, if known. Tables of a GGUF file's positions end there.

    Raises:
        ModelError: If a file is missing or malformed.
        NotSupported: If a decoder is split over files of different operator sets.
        InvalidArgument: If there is no such file or folder.
    """
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgument(f"Generator.load: source must be a path, got {shown(source)}")
    path = Path(source)
    if is_gguf(path):
        from dmlgpu.frontends.generation import gguf  # noqa: PLC0415 - an extra

        return gguf.read(path, context=context)
    if not path.is_dir():
        raise InvalidArgument(f"Generator.load: {_advice(path)}")
    if (path / _GENAI).is_file():
        return _genai(path)
    if (path / "config.json").is_file():
        return _transformers(path)
    files = sorted(path.glob("*.gguf"))
    if files:
        raise InvalidArgument(f"Generator.load: {path.name} has GGUF files; pass one of them: {str(files[0])!r}")
    raise ModelError(path.name, f"has neither {_GENAI} nor config.json; a model is a folder with one of them")


def _advice(path: Path) -> str:
    """Return advice for a path that is not a folder."""
    source = f"source must be a folder with {_GENAI} or config.json, or a GGUF file"
    if not path.exists():
        return f"{source}, got {str(path)!r}, which does not exist; models are not downloaded"
    if any((path.parent / name).is_file() for name in (_GENAI, "config.json")):
        return f"{source}, got the file {str(path)!r}; pass its folder: {str(path.parent)!r}"
    return f"{source}, got the file {str(path)!r}"


def _genai(folder: Path) -> LanguageModel:
    """Read a folder of onnxruntime-genai."""
    settings = _json(folder, _GENAI)
    model, search = _mapping(settings, "model", folder), settings.get("search")
    sampling = recommended(search) if isinstance(search, dict) else {}
    decoder = _mapping(model, "decoder", folder)
    config = LanguageConfig(
        architecture=str(model.get("type", "decoder")),
        context_length=_size(model, "context_length", folder),
        vocabulary=_size(model, "vocab_size", folder),
        layers=_size(decoder, "num_hidden_layers", folder),
        kv_heads=_size(decoder, "num_key_value_heads", folder),
        head_size=_size(decoder, "head_size", folder),
        bos=_token(model.get("bos_token_id")),
        eos=_tokens(model.get("eos_token_id")),
    )
    network: Source
    weights: Mapping[str, OnnxValue] = {}
    if "pipeline" in decoder:
        network, weights = joined(_parts(folder, decoder["pipeline"]), folder.name)
    else:
        network = _file(folder, decoder)
    name = folder.resolve().name
    return _with_texts(folder, LanguageModel(name, network, config, weights=weights, sampling=sampling))


def _parts(folder: Path, pipeline: object) -> list[NetworkPart]:
    """Return the parts of a split decoder that compute a token: those only for prompts are other forms of them."""
    stages = [stage for entry in pipeline for stage in entry.items()] if _is_pipeline(pipeline) else []
    parts = []
    for name, stage in stages:
        if not isinstance(stage, dict) or not isinstance(stage.get("output_names_forwarder", {}), dict):
            raise ModelError(folder.name, f"{_GENAI}: {name!r} of model.decoder.pipeline must be an object")
        if stage.get("run_on_token_gen", True):
            parts.append(
                NetworkPart(_file(folder, stage, f"pipeline.{name}."), stage.get("output_names_forwarder", {}))
            )
    if not parts:
        raise ModelError(
            folder.name,
            f"{_GENAI}: model.decoder.pipeline must be a list of objects with a file each, got {shown(pipeline)}",
        )
    return parts


def _is_pipeline(pipeline: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(pipeline, list) and all(isinstance(entry, dict) for entry in pipeline)


def _file(folder: Path, values: Mapping[str, Any], field: str = "") -> Path:
    """Return the network that an object of the configuration names."""
    name = values.get("filename", "model.onnx")
    if not isinstance(name, str) or not _is_inside(folder, name):
        raise ModelError(
            folder.name, f"{_GENAI}: model.decoder.{field}filename must be a file in the folder, got {shown(name)}"
        )
    return _existing(folder, name)


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise ModelError(folder.name, f"must have the network {name!r}, which is missing")
    return folder / name


def _transformers(folder: Path) -> LanguageModel:
    """Read a folder of Optimum or Transformers."""
    settings = _json(folder, "config.json")
    text_config = settings.get("text_config")
    settings |= text_config if isinstance(text_config, dict) else {}
    generation = _json(folder, _GENERATION) if (folder / _GENERATION).is_file() else {}
    both = {**settings, **{key: value for key, value in generation.items() if value is not None}}
    name = folder.resolve().name
    if settings.get("is_encoder_decoder"):
        networks = [
            _first_file(folder, tuple(candidate for file in files for candidate in (file, f"onnx/{file}")))
            for files in _ENCODER_DECODER
        ]
        both = {_SIZES["context_length"][-1]: MAX_DEFAULT, **both}  # models with relative positions have no limit
        config = _config(folder, both, _SIZES | _DECODER_SIZES)
        length = _first_size(both, _PROMPT_SIZES, folder)
        encoder = EncoderNetworks(
            networks[0],
            networks[1],
            length,
            padding=_token(both.get("pad_token_id")) or 0,
            suppressed=_tokens(both.get("suppress_tokens")),
            first_suppressed=_tokens(both.get("begin_suppress_tokens")),
            settings=both,
        )
        config = replace(config, start=_start(both))
        return _with_texts(folder, LanguageModel(name, networks[2], config, encoder=encoder))
    network = _first_file(folder, _NETWORKS)
    return _with_texts(folder, LanguageModel(name, network, _config(folder, both, _SIZES)))


def _first_file(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the first network that exists."""
    name = next((name for name in names if (folder / name).is_file()), None)
    if name is None:
        has_weights = any(any(folder.glob(pattern)) for pattern in _PYTORCH)
        advice = "; its weights are PyTorch's: export it by 'optimum-cli export onnx --model FOLDER NEW_FOLDER'"
        raise ModelError(folder.name, f"must have a network: {', '.join(names)}{advice if has_weights else ''}")
    return folder / name


def _config(folder: Path, settings: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> LanguageConfig:
    """Return the sizes and special tokens of a config.json."""
    sizes = {field: _first_size(settings, names[field], folder) for field in _SIZES}
    head_size = settings.get("head_dim") or settings.get("d_kv") or sizes["hidden"] // sizes["heads"]
    return LanguageConfig(
        architecture=str(settings.get("model_type", "decoder")),
        context_length=sizes["context_length"],
        vocabulary=sizes["vocabulary"],
        layers=sizes["layers"],
        kv_heads=sizes["kv_heads"],
        head_size=_size({"head_dim": head_size}, "head_dim", folder),
        bos=_token(settings.get("bos_token_id")),
        eos=_tokens(settings.get("eos_token_id")),
    )


def _start(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens that begin an answer of a model with an encoder, with those that the configuration forces."""
    forced = settings.get("forced_decoder_ids")
    pairs = [pair for pair in forced if isinstance(pair, list) and len(pair) == 2] if isinstance(forced, list) else []
    first = settings.get("decoder_start_token_id", settings.get("bos_token_id"))
    return _tokens([first, settings.get("forced_bos_token_id"), *(token for _, token in pairs)]) or (0,)


def _with_texts(folder: Path, model: LanguageModel) -> LanguageModel:
    """Return a model with the tokenizer and chat template of its folder."""
    config = model.config
    tokenizer = _tokenizer(folder)
    if tokenizer is not None:
        last_id = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if last_id >= config.vocabulary:
            raise ModelError(
                folder.name,
                f"the tokenizer does not match the network: it has tokens up to {last_id}, the vocabulary has "
                f"{config.vocabulary}",
            )
    for token in (*config.eos, *config.start, *(() if config.bos is None else (config.bos,))):
        if token >= config.vocabulary:
            raise ModelError(
                folder.name, f"special tokens must be below the vocabulary of {config.vocabulary}, got {token}"
            )
    settings = _json(folder, _SETTINGS) if (folder / _SETTINGS).is_file() else {}
    generation = _json(folder, _GENERATION) if (folder / _GENERATION).is_file() else {}
    return replace(
        model,
        tokenizer=tokenizer,
        chat_template=_chat_template(folder, settings),
        special_tokens=_special_tokens(settings),
        sampling=recommended(generation) or model.sampling,
    )


def _tokenizer(folder: Path) -> Tokenizer | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    from tokenizers import Tokenizer  # noqa: PLC0415 - an extra

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain exceptions
        raise ModelError(folder.name, f"tokenizer.json cannot be read: {abridged(str(error))}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that the settings of a tokenizer name; those that are null are empty."""
    tokens = {name: settings[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token") if name in settings}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in tokens.items()}
    return {name: text if isinstance(text, str) else "" for name, text in texts.items()}


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(folder.name, f"chat_template.jinja cannot be read: {error}") from None
    template = settings.get("chat_template")
    if isinstance(template, list):  # several templates, by name
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else ""


# ---- fields of JSON files --------------------------------------------------------------------------------------------


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        size = path.stat().st_size
        value = json.loads(path.read_bytes()) if size <= _MAX_JSON_BYTES else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(folder.name, f"{name} cannot be read: {abridged(str(error))}") from None
    if size > _MAX_JSON_BYTES:
        raise ModelError(folder.name, f"{name} must have at most {_MAX_JSON_BYTES} bytes")
    if not isinstance(value, dict):
        raise ModelError(folder.name, f"{name} must be an object, got {shown(value)}")
    return value


def _mapping(values: Mapping[str, Any], name: str, folder: Path) -> Mapping[str, Any]:
    value = values.get(name)
    if not isinstance(value, dict):
        raise ModelError(folder.name, f"{_GENAI}: {name!r} must be an object, got {shown(value)}")
    return value


def _size(values: Mapping[str, Any], name: str, folder: Path) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_SIZE:
        raise ModelError(folder.name, f"{name!r} must be an integer from 1 to {_MAX_SIZE}, got {shown(value)}")
    return value


def _first_size(values: Mapping[str, Any], names: tuple[str, ...], folder: Path) -> int:
    return _size(values, next((name for name in names if values.get(name) is not None), names[0]), folder)


def _token(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _tokens(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(token for entry in values if (token := _token(entry)) is not None)


def _is_inside(folder: Path, name: str) -> bool:
    try:
        return (folder / name).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False
