"""Features of speech models: the logarithm of a mel spectrogram, as Whisper was trained with."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dmlgpu.ops import concatenate, log10, maximum, sum
from dmlgpu.ops.fft import rfft
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

RATE = 16_000
"""Samples per second."""

HOP = 160
"""Samples from one frame to the next."""

_WINDOW = 400
_BLOCK = 3000
_SMALLEST = 1e-10
_RANGE = 8.0
"""Powers of ten below the largest magnitude that count."""

_LINEAR_HERTZ = 1000.0
_LINEAR_MELS = 15.0
_MELS_PER_LOG = 27.0 / np.log(6.4)
"""The mel scale of Slaney's Auditory Toolbox: linear up to 1000 Hz, then logarithmic."""


def log_mel(audio: NDArray[np.float32], bands: int, device: Device) -> NDArray[np.float32]:
    """Return the features of audio, as transformers' WhisperFeatureExtractor computes them.

    Args:
        audio: Samples at 16,000 per second, at least 201.
        bands: Number of bands.
        device: Device that computes the spectrogram, 30 seconds at a time.

    Returns:
        Array {bands, frames} with a frame per 160 samples.
    """
    frames = len(audio) // HOP
    padded = np.pad(audio.astype(np.float32), _WINDOW // 2, mode="reflect")
    filters = Tensor(mel_filters(bands), device=device)
    window = Tensor((0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)).astype(np.float32), device=device)
    blocks = []
    for start in range(0, frames, _BLOCK):
        samples = np.zeros((_BLOCK + 3, HOP), np.float32)
        part = padded[start * HOP : start * HOP + samples.size]
        samples.reshape(-1)[: len(part)] = part
        rows = Tensor(samples, device=device)
        pieces = [rows[:_BLOCK], rows[1 : _BLOCK + 1], rows[2 : _BLOCK + 2, : _WINDOW - 2 * HOP]]
        spectra = rfft(concatenate(pieces, axis=1) * window)
        powers = sum(spectra * spectra, axis=-1)
        blocks.append(log10(maximum(powers @ filters, _SMALLEST)).numpy()[: frames - start])
    logarithms = np.concatenate(blocks).T
    return np.ascontiguousarray((np.maximum(logarithms, logarithms.max() - _RANGE) + 4.0) / 4.0)


@functools.cache  # bounded by the numbers of bands that models have: 80 and 128
def mel_filters(bands: int) -> NDArray[np.float32]:
    """Return triangular filters {frequencies, bands} of equal area, equally spaced on the mel scale up to 8,000 Hz."""
    frequencies = np.linspace(0, RATE / 2, _WINDOW // 2 + 1)
    mels = np.linspace(0.0, _LINEAR_MELS + _MELS_PER_LOG * np.log(RATE / 2 / _LINEAR_HERTZ), bands + 2)
    logarithmic = _LINEAR_HERTZ * np.exp((mels - _LINEAR_MELS) / _MELS_PER_LOG)
    corners = np.where(mels < _LINEAR_MELS, mels * _LINEAR_HERTZ / _LINEAR_MELS, logarithmic)
    widths = np.diff(corners)
    slopes = corners - frequencies[:, None]
    triangles = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return (triangles * 2.0 / (corners[2:] - corners[:-2])).astype(np.float32)
