"""Networks of GGUF files, against a NumPy decoder on the package gguf's dequantization, and against onnxruntime."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

pytest.importorskip("gguf", reason="GGUF files need the package gguf")

from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType as Kind

from dmlgpu.cli.generate import show_language_model
from dmlgpu.common.errors import InvalidArgument, ModelError, NotSupported
from dmlgpu.frontends.generation import gguf
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.gguf.architectures import network_config
from dmlgpu.frontends.generation.gguf.files import read_file
from dmlgpu.frontends.generation.language_model import LanguageModel
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.device import as_device
from tests.gguf_models import NumpyDecoder, network_inputs, write_quantized
from tests.recorded_logits import recorded_logits

TOKENS = np.random.default_rng(1).integers(0, 48, 20)
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
ARCHITECTURES: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"rope.freq_base": 1e6},
    "qwen3": {},
    "phi3": {"attention.sliding_window": 6},
    "gemma": {},
    "gemma2": {"attention.sliding_window": 6, **CAPS},
    "gemma3": {"attention.sliding_window": 6, "rope.freq_base": 1e6},
}
MIXED = {
    "token_embd": Kind.Q4_K,
    "output": Kind.Q6_K,
    "attn_q": Kind.Q4_K,
    "attn_k": Kind.Q5_K,
    "attn_v": Kind.Q6_K,
    "attn_qkv": Kind.Q4_K,
    "attn_output": Kind.Q8_0,
    "ffn_gate": Kind.Q4_0,
    "ffn_up": Kind.Q5_1,
    "ffn_down": Kind.BF16,
}


def logits_of(model: LanguageModel, tokens: NDArray[np.int64] = TOKENS) -> NDArray[np.float32]:
    session = Session(read(model.network, external=model.weights), as_device("test", "numpy"))
    return session.run(network_inputs(model, tokens), ["logits"])["logits"][0]


def embedded(model: LanguageModel) -> ModelProto:
    """The network with its weights, as onnxruntime reads it."""
    proto = ModelProto()
    proto.CopyFrom(model.network)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(model.weights[tensor.name].array), tensor.name))
    return proto


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    layers = 6 if arch == "gemma3" else 2
    write_quantized(path, arch, MIXED, layers=layers, tied=arch.startswith("gemma"), metadata=ARCHITECTURES[arch])
    model = gguf.read(path)
    expected = NumpyDecoder(path).logits(TOKENS)
    assert expected.std() > 0.3
    np.testing.assert_allclose(logits_of(model), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "block"), [("llama", None), ("llama", 8), ("qwen3", None), ("gemma2", None)])
def test_caches_of_8_bits_err_by_their_rounding(arch: str, block: int | None, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, arch, MIXED, layers=2, tied=arch == "gemma2", metadata=ARCHITECTURES[arch])
    generator = Generator.load(path, "numpy", context=32, chunk=16, cache_dtype="int8", cache_block=block)
    with recorded_logits() as steps:
        list(generator.generate_tokens(TOKENS, max_tokens=1))
    size = block or generator.model.config.head_size
    exact, rounded = (NumpyDecoder(path, rounding).logits(TOKENS)[-1] for rounding in (None, size))
    error = np.abs(rounded - exact).max()
    assert 0 < error < 0.05 * np.abs(exact).max()
    np.testing.assert_allclose(steps[0][0], rounded, rtol=0, atol=0.2 * error)


MATRICES = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


KINDS = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K IQ1_S IQ2_XXS IQ2_S IQ3_S TQ2_0 MXFP4"


@pytest.mark.parametrize("kind", KINDS.split())
def test_quantizations(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", dict.fromkeys(MATRICES, Kind[kind]), layers=1)
    model = gguf.read(path)
    expected = NumpyDecoder(path).logits(TOKENS)
    np.testing.assert_allclose(logits_of(model), expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    products = [node.op_type for node in model.network.graph.node if node.op_type.startswith("MatMul")]  # type: ignore[union-attr]
    assert products == ["MatMul" if kind in ("F32", "F16", "BF16") else "MatMulNBits"] * 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F16", "Q4_0", "Q8_0", "Q4_K", "Q6_K"])
def test_greedy_tokens_of_quantizations(kind: str, tmp_path: Path) -> None:
    """Each of 100 tokens is the most likely one after those before it."""
    path, prompt = tmp_path / "model.gguf", list(map(int, TOKENS[:20]))
    write_quantized(path, "llama", dict.fromkeys(MATRICES, Kind[kind]), layers=1, context=128)
    tokens = list(Generator.load(path, "numpy").generate_tokens(prompt, max_tokens=100))
    expected = NumpyDecoder(path).logits(np.array([*prompt, *tokens[:-1]]))[len(prompt) - 1 :].argmax(1)
    assert tokens == expected.tolist() and len(tokens) == 100


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
def test_float16(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, arch, MIXED, metadata=ARCHITECTURES[arch])
    expected = NumpyDecoder(path).logits(TOKENS)
    result = logits_of(gguf.read(path, dtype="float16"))
    np.testing.assert_allclose(result, expected, rtol=0, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_onnxruntime_agrees(arch: str, tmp_path: Path) -> None:
    """The network is one that onnxruntime runs; its CPU provider has no zero points of floats for 8 bits."""
    path = tmp_path / "model.gguf"
    kinds = {**MIXED, "attn_k": Kind.Q5_0, "ffn_up": Kind.Q4_1}
    write_quantized(path, arch, kinds, metadata=ARCHITECTURES[arch])
    model = gguf.read(path)
    other = onnxruntime.InferenceSession(embedded(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = other.run(["logits"], network_inputs(model, TOKENS))
    np.testing.assert_allclose(logits_of(model), expected[0], rtol=0, atol=2e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_caches_continue_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "gemma3", MIXED, layers=6, metadata=ARCHITECTURES["gemma3"])
    model = gguf.read(path)
    session = Session(read(model.network, external=model.weights), as_device("test", "numpy"))
    inputs = network_inputs(model, TOKENS[:12])
    results = session.run(inputs)
    for index in range(12, 20):
        mask = (np.arange(32) <= index).astype(np.int64)[None]
        presents = {name.replace("present", "past_key_values"): results[name] for name in results if "present" in name}
        results = session.run({"input_ids": TOKENS[None, index : index + 1], "attention_mask": mask, **presents})
    expected = NumpyDecoder(path).logits(TOKENS)
    np.testing.assert_allclose(results["logits"][0, 0], expected[-1], rtol=0, atol=2e-5 * np.abs(expected).max())


def test_stored_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", MIXED, layers=1)
    rows = {row.kind: str(row) for row in gguf.stored_weights(path)}
    assert rows["Q4_K"] == "Q4_K: 2 tensors, 4.50 bits per weight in the file, 6.00 as 4 bits in blocks of 32"
    assert rows["Q6_K"] == "Q6_K: 2 tensors, 6.56 bits per weight in the file, 10.00 as 8 bits in blocks of 16"
    assert rows["BF16"] == "BF16: 1 tensor, 16.00 bits per weight in the file, 16.00 as bfloat16"
    halves = {row.kind: row for row in gguf.stored_weights(path, dtype=np.float16)}
    assert 8 * halves["Q4_K"].device_bytes == 5 * halves["Q4_K"].elements


# ---- bad files


def changed(tmp_path: Path, edit: Any, arch: str = "llama", **options: Any) -> Path:
    """A file whose tensors or metadata are edited while they are written."""
    path = tmp_path / "bad.gguf"
    methods = GGUFWriter.add_tensor, GGUFWriter.add_key_value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GGUFWriter, "add_tensor", lambda *args, **keys: edit("tensor", methods[0], args, keys))
        patch.setattr(GGUFWriter, "add_key_value", lambda *args, **keys: edit("key", methods[1], args, keys))
        write_quantized(path, arch, {}, layers=1, **options)
    return path


def without(name: str) -> Any:
    def edit(_: str, write: Any, args: tuple[Any, ...], keys: dict[str, Any]) -> None:
        if args[1] != name:
            write(*args, **keys)

    return edit


def replaced(name: str, value: Any) -> Any:
    def edit(_: str, write: Any, args: tuple[Any, ...], keys: dict[str, Any]) -> None:
        write(*((*args[:2], value, *args[3:]) if args[1] == name else args), **keys)

    return edit


def added(name: str) -> Any:
    def edit(what: str, write: Any, args: tuple[Any, ...], keys: dict[str, Any]) -> None:
        if what == "tensor" and args[1] == "output_norm.weight":
            write(args[0], name, np.zeros(4, np.float32))
        write(*args, **keys)

    return edit


BAD: list[tuple[Any, type[Exception], str]] = [
    (without("blk.0.attn_q.weight"), ModelError, r"tensor 'blk.0.attn_q.weight' with shape \[256, 256\] is missing"),
    (without("token_embd.weight"), ModelError, "tensor 'token_embd.weight' is missing"),
    (
        replaced("blk.0.attn_k.weight", np.zeros((64, 256), np.float32)),
        ModelError,
        r"tensor 'blk.0.attn_k.weight' \(F32, \[64, 256\]\) must have shape \[128, 256\]",
    ),
    (
        added("blk.0.ssm_a.weight"),
        NotSupported,
        "model 'bad.gguf': tensors are not part of architecture llama: 'blk.0.ssm_a.weight'",
    ),
    (
        replaced("general.architecture", "mamba"),
        NotSupported,
        "architecture 'mamba' is not supported: it must be one of",
    ),
    (without("llama.block_count"), ModelError, "metadata llama.block_count are missing"),
    (replaced("llama.block_count", 2**31), ModelError, "llama.block_count must be an integer from 1 to 1024, got"),
    (replaced("llama.context_length", 2**31), ModelError, "llama.context_length must be an integer from 1 to 16777216"),
    (replaced("llama.attention.head_count_kv", 3), ModelError, "heads must be a multiple of key-value heads"),
    (replaced("llama.feed_forward_length", 2**30), ModelError, r"must have shape \[1073741824, 256\]"),
    (replaced("llama.attention.value_length", 32), NotSupported, "heads of keys and values must have equal sizes"),
    (replaced("llama.attention.layer_norm_rms_epsilon", float("nan")), ModelError, "must be a finite number, got nan"),
]


@pytest.mark.parametrize(("edit", "error", "text"), BAD)
def test_bad_files(edit: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    path = changed(tmp_path, edit)
    with pytest.raises(error, match=text):
        gguf.read(path)


@pytest.mark.parametrize(
    ("metadata", "error", "text"),
    [
        ({"expert_count": 8}, ModelError, "metadata llama.expert_used_count are missing"),
        ({"expert_count": 8, "expert_used_count": 9}, ModelError, "expert_used_count must be an integer from 1 to 8"),
        (
            {"expert_count": 8, "expert_used_count": 2, "expert_gating_func": 2},
            NotSupported,
            r"llama.expert_gating_func must be 1 \(softmax\), got 2",
        ),
        ({"rope.dimension_count": 66}, ModelError, "must be even and at most the head size 64, got 66"),
        ({"rope.freq_base": 0.5}, ModelError, "llama.rope.freq_base must exceed 1"),
        ({"rope.scaling.type": "ntk"}, NotSupported, "must be none, linear, yarn or longrope, got 'ntk'"),
        ({"attention.head_count_kv": [2, 1]}, NotSupported, "head_count_kv must be equal for all layers"),
    ],
)
def test_bad_metadata(metadata: dict[str, Any], error: type[Exception], text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GGUFWriter, "add_head_count_kv", lambda *_: None)
        write_quantized(path, "llama", {}, layers=1, metadata={"attention.head_count_kv": 2, **metadata})
    with pytest.raises(error, match=text):
        gguf.read(path)


@pytest.mark.parametrize(("arch", "layers"), [("gemma2", 46), ("gemma3", 62), ("gemma3", 26)])
def test_largest_gemma_scales_attention_otherwise(arch: str, layers: int, tmp_path: Path) -> None:
    """By hidden size per head, 168 in Gemma 3 27B, not by head size; windows as the architecture has them."""
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, arch)
    sizes = {"context_length": 64, "block_count": layers, "embedding_length": 256, "feed_forward_length": 8}
    for name, value in {**sizes, "attention.head_count": 8, "attention.key_length": 64}.items():
        writer.add_uint32(f"{arch}.{name}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(16)
    writer.add_tensor("token_embd.weight", np.zeros((4, 256), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = network_config(read_file(path))
    assert config.scale == pytest.approx((32 if layers > 26 else 64) ** -0.5)
    period = {"gemma2": 2, "gemma3": 6}[arch]
    assert config.windows[: period + 1] == (*(period - 1) * (16,), 0, 16)


def test_arguments(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", {}, layers=1)
    with pytest.raises(InvalidArgument, match="context must be an integer from 1 to 64, got 65"):
        gguf.read(path, context=65)
    with pytest.raises(InvalidArgument, match="dtype must be float32 or float16, got 'float64'"):
        gguf.read(path, dtype="float64")
    assert gguf.read(path, context=16).config.context_length == 16


def test_contexts_share_the_network(tmp_path: Path) -> None:
    """Plans on disk are found by the network, so another context should not change it."""
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", {}, layers=1, context=20_000)
    models = {context: gguf.read(path, context=context) for context in (33, 512, 4096, 4097, 8192, 8193, 20_000)}
    rows = {context: model.weights["cos_cache"].shape[0] for context, model in models.items()}
    assert rows == {33: 4096, 512: 4096, 4096: 4096, 4097: 8192, 8192: 8192, 8193: 16_384, 20_000: 20_000}
    networks = [models[context].network.SerializeToString() for context in (33, 4096)]  # type: ignore[union-attr]
    assert networks[0] == networks[1]


def test_long_contexts_take_no_memory_unless_they_are_used(tmp_path: Path) -> None:
    sizes = []
    for trained in (4096, 1 << 24):
        path = tmp_path / f"{trained}.gguf"
        write_quantized(path, "llama", {}, layers=1, metadata={"rope.freq_base": 1e4})
        content = path.read_bytes()
        at = content.index(b"llama.context_length") + len(b"llama.context_length") + 4
        path.write_bytes(content[:at] + trained.to_bytes(4, "little") + content[at + 4 :])
        generator = Generator.load(path, "numpy")
        assert generator.model.config.context_length == trained
        sizes.append(generator.memory.total)
    assert sizes[0] == sizes[1]


def test_weights_are_not_read_with_the_header(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", MIXED)
    tracemalloc.start()
    gguf.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", MIXED, layers=1)
    show_language_model(path, "numpy", as_text=True)
    lines = capsys.readouterr().out.splitlines()
    assert "Q4_K: 2 tensors, 4.50 bits per weight in the file, 6.00 as 4 bits in blocks of 32" in lines
    show_language_model(path, "numpy", as_text=False)
    (row,) = [row for row in json.loads(capsys.readouterr().out)["weights"] if row["kind"] == "Q6_K"]
    assert (row["count"], row["stored"]) == (2, "8 bits in blocks of 16")
