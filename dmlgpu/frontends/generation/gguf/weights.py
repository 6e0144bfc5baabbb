"""Quantized blocks of GGUF files, repacked for MatMulNBits: codes of 4 or 8 bits, scales, and zero points.

A weight is (code - zero point) * scale, where 16 or 32 codes along a row share a scale. Codes are those of the file, or
less by a constant, so repacking loses nothing; scales and zero points are products and quotients of the file's numbers,
rounded once. Every array is a DeferredArray: rows are repacked when they are uploaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import DTypeLike, NDArray

from dmlgpu.catalog.enums import BFLOAT16
from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.generation.gguf import grids
from dmlgpu.frontends.generation.gguf.files import GgufTensor
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_MAX_RATIO = 2.0**15
"""Largest zero point in float16. Blocks beyond are constant up to its rounding."""

_NIBBLE = np.uint8(4)
"""Bits of half a byte, as uint8 so that shifted bytes stay bytes."""

_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""Values of the codes of IQ4_NL and IQ4_XS."""


@dataclass(frozen=True)
class Packing:
    """The repacking of a quantization. Functions take blocks {count, bytes}.

    Attributes:
        bits: Bits of a code.
        block: Number of codes that share a scale.
        codes: Returns the codes in the order of elements, {count, codes}.
        scales: Returns the scales {count, groups}.
        lows: Returns the values of code 0, {count, groups}; None if the zero point is half the range of codes.
        is_e2m1: Whether codes are positions of floats of 4 bits.
    """

    bits: int
    block: int
    codes: Callable[[Bytes], Bytes]
    scales: Callable[[Bytes], Floats]
    lows: Callable[[Bytes], Floats] | None = None
    is_e2m1: bool = False


@dataclass(frozen=True)
class PackedWeight:
    """A matrix {N, K} as MatMulNBits takes it, or matrices of experts {experts, N, K}.

    Attributes:
        bits, block: Attributes of the operator.
        codes: UINT8 {.., N, K / block, block * bits / 8}; of 4 bits, a code of even index is the low half of a byte.
        scales: {.., N, K / block}.
        zero_points: Like scales; None for half the range of codes.
        is_e2m1: Whether codes are positions of floats of 4 bits, as in ``ExpertMatMulNBits``.
    """

    bits: int
    block: int
    codes: DeferredArray
    scales: DeferredArray
    zero_points: DeferredArray | None
    is_e2m1: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        zero_points = 0 if self.zero_points is None else self.zero_points.nbytes
        return self.codes.nbytes + self.scales.nbytes + zero_points


# ---- fields of blocks ------------------------------------------------------------------------------------------------


def _half(blocks: Bytes, at: int) -> Floats:
    """Return the float16 at a byte of each block, {count, 1}."""
    return blocks.view("<f2")[:, at // 2, None].astype(np.float32)


def _fields(raw: Bytes, bits: int) -> Bytes:
    """Return the fields of bytes, the lowest of all bytes first: {..., bytes} to {..., 8 / bits, bytes}."""
    fields = np.empty((*raw.shape[:-1], 8 // bits, raw.shape[-1]), np.uint8)
    for index in range(8 // bits):
        np.right_shift(raw, np.uint8(index * bits), out=fields[..., index, :])
    fields &= np.uint8((1 << bits) - 1)
    return fields


def _flat(codes: Bytes) -> Bytes:
    return codes.reshape(len(codes), -1)


def _nibbles(start: int, blocks: Bytes) -> Bytes:
    """Return the 32 codes of 16 bytes: the low nibbles, then the high ones."""
    return _flat(_fields(blocks[:, start : start + 16], 4))


def _fifth_bits(start: int, blocks: Bytes) -> Bytes:
    """Return codes of 5 bits: 32 highest bits, then 16 bytes of lower ones."""
    high = np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little")
    return _nibbles(start + 4, blocks) | high << _NIBBLE


def _signed(codes: Callable[[Bytes], Bytes], zero: int, blocks: Bytes) -> Bytes:
    """Return codes with a zero point of 128."""
    return codes(blocks) + np.uint8(128 - zero)


# Superblocks of 256 elements (K). Their scales and minima have 6 bits each, in 12 bytes.


def _k_scales(blocks: Bytes) -> Bytes:
    """Return the scales and minima {count, 2, 8} of Q4_K and Q5_K, whose 12 bytes follow two float16."""
    first, second, third = (blocks[:, start : start + 4] for start in (4, 8, 12))
    low = np.stack([first & 63, second & 63], axis=1)
    high = np.stack([(third & 15) | (first >> 6) << _NIBBLE, third >> _NIBBLE | (second >> 6) << _NIBBLE], axis=1)
    return np.concatenate([low, high], axis=2)


def _k_scale(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _k_scales(blocks)[:, 0]


def _k_low(blocks: Bytes) -> Floats:
    return -_half(blocks, 2) * _k_scales(blocks)[:, 1]


def _k_nibbles(start: int, blocks: Bytes) -> Bytes:
    """Return 256 codes of 128 bytes: of each 32 bytes, the low nibbles, then the high ones."""
    return _flat(_fields(blocks[:, start : start + 128].reshape(-1, 4, 32), 4))


def _q5_k(blocks: Bytes) -> Bytes:
    return _k_nibbles(48, blocks) | _flat(_fields(blocks[:, 16:48], 1)) << _NIBBLE


def _q6_k(blocks: Bytes) -> Bytes:
    low = _fields(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 256)
    return low | _flat(_fields(blocks[:, 128:192].reshape(-1, 2, 32), 2)) << _NIBBLE


def _q6_k_scale(blocks: Bytes) -> Floats:
    return _half(blocks, 208) * blocks[:, 192:208].view(np.int8)


def _two_bits(start: int, blocks: Bytes) -> Bytes:
    """Return 256 codes of 2 bits: of each 32 bytes, the lowest two bits of all first."""
    return _flat(_fields(blocks[:, start : start + 64].reshape(-1, 2, 32), 2))


def _q3_k(blocks: Bytes) -> Bytes:
    """Return codes with a zero point of 8: two bits each, less 4 where a bit is 0."""
    return _two_bits(32, blocks) + (_flat(_fields(blocks[:, :32], 1)) << 2) + np.uint8(4)


def _q3_k_scale(blocks: Bytes) -> Floats:
    """Return scales of 6 bits less 32: 16 low nibbles in 8 bytes, then the higher two bits in 4."""
    low, high = _fields(blocks[:, 96:104], 4), _fields(blocks[:, 104:108], 2)
    return _half(blocks, 108) * ((_flat(low) | _flat(high) << _NIBBLE).astype(np.float32) - 32)


def _looked_up(codes: Callable[[Bytes], Bytes], blocks: Bytes) -> Bytes:
    """Return the values of codes of a table, plus 128."""
    return (_NON_LINEAR.view(np.uint8) + np.uint8(128))[codes(blocks)]


def _iq4_xs_codes(blocks: Bytes) -> Bytes:
    """Return 256 codes of 128 bytes: of each 16 bytes, the low nibbles, then the high ones."""
    return _flat(_fields(blocks[:, 8:136].reshape(-1, 8, 16), 4))


def _iq4_xs_scale(blocks: Bytes) -> Floats:
    """Return scales of 6 bits less 32: the higher two bits of 8 in 2 bytes, then the low nibbles in 4."""
    low = _flat(_fields(blocks[:, 4:8], 4).swapaxes(1, 2))
    high = _flat(_fields(blocks[:, 2:4], 2).swapaxes(1, 2))
    return _half(blocks, 0) * ((low | high << _NIBBLE).astype(np.float32) - 32)


def _lows(zero: float, scales: Callable[[Bytes], Floats]) -> Callable[[Bytes], Floats]:
    """Return a function that returns the values of code 0, for a zero point that is no integer."""
    return lambda blocks: np.float32(-zero) * scales(blocks)


_Kind = GGMLQuantizationType
_D, _M = partial(_half, at=0), partial(_half, at=2)

PACKINGS: Mapping[GGMLQuantizationType, Packing] = {
    _Kind.Q4_0: Packing(4, 32, partial(_nibbles, 2), _D),
    _Kind.Q4_1: Packing(4, 32, partial(_nibbles, 4), _D, _M),
    _Kind.Q5_0: Packing(8, 32, partial(_signed, partial(_fifth_bits, 2), 16), _D),
    _Kind.Q5_1: Packing(8, 32, partial(_fifth_bits, 4), _D, _M),
    _Kind.Q8_0: Packing(8, 32, partial(_signed, lambda blocks: blocks[:, 2:], 0), _D),
    _Kind.Q2_K: Packing(
        4,
        16,
        partial(_two_bits, 16),
        lambda blocks: _half(blocks, 80) * (blocks[:, :16] & 15),
        lambda blocks: -_half(blocks, 82) * (blocks[:, :16] >> _NIBBLE),
    ),
    _Kind.Q3_K: Packing(4, 16, _q3_k, _q3_k_scale),
    _Kind.Q4_K: Packing(4, 32, partial(_k_nibbles, 16), _k_scale, _k_low),
    _Kind.Q5_K: Packing(8, 32, _q5_k, _k_scale, _k_low),
    _Kind.Q6_K: Packing(8, 16, partial(_signed, _q6_k, 32), _q6_k_scale),
    _Kind.IQ4_NL: Packing(8, 32, partial(_looked_up, partial(_nibbles, 2)), _D),
    _Kind.IQ4_XS: Packing(8, 32, partial(_looked_up, _iq4_xs_codes), _iq4_xs_scale),
    _Kind.IQ1_S: Packing(4, 32, grids.iq1_s_codes, grids.iq1_s_scales, _lows(4.5, grids.iq1_s_scales)),
    _Kind.IQ1_M: Packing(4, 16, grids.iq1_m_codes, grids.iq1_m_scales, _lows(4.5, grids.iq1_m_scales)),
    _Kind.IQ2_XXS: Packing(8, 32, grids.iq2_xxs_codes, partial(grids.xxs_scales, 9, 8, 0.25)),
    _Kind.IQ2_XS: Packing(8, 16, grids.iq2_xs_codes, partial(grids.iq2_scales, 66)),
    _Kind.IQ2_S: Packing(8, 16, grids.iq2_s_codes, partial(grids.iq2_scales, 74)),
    _Kind.IQ3_XXS: Packing(8, 32, grids.iq3_xxs_codes, partial(grids.xxs_scales, 69, 4, 0.5)),
    _Kind.IQ3_S: Packing(4, 32, grids.iq3_s_codes, grids.iq3_s_scales, _lows(7.5, grids.iq3_s_scales)),
    _Kind.TQ1_0: Packing(4, 256, grids.tq1_0_codes, partial(_half, at=52)),
    _Kind.TQ2_0: Packing(4, 256, lambda blocks: _two_bits(0, blocks) + np.uint8(7), partial(_half, at=64)),
    _Kind.MXFP4: Packing(8, 32, partial(grids.e2m1_codes, 1, 16), grids.mxfp4_scales),
    _Kind.NVFP4: Packing(8, 16, partial(grids.e2m1_codes, 4, 8), grids.nvfp4_scales),
    _Kind.Q8_K: Packing(
        8,
        256,
        partial(_signed, lambda blocks: blocks[:, 4:260], 0),
        lambda blocks: np.ascontiguousarray(blocks[:, :4]).view("<f4"),
    ),
}
"""Quantizations that stay packed. A zero point of half the range needs no array."""

_OF_EXPERTS: Mapping[GGMLQuantizationType, Packing] = {
    _Kind.MXFP4: Packing(4, 32, partial(grids.e2m1_positions, 1, 16), grids.mxfp4_scales, is_e2m1=True),
    _Kind.NVFP4: Packing(4, 16, partial(grids.e2m1_positions, 4, 8), grids.nvfp4_scales, is_e2m1=True),
}
"""Other packings of the matrices of experts, whose products take floats of 4 bits."""

_FLOATS: Mapping[GGMLQuantizationType, str] = {_Kind.F32: "<f4", _Kind.F16: "<f2", _Kind.BF16: "<u2"}
"""Types of the elements of files; BF16 are words."""

_REDUCED: Mapping[GGMLQuantizationType, np.dtype[Any]] = {_Kind.F16: np.dtype(np.float16), _Kind.BF16: BFLOAT16.numpy}
"""Types that matrices keep on the device."""


# ---- tensors ---------------------------------------------------------------------------------------------------------


def check_supported(tensor: GgufTensor, name: str) -> None:
    """Raise NotSupported if the elements of a tensor of a model are stored in an unsupported way."""
    if tensor.kind not in PACKINGS and tensor.kind not in _FLOATS:
        supported = ", ".join(kind.name for kind in (*_FLOATS, *PACKINGS))
        raise NotSupported(
            f"model {name!r}: tensor {tensor} is not supported: its type must be one of {supported}; download another "
            "quantization of the model, such as Q4_K_M, or make one: llama-quantize --allow-requantize OLD NEW Q4_K_M"
        )


def packed(tensor: GgufTensor, dtype: DTypeLike) -> PackedWeight:
    """Return a quantized matrix for MatMulNBits, or matrices of experts.

    Args:
        tensor: Matrices of one of ``PACKINGS``.
        dtype: Type of scales and zero points: that of the activations.
    """
    packing, (*rows, inner) = PACKINGS[tensor.kind], tensor.shape
    if len(rows) > 1:
        packing = _OF_EXPERTS.get(tensor.kind, packing)
    groups, dtype = inner // packing.block, np.dtype(dtype)
    deferred = partial(_deferred, tensor)
    return PackedWeight(
        packing.bits,
        packing.block,
        deferred((*rows, groups, packing.block * packing.bits // 8), np.uint8, partial(_packed_codes, packing, dtype)),
        deferred((*rows, groups), dtype, lambda blocks: _affine(packing, dtype, blocks)[0]),
        None
        if packing.lows is None
        else deferred((*rows, groups), dtype, lambda blocks: _affine(packing, dtype, blocks)[1]),
        packing.is_e2m1,
    )


def words(codes: DeferredArray) -> DeferredArray:
    """Return codes of experts as UINT32 {experts, words}."""

    def of_rows(span: slice) -> NDArray[np.uint32]:
        return np.ascontiguousarray(codes.rows(span)).reshape(span.stop - span.start, -1).view(np.uint32)

    matrix = codes.nbytes // codes.shape[0]
    return DeferredArray((codes.shape[0], matrix // 4), np.uint32, of_rows, 8 * matrix)


def floats(tensor: GgufTensor, dtype: DTypeLike) -> DeferredArray:
    """Return the elements of a tensor of floats: F16 and BF16 matrices in their own type, others in a dtype."""
    kind, stored = np.dtype(dtype), _FLOATS[tensor.kind]
    if len(tensor.shape) > 1:
        kind = _REDUCED.get(tensor.kind, kind)
    last = tensor.shape[-1]

    def of_rows(span: slice) -> NDArray[Any]:
        inner = math.prod(tensor.shape[1:-1])
        raw = tensor.data[span.start * inner : span.stop * inner] if len(tensor.shape) > 1 else tensor.data
        array: NDArray[Any] = np.array(raw).view(stored)
        if tensor.kind is _Kind.BF16:
            array = array.view(BFLOAT16.numpy)
        if len(tensor.shape) == 1:
            array = array[:, span]
        tensor.release()
        return array.astype(kind, copy=False).reshape(-1, *tensor.shape[1:])

    return DeferredArray(tensor.shape, kind, of_rows, 8 * last)


def _deferred(
    tensor: GgufTensor, shape: tuple[int, ...], dtype: DTypeLike, compute: Callable[[Bytes], Any]
) -> DeferredArray:
    """Return an array {.., N, ...} that is computed from the blocks of rows."""
    block_bytes = GGML_QUANT_SIZES[tensor.kind][1]
    each = math.prod(tensor.shape[1:-1])

    def of_rows(span: slice) -> NDArray[Any]:
        blocks = np.ascontiguousarray(tensor.data[span.start * each : span.stop * each]).reshape(-1, block_bytes)
        with np.errstate(invalid="ignore", over="ignore"):  # scales of damaged files may be NaN
            array = np.asarray(compute(blocks)).reshape(-1, *shape[1:]).astype(dtype, copy=False)
        tensor.release()
        return array

    return DeferredArray(shape, dtype, of_rows, 8 * each * tensor.shape[-1])


def _packed_codes(packing: Packing, dtype: np.dtype[Any], blocks: Bytes) -> Bytes:
    codes = packing.codes(blocks)
    if packing.lows is not None:
        constant = _is_constant(dtype, packing.scales(blocks), packing.lows(blocks))
        if constant.any():
            codes.reshape(len(blocks), -1, packing.block)[constant] = 0
    if packing.bits == 8:
        return codes
    pairs = codes.view("<u2")
    pairs |= pairs >> np.uint16(_NIBBLE)
    return pairs.astype(np.uint8)


def _is_constant(dtype: np.dtype[Any], scales: Floats, lows: Floats) -> NDArray[np.bool_]:
    """Return a mask of the blocks whose scale is 0 or too small for (code - zero point) * scale."""
    is_zero = scales == 0
    return is_zero | (np.abs(lows) > _MAX_RATIO * np.abs(scales)) if dtype == np.float16 else is_zero


def _affine(packing: Packing, dtype: np.dtype[Any], blocks: Bytes) -> tuple[Floats, Floats]:
    """Return scales and zero points {count, groups}. Constant blocks have codes of 0: (0 - 1) * -low."""
    scales = packing.scales(blocks)
    if packing.lows is None:
        return scales, scales
    lows = packing.lows(blocks)
    constant = _is_constant(dtype, scales, lows)
    zero_points = np.divide(-lows, scales, out=np.ones_like(scales), where=~constant)
    return np.where(constant, -lows, scales), zero_points
