"""Rows of peft."""

from __future__ import annotations

from typing import Any

from torch_clients.rows import row
from torch_clients.with_transformers import language_model, tokens


@row(
    "peft", "LoRA of a Llama, trained three steps, with gradient checkpointing", "peft", "transformers", tolerance=1e-3
)
def lora(device: str) -> Any:
    """Train adapters."""
    import torch  # noqa: PLC0415
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    model = get_peft_model(language_model("Llama"), LoraConfig(r=4, lora_dropout=0.0, target_modules=["q_proj"]))
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model = model.to(device).train()
    optimizer = torch.optim.AdamW([x for x in model.parameters() if x.requires_grad], lr=0.01)
    batch, losses = tokens().to(device), []
    for _ in range(3):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses
