"""Rows of accelerate, and of transformers on top of it: Trainer, pipelines and device maps."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from torch_clients.rows import row
from torch_clients.with_transformers import language_model, tokens

VARIABLE = "ACCELERATE_TORCH_DEVICE"


@contextlib.contextmanager
def _chosen(device: str) -> Iterator[None]:
    """Let accelerate choose a device, as `ACCELERATE_TORCH_DEVICE=dml` on the command line does."""
    from accelerate.state import AcceleratorState  # noqa: PLC0415

    AcceleratorState._reset_state(True)
    os.environ[VARIABLE] = device
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        AcceleratorState._reset_state(True)


def _steps(device: str, **options: Any) -> Any:
    import torch  # noqa: PLC0415
    from accelerate import Accelerator  # noqa: PLC0415

    with _chosen(device):
        accelerator = Accelerator(**options)
        assert accelerator.device.type == device
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
        model, optimizer, data = accelerator.prepare(model, optimizer, data)
        losses = []
        for batch in data:
            with accelerator.autocast():
                loss = model(batch).float().square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).detach().mean())
    return losses


@row("accelerate", f"Accelerator, with `{VARIABLE}=dml`", "accelerate")
def accelerator(device: str) -> Any:
    """Train an epoch."""
    return _steps(device)


@row("accelerate", f"Trainer, with `{VARIABLE}=dml`: five steps", "accelerate", "transformers", tolerance=1e-3)
def trainer(device: str) -> Any:
    """Train a language model."""
    return _trained(device)


def _trained_under_autocast(device: str) -> Any:
    import torch  # noqa: PLC0415

    model = language_model("Llama")
    model.forward = torch.autocast(device, torch.float16)(model.forward)
    return _trained(device, model)


for _option in ("fp16", "bf16"):
    row(
        "accelerate",
        f"Trainer({_option}=True)",
        "accelerate",
        "transformers",
        tolerance=2e-2,
        advice=('`model.forward = torch.autocast("dml")(model.forward)`', _trained_under_autocast),
    )(lambda device, option=_option: _trained(device, **{option: device != "cpu"}))


def _trained(device: str, model: Any = None, **options: Any) -> Any:
    import transformers  # noqa: PLC0415

    model = language_model("Llama") if model is None else model
    data = [{"input_ids": ids, "labels": ids} for ids in tokens(8)]
    with _chosen(device), tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=5, per_device_train_batch_size=2, logging_steps=1, report_to=[], save_strategy="no",
            disable_tqdm=True, learning_rate=1e-3, **options,
        )  # fmt: skip
        assert arguments.device.type == device
        training = transformers.Trainer(model, arguments, train_dataset=data)
        training.train()
    return [entry["loss"] for entry in training.state.log_history if "loss" in entry]


def _tokenizer() -> Any:
    import tokenizers  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    words = {f"w{number}": number for number in range(96)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w3"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w3", pad_token="w0")


@row("accelerate", 'pipeline("text-generation", device="dml")', "transformers")
def pipeline(device: str) -> Any:
    """Generate from a prompt."""
    import transformers  # noqa: PLC0415

    generate = transformers.pipeline(
        "text-generation", model=language_model("Llama"), tokenizer=_tokenizer(), device=device
    )
    return generate("w5 w7 w11", max_new_tokens=4, do_sample=False)[0]["generated_text"]


@row(
    "accelerate", 'from_pretrained(dtype=torch.float16, device_map="dml")', "accelerate", "transformers", tolerance=2e-2
)
def device_map(device: str) -> Any:
    """Load weights to the device."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    dtype = torch.float32 if device == "cpu" else torch.float16
    with tempfile.TemporaryDirectory() as folder:
        language_model("Llama").save_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=device)
        with torch.no_grad():
            return model(tokens().to(device)).logits.float()
