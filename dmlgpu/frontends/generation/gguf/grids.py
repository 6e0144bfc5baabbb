"""Quantizations of 1 to 4 bits whose codes are entries of tables: IQ1, IQ2, IQ3, TQ, MXFP4 and NVFP4.

The package gguf has the tables. Its own dequantization takes two to eight times as long as these functions, which look
up entries of bytes as whole words.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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

_POSITIONS = np.array([*range(8, 16), *range(8, 0, -1)], np.uint8)
"""8 plus the positions of these values among them, 0 for both zeros."""

_HALF_STEP = np.float32(0.5)


def _half(blocks: Bytes, at: int) -> Floats:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _pairs(raw: Bytes) -> Floats:
    """Return the low and the high nibble of each byte."""
    return np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1).astype(np.float32)


@cache  # bounded by the quantizations
def _grid(kind: GGMLQuantizationType) -> NDArray[np.uint32 | np.uint64]:
    """Return the entries of a table, each of 4 or 8 signed bytes, as words."""
    traits = getattr(quants, kind.name)
    traits.init_grid()
    entries = traits.grid.reshape(traits.grid_shape).astype(np.int8)
    return np.asarray(entries.view(np.uint32 if entries.shape[1] == 4 else np.uint64).ravel())


_SIGNS = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, bitorder="little"), -1, 1).astype(np.int8)
"""Signs of eight elements by the bits of a byte."""

_EVEN = np.array([bits | bits.bit_count() % 2 << 7 for bits in range(128)], np.uint8)
"""Bytes with an even number of bits, by their lower seven."""


def _elements(kind: GGMLQuantizationType, entries: NDArray[Any], signs: Bytes | None = None) -> NDArray[np.int8]:
    """Return the elements of blocks {count, elements}.

    Args:
        kind: Quantization.
        entries: Numbers of entries, {count, ..}.
        signs: Bits of the signs, eight elements to a byte, {count, ..}; None if entries have signs.
    """
    elements = _grid(kind)[entries].view(np.int8).reshape(len(entries), -1)
    return elements if signs is None else elements * _SIGNS[signs.reshape(len(entries), -1)].reshape(elements.shape)


def _words(blocks: Bytes, start: int, stop: int, form: str) -> NDArray[Any]:
    return np.ascontiguousarray(blocks[:, start:stop]).view(form)


def _shifted(words: NDArray[Any], *shifts: int) -> NDArray[Any]:
    """Return words shifted right by each of several numbers, {count, words} to {count, words, shifts}."""
    return words[:, :, None] >> np.array(shifts, words.dtype)


def _even_signs(words: NDArray[Any]) -> Bytes:
    """Return the four bytes of signs of words, of which seven bits each are stored."""
    return _EVEN[_shifted(words, 0, 7, 14, 21) & 127]


def _centered(elements: NDArray[np.int8]) -> Bytes:
    """Return codes of 8 bits with a zero point of 128."""
    return elements.view(np.uint8) + np.uint8(128)


def iq2_xxs_codes(blocks: Bytes) -> Bytes:
    """Return codes of 8 bits: of each eight bytes, four entries, then the bits of their signs."""
    words = _words(blocks, 2, 66, "<u4")
    entries = blocks[:, 2:66].reshape(-1, 8, 8)[:, :, :4]
    return _centered(_elements(GGMLQuantizationType.IQ2_XXS, entries, _even_signs(words[:, 1::2])))


def iq2_xs_codes(blocks: Bytes) -> Bytes:
    """Return codes of 8 bits: words of 9 bits of an entry and 7 of signs."""
    words = _words(blocks, 2, 66, "<u2")
    return _centered(_elements(GGMLQuantizationType.IQ2_XS, words & 511, _EVEN[words >> 9]))


def iq2_s_codes(blocks: Bytes) -> Bytes:
    """Return codes of 8 bits: bytes of entries, bytes of signs, and two higher bits of entries."""
    high = (_shifted(blocks[:, 66:74], 0, 2, 4, 6) & 3).reshape(-1, 32).astype(np.uint16)
    return _centered(_elements(GGMLQuantizationType.IQ2_S, blocks[:, 2:34] | high << 8, blocks[:, 34:66]))


def iq3_xxs_codes(blocks: Bytes) -> Bytes:
    """Return codes of 8 bits: bytes of entries, then words of signs."""
    signs = _even_signs(_words(blocks, 66, 98, "<u4"))
    return _centered(_elements(GGMLQuantizationType.IQ3_XXS, blocks[:, 2:66], signs))


def xxs_scales(first: int, step: int, factor: float, blocks: Bytes) -> Floats:
    """Return scales of groups of 32 of IQ2_XXS or IQ3_XXS: the high nibble of every fourth or eighth byte."""
    return _half(blocks, 0) * (_HALF_STEP + (blocks[:, first::step] >> 4)) * np.float32(factor)


def iq2_scales(first: int, blocks: Bytes) -> Floats:
    """Return scales of groups of 16 of IQ2_XS or IQ2_S, which have 4 bits."""
    return _half(blocks, 0) * (_HALF_STEP + _pairs(blocks[:, first : first + 8])) * np.float32(0.25)


def iq3_s_codes(blocks: Bytes) -> Bytes:
    """Return codes of 4 bits of the odd numbers from -15 to 15: bytes of entries, their ninth bits, bytes of signs."""
    high = np.unpackbits(blocks[:, 66:74], 1, bitorder="little").astype(np.uint16)
    elements = _elements(GGMLQuantizationType.IQ3_S, blocks[:, 2:66] | high << 8, blocks[:, 74:106])
    return (elements + np.int8(15)).view(np.uint8) >> np.uint8(1)


def iq3_s_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 32."""
    return _half(blocks, 0) * (1 + 2 * _pairs(blocks[:, 106:110])) * 2


def _iq1_codes(kind: GGMLQuantizationType, entries: NDArray[Any], is_below: NDArray[np.bool_]) -> Bytes:
    """Return codes of 4 bits with a zero point of 4.5: -1, 0 or 1, plus or minus 1/8, times 4.

    Args:
        kind: Quantization.
        entries: Numbers of entries, {count, 32}.
        is_below: Whether 1/8 is subtracted from all elements of an entry.
    """
    elements = _elements(kind, entries).view(np.uint8).reshape(*entries.shape, 8)
    offsets = np.where(is_below, np.uint8(4), np.uint8(5))[:, :, None]
    return ((elements << np.uint8(2)) + offsets).reshape(len(entries), -1)


def iq1_s_codes(blocks: Bytes) -> Bytes:
    """Return codes: bytes of entries, then words with three higher bits of each of four entries."""
    words = _words(blocks, 34, 50, "<u2")
    entries = blocks[:, 2:34] | (_shifted(words, 0, 3, 6, 9) & 7).reshape(-1, 32) << 8
    return _iq1_codes(GGMLQuantizationType.IQ1_S, entries, np.repeat(words >> 15 != 0, 4, axis=1))


def iq1_s_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 32."""
    return _half(blocks, 0) * (2 * ((blocks[:, 35::2] >> 4) & 7).astype(np.float32) + 1) * np.float32(0.25)


def iq1_m_codes(blocks: Bytes) -> Bytes:
    """Return codes: bytes of entries, then 4 bits for each: three higher ones of the entry, and one of 1/8."""
    nibbles = (_shifted(blocks[:, 32:48], 0, 4) & 15).reshape(-1, 32)
    entries = blocks[:, :32] | (nibbles & 7).astype(np.uint16) << 8
    return _iq1_codes(GGMLQuantizationType.IQ1_M, entries, nibbles & 8 != 0)


def iq1_m_scales(blocks: Bytes) -> Floats:
    """Return scales of groups of 16: three bits each, four of them in a word."""
    words = np.ascontiguousarray(blocks[:, 48:]).view("<u2")
    whole = ((words >> 12) << np.array([0, 4, 8, 12], np.uint16)).sum(1, dtype=np.uint16, keepdims=True)
    scales = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    return whole.view("<f2").astype(np.float32) * (2 * scales.reshape(len(blocks), -1) + 1) * np.float32(0.25)


def tq1_0_codes(blocks: Bytes) -> Bytes:
    """Return codes of 4 bits with a zero point of 8: five of base 3 in most bytes."""
    unscaled = np.array(blocks)
    unscaled[:, 52:] = _ONE
    return (quants.dequantize(unscaled, GGMLQuantizationType.TQ1_0) + 8).astype(np.uint8)


def _e2m1(first: int, group: int, blocks: Bytes) -> Bytes:
    """Return floats of 4 bits: of each group of bytes, the low nibbles, then the high ones."""
    raw = blocks[:, first:].reshape(len(blocks), -1, 1, group)
    return np.concatenate([raw & 15, raw >> 4], 2).reshape(len(blocks), -1)


def e2m1_codes(first: int, group: int, blocks: Bytes) -> Bytes:
    """Return codes of 8 bits with a zero point of 128: twice the floats of 4 bits."""
    return (_E2M1.view(np.uint8) + np.uint8(128))[_e2m1(first, group, blocks)]


def e2m1_positions(first: int, group: int, blocks: Bytes) -> Bytes:
    """Return codes of 4 bits: 8 plus the positions of floats of 4 bits, -7 to 7."""
    return _POSITIONS[_e2m1(first, group, blocks)]


def mxfp4_scales(blocks: Bytes) -> Floats:
    """Return half the scales, which are powers of two."""
    return np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)


def nvfp4_scales(blocks: Bytes) -> Floats:
    """Return half the scales, which are floats of 8 bits."""
    return np.asarray(quants.NVFP4.ue4m3_to_fp32(blocks[:, :4])).astype(np.float32)
