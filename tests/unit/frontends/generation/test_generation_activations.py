"""8-bit activations: logits against onnxruntime's accuracy level 4 and a NumPy decoder, and the loss of accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.frontends.generation.generator import Generator
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of
from tests.recorded_logits import recorded_logits

STEPS = 12


def with_level(folder: Path, level: int) -> Path:
    """Set the accuracy level of all products of a model."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(helper.make_attribute("accuracy_level", level))
    onnx.save(model, folder / "model.onnx")
    return folder


def logits_of(folder: Path, prompt: list[int], tokens: list[int], **options: Any) -> list[NDArray[np.float32]]:
    """Return the logits after a prompt, and after each of the tokens that follow."""
    generator = Generator.load(folder, ADAPTER, **options)
    rows = []
    for count in range(len(tokens) + 1):
        with recorded_logits() as steps:
            next(iter(generator.generate_tokens(prompt + tokens[:count], max_tokens=1)))
        rows += [logits[0] for logits in steps]
    return rows


def surprise(rows: list[NDArray[np.float32]], tokens: list[int]) -> float:
    """Return the mean of -log(probability) of tokens, the logarithm of their perplexity."""
    scores = np.array(rows, np.float64)
    scores -= scores.max(-1, keepdims=True)
    taken = scores[np.arange(len(tokens)), tokens]
    return float((np.log(np.exp(scores).sum(-1)) - taken).mean())


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Logits by onnxruntime with integers, and by dmlgpu with integers and with floats."""
    folder = with_level(folder_of(tmp_path_factory.mktemp("models")), 4)
    prompt = prompt_of(20)
    expected = Expected(folder).logits(prompt, STEPS)
    tokens = [int(row.argmax()) for row in expected]
    yield {
        "tokens": tokens,
        "expected": expected,
        "int8": logits_of(folder, prompt, tokens[:-1], activation_dtype="int8"),
        "float32": logits_of(folder, prompt, tokens[:-1]),
    }


@pytest.mark.slow
def test_logits_equal_those_of_onnxruntime(scores: dict[str, Any]) -> None:
    """Both round the same way; a quotient near a tie may be rounded to either side."""
    expected, rounded, exact = (np.array(scores[name]) for name in ("expected", "int8", "float32"))
    error = np.abs(exact - expected).max()
    assert error > 0.01 * np.abs(expected).max()
    np.testing.assert_allclose(rounded, expected, rtol=0, atol=0.2 * error)


def test_tokens_are_about_as_likely_as_with_floats(scores: dict[str, Any]) -> None:
    rounded, exact = (surprise(scores[name], scores["tokens"]) for name in ("int8", "float32"))
    assert rounded != exact and abs(rounded - exact) < 0.05


@pytest.mark.parametrize("dtype", ["int16", "float16", 3.5])
def test_activations_are_of_few_types(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^model 'tiny': activation_dtype must be int8, got "):
        Generator.load(folder_of(tmp_path), ADAPTER, activation_dtype=dtype)


def test_products_that_need_floats_keep_them(tmp_path: Path) -> None:
    folder = with_level(folder_of(tmp_path), 1)
    with pytest.raises(NotSupported, match="needs a network with MatMulNBits of accuracy_level 0 or 4, got none"):
        Generator.load(folder, ADAPTER, activation_dtype="int8")


@pytest.mark.slow
def test_the_products_of_gguf_files(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="GGUF files need the package gguf")
    from gguf.constants import GGMLQuantizationType as Kind

    from tests.gguf_models import NumpyDecoder, write_quantized

    kinds = {"attn_q": Kind.Q4_K, "attn_k": Kind.Q5_K, "attn_v": Kind.Q6_K, "attn_output": Kind.Q8_0}
    kinds |= {"ffn_gate": Kind.Q4_0, "ffn_up": Kind.Q5_1, "ffn_down": Kind.F16, "output": Kind.Q4_1}

    class Rounded(NumpyDecoder):
        """A decoder that rounds the rows of products with quantized weights."""

        def product(self, x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
            kind = kinds[name.rpartition(".")[2]]
            if kind is Kind.F16:
                return super().product(x, name)
            parts = x.reshape(len(x), -1, 16 if kind is Kind.Q6_K else 32)
            scale = np.abs(parts).max(-1, keepdims=True) / 127
            return super().product((np.rint(parts / scale) * scale).reshape(x.shape), name)

    path, tokens = tmp_path / "model.gguf", np.random.default_rng(1).integers(0, 48, 20)
    write_quantized(path, "llama", kinds, layers=2)
    generator = Generator.load(path, "numpy", context=32, chunk=16, activation_dtype="int8")
    with recorded_logits() as steps:
        list(generator.generate_tokens(tokens, max_tokens=1))
    exact, rounded = (decoder(path).logits(tokens)[-1] for decoder in (NumpyDecoder, Rounded))
    error = np.abs(rounded - exact).max()
    assert 0 < error < 0.1 * np.abs(exact).max()
    np.testing.assert_allclose(steps[0][0], rounded, rtol=0, atol=0.2 * error)


def test_the_command_line_has_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dmlgpu.cli.main import main

    folder = folder_of(tmp_path)
    arguments = ["generate", str(folder), "--prompt", "the", "--max-tokens", "2", "--adapter", ADAPTER]
    assert main([*arguments, "--activation-dtype", "int16"]) == 2
    assert "activation_dtype must be int8, got 'int16'" in capsys.readouterr().err
    assert main([*arguments, "--activation-dtype", "int8", "--context", str(SIZES.context)]) == 0
