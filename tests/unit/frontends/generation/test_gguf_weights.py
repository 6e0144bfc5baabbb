"""Blocks of GGUF files repacked for MatMulNBits, against the package gguf's own dequantization."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

gguf: Any = pytest.importorskip("gguf", reason="GGUF files need the package gguf")

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from dmlgpu.common.errors import NotSupported  # noqa: E402
from dmlgpu.frontends.generation.gguf.files import GgufTensor  # noqa: E402
from dmlgpu.frontends.generation.gguf.weights import (  # noqa: E402
    PACKINGS,
    PackedWeight,
    check_supported,
    floats,
    packed,
    words,
)
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray  # noqa: E402
from tests.gguf_models import random_blocks  # noqa: E402

ROWS, INNER = 6, 512


def tensor_of(kind: GGMLQuantizationType, raw: NDArray[np.uint8] | None = None) -> GgufTensor:
    raw = random_blocks(kind, ROWS, INNER) if raw is None else raw
    return GgufTensor("blk.0.ffn_up.weight", kind, (len(raw), INNER), raw)


def codes_of(weight: PackedWeight) -> NDArray[np.float32]:
    """The codes {rows, groups, block}."""
    codes = np.asarray(weight.codes)
    if weight.bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1)
    return codes.reshape(*weight.scales.shape, weight.block).astype(np.float32)


def dequantized(weight: PackedWeight) -> NDArray[np.float32]:
    middle = np.full(weight.scales.shape, 1 << weight.bits - 1)
    zero = middle if weight.zero_points is None else np.asarray(weight.zero_points)
    scale = np.asarray(weight.scales).astype(np.float32)
    return np.asarray((codes_of(weight) - zero[..., None].astype(np.float32)) * scale[..., None]).reshape(ROWS, INNER)


def expected_of(tensor: GgufTensor) -> NDArray[np.float32]:
    """The elements of a tensor by the package gguf, which does not dequantize Q8_K: a float32, then 256 integers."""
    if tensor.kind is not GGMLQuantizationType.Q8_K:
        return np.asarray(gguf.quants.dequantize(tensor.data, tensor.kind))
    blocks = tensor.data.reshape(-1, 292)
    scales = np.ascontiguousarray(blocks[:, :4]).view(np.float32)
    return np.asarray(scales * blocks[:, 4:260].view(np.int8)).reshape(ROWS, INNER)


@pytest.mark.parametrize("kind", PACKINGS, ids=lambda kind: kind.name)
def test_packed(kind: GGMLQuantizationType) -> None:
    tensor = tensor_of(kind)
    expected = expected_of(tensor)
    largest = np.abs(expected).max()
    exact = packed(tensor, np.float32)
    if exact.zero_points is None:
        np.testing.assert_array_equal(dequantized(exact), expected)
    else:
        np.testing.assert_allclose(dequantized(exact), expected, rtol=0, atol=3e-7 * largest)
    np.testing.assert_allclose(dequantized(packed(tensor, np.float16)), expected, rtol=0, atol=2e-3 * largest)
    assert exact.nbytes == sum(
        np.asarray(part).nbytes for part in (exact.codes, exact.scales, exact.zero_points) if part is not None
    )


@pytest.mark.parametrize("name", ["Q4_K", "IQ3_S", "MXFP4", "NVFP4"])
def test_matrices_of_experts(name: str) -> None:
    """Floats of 4 bits stay codes of 4 bits: positions among the values."""
    kind = GGMLQuantizationType[name]
    raw = random_blocks(kind, ROWS, INNER)
    tensor = GgufTensor("blk.0.ffn_up_exps.weight", kind, (2, ROWS // 2, INNER), raw)
    weight = packed(tensor, np.float32)
    assert weight.bits == 4 and weight.codes.shape[:2] == (2, ROWS // 2)
    assert weight.is_e2m1 == name.endswith("FP4")
    codes, scales = codes_of(weight), np.asarray(weight.scales)[..., None]
    if weight.is_e2m1:
        values = np.array([0, 1, 2, 3, 4, 6, 8, 12])[np.abs(codes - 8).astype(int)] * np.sign(codes - 8) * scales
    else:
        values = (codes - np.asarray(weight.zero_points)[..., None]) * scales
    expected = gguf.quants.dequantize(raw, kind)
    np.testing.assert_allclose(values.reshape(ROWS, INNER), expected, rtol=0, atol=3e-7 * np.abs(expected).max())
    np.testing.assert_array_equal(
        np.asarray(words(weight.codes)).view(np.uint8).ravel(), np.asarray(weight.codes).ravel()
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_blocks_without_a_scale(dtype: type) -> None:
    """A scale of 0 leaves the minimum, which no zero point can express."""
    raw = random_blocks(GGMLQuantizationType.Q4_1, ROWS, INNER)
    blocks = raw.reshape(ROWS, -1, 20)
    blocks[0, :, :2] = 0
    blocks[1, :, :2] = np.frombuffer(np.float16(6e-8).tobytes(), np.uint8)
    tensor = tensor_of(GGMLQuantizationType.Q4_1, raw)
    expected = gguf.quants.dequantize(raw, tensor.kind)
    assert (expected[0] > 0.4).all()
    np.testing.assert_allclose(dequantized(packed(tensor, dtype)), expected, rtol=0, atol=2e-3)


def test_scales_that_are_no_numbers() -> None:
    """Random bytes as scales give no warnings."""
    raw = np.full_like(random_blocks(GGMLQuantizationType.Q4_K, ROWS, INNER), 0xFF)
    weight = packed(tensor_of(GGMLQuantizationType.Q4_K, raw), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(np.asarray(weight.scales)).all()
        assert np.asarray(weight.zero_points).shape == weight.scales.shape


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("shape", [(5, 8), (40,), (2, 3, 8)])
def test_floats(kind: str, shape: tuple[int, ...]) -> None:
    stored = GGMLQuantizationType[kind]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    raw = gguf.quants.quantize(values, stored)
    expected = gguf.quants.dequantize(raw, stored)
    data = np.ascontiguousarray(raw).view(np.uint8).reshape(int(np.prod(shape[:-1])), -1)
    array = floats(GgufTensor("norm", stored, shape, data), np.float32)
    reduced = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}
    assert array.dtype == (reduced.get(kind, np.float32) if len(shape) > 1 else np.float32)
    np.testing.assert_array_equal(np.asarray(array).astype(np.float32), expected.reshape(shape))
    for whole, piece in zip(np.array_split(np.asarray(array), 3), array.pieces(3), strict=True):
        np.testing.assert_array_equal(np.asarray(piece), whole)


def test_rows_are_computed_in_pieces() -> None:
    """The host needs memory for few rows besides the result."""
    spans: list[slice] = []

    def rows(span: slice) -> NDArray[np.float32]:
        spans.append(span)
        return np.arange(span.start, span.stop, dtype=np.float32)[:, None]

    array = DeferredArray((10, 1), np.float32, rows, 1 << 20)
    np.testing.assert_array_equal(np.asarray(array)[:, 0], np.arange(10))
    assert [span.stop - span.start for span in spans] == [4, 4, 2]
    second = array.pieces(2)[1]
    np.testing.assert_array_equal(np.asarray(second)[:, 0], np.arange(5, 10))


def test_unsupported_quantizations_are_named() -> None:
    kind = GGMLQuantizationType.Q8_1  # activations of llama.cpp, never in files
    raw = np.zeros((1, GGML_QUANT_SIZES[kind][1] * 16), np.uint8)
    tensor = GgufTensor("blk.0.ffn_up.weight", kind, (1, 512), raw)
    text = (
        r"model 'm.gguf': tensor 'blk.0.ffn_up.weight' \(Q8_1, \[1, 512\]\) is not supported: its type must be one "
        "of F32, F16, BF16, Q4_0, "
    )
    with pytest.raises(NotSupported, match=f"{text}.*; download another quantization of the model, such as Q4_K_M, or"):
        check_supported(tensor, Path("m.gguf").name)
