"""Quantizations of 1 to 4 bits whose codes are entries of tables: IQ1, IQ2, IQ3, TQ, MXFP4 and NVFP4.

The package gguf has the tables of the IQ quantizations. It dequantizes blocks whose scales are replaced by 1, which
gives entries of the table with their signs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_ONE = np.array([0x00, 0x3C], np.uint8)
"""1 in float16."""

_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the values of floats of 4 bits (MXFP4, NVFP4)."""

_HALF_STEP = np.float32(0.5)


def _half(blocks: Bytes, at: int) -> Floats:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _pairs(raw: Bytes) -> Floats:
    """Return the low and the high half of each byte."""
    return np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1).astype(np.float32)


def _entries(kind: GGMLQuantizationType, blocks: Bytes, at: int, scales: slice, kept: int) -> Floats:
    """Return elements of blocks without their scales.

    Args:
        kind: Quantization.
        blocks: Blocks.
        at: Byte of the float16 scale.
        scales: Bytes with scales of groups.
        kept: Mask of the bits in them that are not part of a scale.
    """
    changed = np.array(blocks)
    changed[:, scales] &= np.uint8(kept)
    changed[:, at : at + 2] = _ONE
    return np.asarray(quants.dequantize(changed, kind))


def signed_entries(kind: GGMLQuantizationType, factor: int, scales: slice, kept: int, blocks: Bytes) -> Bytes:
    """Return codes of 8 bits with a zero point of 128: entries times a factor that makes them integers."""
    return (_entries(kind, blocks, 0, scales, kept) * factor + 128).astype(np.uint8)


IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS = (
    partial(signed_entries, GGMLQuantizationType[name], factor, scales, kept)
    for name, factor, scales, kept in (
        ("IQ2_XXS", 8, slice(9, 66, 8), 0x0F),
        ("IQ2_XS", 8, slice(66, 74), 0),
        ("IQ2_S", 8, slice(74, 82), 0),
        ("IQ3_XXS", 4, slice(69, 98, 4), 0x0F),
    )
)
"""Codes of 8 bits of these quantizations."""


def xxs_scales(first: int, step: int, factor: float, blocks: Bytes) -> Floats:
    """Return scales of groups of 32 of IQ2_XXS or IQ3_XXS: the high half of every fourth or eighth byte."""
    return _half(blocks, 0) * (_HALF_STEP + (blocks[:, first::step] >> 4)) * np.float32(factor)


def iq2_scales(first: int, blocks: Bytes) -> Floats:
    """Return scales of groups of 16 of IQ2_XS or IQ2_S, which have halves of bytes."""
    return _half(blocks, 0) * (_HALF_STEP + _pairs(blocks[:, first : first + 8])) * np.float32(0.25)


def iq3_s_codes(blocks: Bytes) -> Bytes:
    """Return codes of 4 bits of the odd numbers from -15 to 15."""
    return (_entries(GGMLQuantizationType.IQ3_S, blocks, 0, slice(106, 110), 0) * _HALF_STEP + 7.5).astype(np.uint8)


def iq3_s_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 32."""
    return _half(blocks, 0) * (1 + 2 * _pairs(blocks[:, 106:110])) * 2


def iq1_s_codes(blocks: Bytes) -> Bytes:
    """Return codes of 4 bits with a zero point of 4.5: -1, 0 or 1 plus or minus 1/8, times 4."""
    changed = np.array(blocks)
    changed[:, 35::2] &= np.uint8(0x8F)
    changed[:, :2] = _ONE
    return (quants.dequantize(changed, GGMLQuantizationType.IQ1_S) * 4 + 4.5).astype(np.uint8)


def iq1_s_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 32."""
    return _half(blocks, 0) * (2 * ((blocks[:, 35::2] >> 4) & 7).astype(np.float32) + 1) * np.float32(0.25)


def iq1_m_codes(blocks: Bytes) -> Bytes:
    """Return codes like those of IQ1_S. The float16 scale is in the high halves of four words."""
    changed = np.array(blocks)
    changed[:, 48:] = 0
    changed[:, [53, 55]] = [0xC0, 0x30]
    return (quants.dequantize(changed, GGMLQuantizationType.IQ1_M) * 4 + 4.5).astype(np.uint8)


def iq1_m_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 16: three bits each, four of them in a word."""
    words = np.ascontiguousarray(blocks[:, 48:]).view("<u2")
    whole = ((words >> 12) << np.array([0, 4, 8, 12], np.uint16)).sum(1, dtype=np.uint16, keepdims=True)
    scales = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    return whole.view("<f2").astype(np.float32) * (2 * scales.reshape(len(blocks), -1) + 1) * np.float32(0.25)


def ternary_codes(kind: GGMLQuantizationType, at: int, blocks: Bytes) -> Bytes:
    """Return codes of 4 bits with a zero point of 8."""
    return (_entries(kind, blocks, at, slice(0, 0), 0) + 8).astype(np.uint8)


def e2m1_codes(first: int, group: int, blocks: Bytes) -> Bytes:
    """Return codes of 8 bits: of each group of bytes, the low halves, then the high ones."""
    raw = blocks[:, first:].reshape(len(blocks), -1, 1, group)
    codes = np.concatenate([raw & 15, raw >> 4], 2).reshape(len(blocks), -1)
    return (_E2M1.view(np.uint8) + np.uint8(128))[codes]


def mxfp4_scales(blocks: Bytes) -> Floats:
    """Return half the scales, which are powers of two."""
    return np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)


def nvfp4_scales(blocks: Bytes) -> Floats:
    """Return half the scales, which are floats of 8 bits."""
    return np.asarray(quants.NVFP4.ue4m3_to_fp32(blocks[:, :4])).astype(np.float32)
