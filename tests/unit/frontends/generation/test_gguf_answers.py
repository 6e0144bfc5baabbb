"""Answers of a GGUF file whose every token is followed by a known one: their text, with SentencePiece."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf: Any = pytest.importorskip("gguf", reason="GGUF files need the package gguf")

from gguf.constants import TokenType  # noqa: E402

from dmlgpu.common.errors import InvalidArgument  # noqa: E402
from dmlgpu.frontends.generation.generator import Generator  # noqa: E402
from dmlgpu.frontends.generation.gguf.tokenizer import TokenTypeWarning  # noqa: E402
from tests.unit.cli.cli_process import run_here  # noqa: E402

SPACE, LLAMA = "\u2581", "\N{LLAMA}"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, SPACE, f"{SPACE}the", "a", "b", "<|im_end|>", "<ctl>", "<u>"]
SIZE = 288
TEMPLATE = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"


def bytes_of(text: str) -> list[str]:
    return [BYTES[byte] for byte in text.encode()]


def generator_of(path: Path, answer: Sequence[str], *, end: TokenType = TokenType.CONTROL, prefix: bool = True) -> Any:
    """A model that continues ``a`` by an answer: attention and perceptron give 0, and logits are a table of tokens."""
    kinds = [TokenType.UNKNOWN, *2 * [TokenType.CONTROL], *256 * [TokenType.BYTE], *4 * [TokenType.NORMAL]]
    kinds += [end, TokenType.CONTROL, TokenType.USER_DEFINED]
    embeddings, output = np.zeros((2, len(TOKENS), SIZE), np.float32)
    embeddings[range(len(TOKENS)), range(len(TOKENS))] = 1
    for before, token in zip(["a", *answer], [*answer, "</s>"], strict=True):
        output[TOKENS.index(token), TOKENS.index(before)] = 10
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_embedding_length(SIZE)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_scores([-float(index) for index in range(len(TOKENS))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(prefix)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(SIZE, np.float32))
    shapes = {"attn_q": (32, SIZE), "attn_k": (16, SIZE), "attn_v": (16, SIZE), "attn_output": (SIZE, 32)}
    shapes |= {"ffn_gate": (32, SIZE), "ffn_up": (32, SIZE), "ffn_down": (SIZE, 32)}
    shapes |= {"attn_norm": (SIZE,), "ffn_norm": (SIZE,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Generator.load(path, "numpy")


ANSWERS = (
    ([SPACE, *bytes_of(LLAMA), f"{SPACE}the"], f" {LLAMA} the"),
    (["<unk>", f"{SPACE}the", "<ctl>", *bytes_of(LLAMA), "b"], f" the{LLAMA}b"),
    ([*bytes_of(LLAMA)[:2], "<ctl>", *bytes_of(LLAMA)[2:], "<u>", BYTES[0xFF]], f"{LLAMA}<u>\N{REPLACEMENT CHARACTER}"),
    ([*bytes_of("\n"), SPACE, "b", *bytes_of("\u6b6a")], "\n b\u6b6a"),
)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [True, False])
def test_answers_continue_the_prompt(prefix: bool, tmp_path: Path) -> None:
    """Answers equal llama.cpp's output, including spaces and complete characters after any tokens."""
    for index, (answer, text) in enumerate(ANSWERS if prefix else ANSWERS[:1]):
        generator = generator_of(tmp_path / f"{index}.gguf", answer, prefix=prefix)
        assert "".join(generator.generate("a")) == text, answer
        completions = generator.generate_batch(["a", "ba"])
        assert [completion.text for completion in completions] == [text, text], answer
    assert "".join(generator.chat([{"role": "b", "content": "a"}])) == text
    assert "".join(generator.generate("a", stop=text[-2:])) == text[:-2]


def test_messages_name_what_helps(tmp_path: Path) -> None:
    generator_of(tmp_path / "m.gguf", ["b"])
    short = Generator.load(tmp_path / "m.gguf", "numpy", context=8)
    cure = (
        r"must have at most 7 tokens for a context of 8, got 9; pass a longer context \(.* -c .*; the model allows 64\)"
    )
    with pytest.raises(InvalidArgument, match=cure):
        short.generate([5] * 9)
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "bare.gguf").write_bytes(data.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenX", 1))
    with pytest.raises(InvalidArgument, match=r"has no tokenizer; pass a list of token ids, .* GGUF file with a tok"):
        Generator.load(tmp_path / "bare.gguf", "numpy").generate("a")


def test_files_are_recognized_by_their_first_bytes(tmp_path: Path) -> None:
    """Ollama names its files by their hashes."""
    expected = "".join(generator_of(tmp_path / "m.gguf", ["b", "a"]).generate("a", max_tokens=4))
    blob = (tmp_path / "m.gguf").rename(tmp_path / "sha256-74a4")
    assert "".join(Generator.load(blob, "numpy").generate("a", max_tokens=4)) == expected
    assert "chat template" in run_here("show", blob, "--adapter", "numpy").stdout
    assert f"dmlgpu generate {blob}" in run_here("run", blob).stderr
    other = tmp_path / "sha256-0"
    other.write_bytes(b"PK\3\4")
    with pytest.raises(InvalidArgument, match="or a GGUF file, got the file"):
        Generator.load(other, "numpy")


def test_sampling_options_are_read_from_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = gguf.GGUFWriter.write_header_to_file

    def hinted(writer: Any) -> None:
        writer.add_sampling_temp(0.5)
        writer.add_sampling_top_k(20)
        writer.add_sampling_penalty_repeat(-1.0)
        close(writer)

    assert generator_of(tmp_path / "plain.gguf", ["b"]).model.sampling == {}
    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", hinted)
    assert generator_of(tmp_path / "m.gguf", ["b"]).sampling_defaults == {"temperature": 0.5, "top_k": 20}


@pytest.mark.parametrize("end", [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.NORMAL])
def test_answers_end_at_tokens_of_any_type(end: TokenType, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TokenTypeWarning)
        generator = generator_of(tmp_path / "m.gguf", ["b", "<|im_end|>", f"{SPACE}the"], end=end)
    assert "".join(generator.generate("a")) == "b"
    assert generator.answers == [[TOKENS.index("b"), TOKENS.index("<|im_end|>")]]
