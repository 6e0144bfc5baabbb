"""A random Llama of transformers, exported by torch with caches that grow, and the tokens it generates."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx

from tests.bfloat16_networks import narrow
from tests.merged_decoders import merge

LAYERS, KV_HEADS, HEAD_SIZE = 2, 2, 16


def export(
    torch: Any,
    folder: Path,
    prompts: list[list[int]],
    count: int = 100,
    *,
    merged: bool = False,
    narrowed: bool = False,
) -> list[tuple[list[int], list[int]]]:
    """Write ``model.onnx`` and ``config.json``; return the prompts, each with the tokens that follow.

    If ``merged``, write ``decoder_model_merged.onnx`` instead, whose branch with caches is right for one token only; if
    ``narrowed``, with weights of BFLOAT16.
    """
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=0,
        initializer_range=0.3,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    if narrowed:
        model.bfloat16().float()
    config.save_pretrained(folder)

    class WithCaches(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> tuple[Any, ...]:
            cache = transformers.DynamicCache()
            for layer in range(LAYERS):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            outputs = self.model(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache
            )
            layers = outputs.past_key_values.layers
            return (outputs.logits, *(part for layer in layers for part in (layer.keys, layer.values)))

    class WithoutCaches(WithCaches):
        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any) -> tuple[Any, ...]:
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids)
            layers = outputs.past_key_values.layers
            return (outputs.logits, *(part for layer in layers for part in (layer.keys, layer.values)))

    batch, new, past = 2, 3, 4
    parts = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    inputs = ["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{part}" for part in parts)]
    outputs = ["logits", *(f"present.{part}" for part in parts)]
    free: dict[str, dict[int, str]] = {name: {0: "batch", 1: "new"} for name in ("input_ids", "position_ids", "logits")}
    free["attention_mask"] = {0: "batch", 1: "total"}
    free |= {name: {0: "batch", 2: "past"} for name in inputs[3:]} | {
        name: {0: "batch", 2: "total"} for name in outputs[1:]
    }

    def write(network: Any, name: str, new: int, past: int) -> Path:
        arguments = (
            torch.full((batch, new), 5),
            torch.ones(batch, new + past, dtype=torch.long),
            torch.arange(past, past + new).repeat(batch, 1),
            *(torch.randn(batch, KV_HEADS, past, HEAD_SIZE) for _ in range(2 * LAYERS) if past),
        )
        names = inputs[: len(arguments)]
        torch.onnx.export(
            network,
            arguments,
            str(folder / name),
            input_names=names,
            output_names=outputs,
            dynamic_axes={name: free[name] for name in (*names, *outputs)},
            opset_version=17,
            dynamo=False,
        )
        return folder / name

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if merged:
            first, later = write(WithoutCaches(), "first.onnx", new, 0), write(WithCaches(), "later.onnx", 1, past)
            networks = onnx.load(first), onnx.load(later)
            if narrowed:
                assert all(narrow(network) for network in networks)
            onnx.save(merge(*networks), folder / "decoder_model_merged.onnx")
            first.unlink()
            later.unlink()
        else:
            write(WithCaches(), "model.onnx", new, past)
        answers = [
            model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)[
                0, len(prompt) :
            ]
            for prompt in prompts
        ]
    return [(prompt, answer.tolist()) for prompt, answer in zip(prompts, answers, strict=True)]
