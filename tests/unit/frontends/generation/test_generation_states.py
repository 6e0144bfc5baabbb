"""Generation by models with states, Mamba-2, hybrids and short convolutions, against transformers and generators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="GGUF files need the package gguf")
torch: Any = pytest.importorskip("torch", reason="expected tokens come from transformers, which needs torch")
pytest.importorskip("transformers", reason="expected tokens come from transformers")

from dmlgpu.common.errors import InvalidArgument, NotSupported  # noqa: E402
from dmlgpu.frontends.generation.generator import Generator  # noqa: E402
from dmlgpu.frontends.generation.scheduler import Request  # noqa: E402
from tests.unit.frontends.generation.test_gguf_transformers import CASES, STATES, model_of, write_case  # noqa: E402

PROMPT = np.random.default_rng(0).integers(3, 96, 20).tolist()
OTHERS = [PROMPT[:7], PROMPT[3:], PROMPT[5:6], [*PROMPT, *PROMPT]]
QUICK = ("mamba2", "lfm2")


def written(name: str, path: Path) -> Any:
    """Write the file of a model; return the model."""
    model = model_of(CASES[name])
    write_case(path, model, CASES[name])
    return model


def answers(generator: Generator, prompt: list[int], count: int = 12) -> list[int]:
    return list(generator.generate_tokens(prompt, max_tokens=count))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in STATES]
)
def test_prompts_in_chunks_and_batches(name: str, tmp_path: Path) -> None:
    model = written(name, tmp_path / "m.gguf")
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        expected = [
            model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
            for prompt in OTHERS
        ]
    assert len({token for tokens in expected for token in tokens}) > 5
    generator = Generator.load(tmp_path / "m.gguf", "numpy", context=64, chunk=16)
    assert [answers(generator, prompt) for prompt in OTHERS] == expected
    batch = [list(answer.tokens) for answer in generator.generate_batch(OTHERS, max_tokens=12, n=2)]
    assert batch == [tokens for tokens in expected for _ in range(2)]
    with generator.scheduler(rows=4) as scheduler:
        submissions = [scheduler.submit(Request(prompt, max_tokens=12)) for prompt in (*OTHERS, PROMPT, *OTHERS)]
        served = [[piece.token for piece in submission.pieces()] for submission in submissions]
    assert [served[:4], served[5:]] == [expected, expected]


@pytest.mark.parametrize("name", [pytest.param("granitehybrid", marks=pytest.mark.slow), "lfm2"])
def test_states_continue_whole_prompts_only(name: str, tmp_path: Path) -> None:
    written(name, tmp_path / "m.gguf")
    generator = Generator.load(tmp_path / "m.gguf", "numpy", context=64)

    def fresh(prompt: list[int]) -> list[int]:
        return answers(Generator.load(tmp_path / "m.gguf", "numpy", context=64), prompt, 5)

    said = answers(generator, PROMPT, 5)
    followed = [*PROMPT, *said, 7, 8]
    assert answers(generator, followed, 5) == fresh(followed)
    assert generator.statistics.reused_tokens == len(PROMPT) + 4  # the last token of an answer is not run
    for prompt in (PROMPT, [*PROMPT, 9], followed[:-1], [5]):  # the states hold more tokens, or others
        assert answers(generator, prompt, 5) == fresh(prompt)
        assert generator.statistics.reused_tokens == 0
    iterator = generator.generate_tokens(PROMPT, max_tokens=9)
    begun = [next(iterator), next(iterator)]
    assert begun == said[:2]
    assert answers(generator, [*PROMPT, *begun, 9], 5) == fresh([*PROMPT, *begun, 9])
    assert generator.statistics.reused_tokens == len(PROMPT) + 2
    with pytest.raises(NotSupported, match=r"states of its Mamba or convolution layers cannot; omit draft"):
        Generator.load(tmp_path / "m.gguf", "numpy", context=64, draft="ngram")


def test_states_alone(tmp_path: Path) -> None:
    """Mamba-2 has no caches of keys and values: its memory does not depend on the context."""
    written("mamba2", tmp_path / "m.gguf")
    sizes = [Generator.load(tmp_path / "m.gguf", "numpy", context=context).memory.caches for context in (64, 4096)]
    rows, scan = 3 * (128 + 2 * 2 * 12), 8 * 16 * 12
    assert sizes == [2 * 3 * 4 * (rows + scan)] * 2
    generator = Generator.load(tmp_path / "m.gguf", "numpy", context=64)
    whole = generator.embed([PROMPT, PROMPT[:9]], pooling="last")
    np.testing.assert_allclose(whole[1], generator.embed(PROMPT[:9], pooling="last"), atol=1e-6)
    with pytest.raises(NotSupported, match="has no caches of keys and values, only states; omit cache_dtype"):
        Generator.load(tmp_path / "m.gguf", "numpy", cache_dtype="float16")
    with pytest.raises(InvalidArgument, match="draft must be a model with the same vocabulary"):
        written("qwen2", tmp_path / "q.gguf")
        Generator.load(tmp_path / "q.gguf", "numpy", draft=generator)
