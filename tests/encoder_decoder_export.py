"""Random models with an encoder of transformers, exported by torch as Optimum does, and the tokens they generate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCABULARY, HIDDEN, HEADS = 320, 32, 2
PARTS = ("key", "value")


def model_of(architecture: str) -> Any:
    """Return a random model with two layers on each side."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokens: dict[str, Any] = {"tie_word_embeddings": False}
    tokens |= {"vocab_size": VOCABULARY, "pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 2}
    layers = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
    }
    layers |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": HIDDEN}
    if architecture == "t5":
        config = transformers.T5Config(
            **tokens, d_model=HIDDEN, d_kv=24, d_ff=48, num_layers=2, num_heads=HEADS, initializer_factor=6.0
        )
        return transformers.T5ForConditionalGeneration(config).eval()
    if architecture == "bart":
        config = transformers.BartConfig(
            **tokens, **layers, max_position_embeddings=96, bos_token_id=3, forced_eos_token_id=None, init_std=0.7
        )
        return transformers.BartForConditionalGeneration(config).eval()
    config = transformers.WhisperConfig(
        **tokens,
        **layers,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=96,
        bos_token_id=3,
        init_std=0.4,
        suppress_tokens=[5, 6],
        begin_suppress_tokens=[7],
    )
    return transformers.WhisperForConditionalGeneration(config).eval()


def expected_logits(model: Any, prompt: Any, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Return the logits after each of the decoder's tokens, without caches and without padding."""
    import torch

    with torch.no_grad():
        options = {model.main_input_name: torch.tensor(prompt)[None], "decoder_input_ids": torch.tensor([tokens])}
        logits: NDArray[np.float32] = model(**options).logits[0].numpy()
    for number, suppressed in enumerate(("suppress_tokens", "begin_suppress_tokens")):
        rows = slice(0, 1) if number else slice(None)
        logits[rows, getattr(model.config, suppressed, None) or []] = -1e30
    return logits


def export(model: Any, folder: Path) -> None:
    """Write the three networks and the configuration."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    is_audio = model.main_input_name == "input_features"
    layers = getattr(model.config, "decoder_layers", None) or model.config.num_layers
    hidden, heads = model.config.d_model, getattr(model.config, "decoder_attention_heads", HEADS)
    size = getattr(model.config, "d_kv", None) or hidden // heads
    batch, rows, past = 2, 6, 3
    mask = torch.ones(batch, rows, dtype=torch.long)
    ids = torch.full((batch, rows), 5)
    frames = model.config.max_source_positions if is_audio else rows
    features = torch.randn(batch, model.config.num_mel_bins, 2 * frames) if is_audio else ids
    states = torch.randn(batch, frames, hidden)
    masks = [] if is_audio else [mask]
    mask_names = [] if is_audio else ["encoder_attention_mask"]

    def logits_of(outputs: Any) -> Any:
        scale = hidden**-0.5 if getattr(model.config, "scale_decoder_outputs", False) else 1.0
        head = model.proj_out if is_audio else model.lm_head
        return head(outputs * scale) + (model.final_logits_bias if hasattr(model, "final_logits_bias") else 0.0)

    def caches_of(cache: Any, sides: Sequence[str]) -> tuple[Any, ...]:
        parts = {"decoder": cache.self_attention_cache.layers, "encoder": cache.cross_attention_cache.layers}
        return tuple(
            tensor
            for layer in range(layers)
            for side in sides
            for tensor in (parts[side][layer].keys, parts[side][layer].values)
        )

    def decoded(tokens: Any, states: Any, masks: Sequence[Any], cache: Any) -> Any:
        options = {} if is_audio else {"encoder_attention_mask": masks[0]}
        return model.get_decoder()(
            input_ids=tokens, encoder_hidden_states=states, past_key_values=cache, use_cache=True, **options
        )

    def first(tokens: Any, states: Any, *masks: Any) -> tuple[Any, ...]:
        cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
        outputs = decoded(tokens, states, masks, cache)
        return (logits_of(outputs.last_hidden_state), *caches_of(outputs.past_key_values, ("decoder", "encoder")))

    def later(tokens: Any, *rest: Any) -> tuple[Any, ...]:
        masks, pasts = rest[: len(mask_names)], rest[len(mask_names) :]
        cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
        for layer in range(layers):
            cache.self_attention_cache.update(*pasts[4 * layer : 4 * layer + 2], layer)
            cache.cross_attention_cache.update(*pasts[4 * layer + 2 : 4 * layer + 4], layer)
            cache.is_updated[layer] = True
        states = torch.zeros(tokens.shape[0], pasts[2].shape[2], hidden)  # not read: their keys and values are cached
        outputs = decoded(tokens, states, masks, cache)
        return (logits_of(outputs.last_hidden_state), *caches_of(outputs.past_key_values, ("decoder",)))

    def names(prefix: str, sides: Sequence[str]) -> list[str]:
        return [f"{prefix}.{layer}.{side}.{part}" for layer in range(layers) for side in sides for part in PARTS]

    def encoded(source: Any, *masks: Any) -> Any:
        options = {} if is_audio else {"attention_mask": masks[0]}
        return model.get_encoder()(source, **options).last_hidden_state

    def cache(count: int) -> Any:
        return torch.randn(batch, heads, count, size)

    both = ("decoder", "encoder")
    pasts = [cache(count) for _ in range(layers) for count in (past, past, states.shape[1], states.shape[1])]
    source = ["input_features"] if is_audio else ["input_ids", "attention_mask"]
    networks: dict[str, tuple[Callable[..., Any], Sequence[Any], list[str], list[str]]] = {
        "encoder_model": (encoded, [features, *masks], source, ["last_hidden_state"]),
        "decoder_model": (
            first,
            [torch.full((batch, 2), 5), states, *masks],
            ["input_ids", "encoder_hidden_states", *mask_names],
            ["logits", *names("present", both)],
        ),
        "decoder_with_past_model": (
            later,
            [torch.full((batch, 1), 5), *masks, *pasts],
            ["input_ids", *mask_names, *names("past_key_values", both)],
            ["logits", *names("present", ("decoder",))],
        ),
    }
    for name, (function, arguments, inputs, outputs) in networks.items():
        _export(model, function, folder / f"{name}.onnx", arguments, names=(inputs, outputs))


def _export(
    model: Any,
    function: Callable[..., Any],
    path: Path,
    arguments: Sequence[Any],
    *,
    names: tuple[list[str], list[str]],
) -> None:
    """Write a function of a model as a network whose sizes are free."""
    import torch

    inputs, outputs = names

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    free: dict[str, dict[int, str]] = {}
    for name in (*inputs, *outputs):
        free[name] = {0: "batch"}
        if name == "input_features":
            continue
        axis = 2 if name.startswith(("past", "present")) else 1
        count = "rows" if "encoder" in name or path.stem == "encoder_model" else "new"
        free[name][axis] = {"past": "past", "pres": "total"}.get(name[:4], count) if ".decoder." in name else count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Network().eval(),
            tuple(arguments),
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=free,
            opset_version=17,
            dynamo=False,
        )
