"""Discrete Fourier transforms of tensors and arrays, with the names and arguments of ``numpy.fft``.

    from dmlgpu import ops

    spectrum = ops.fft.rfft(signal)  # {..., n // 2 + 1, 2}
    magnitudes = ops.norm(spectrum, axis=-1)
    signal = ops.fft.irfft(spectrum, n=signal.shape[-1])

Complex numbers are pairs: the last axis, of size 2, holds real and imaginary parts, and ``axis`` counts the others.
Results of transforms are pairs; inverse transforms take them. ``fft``, ``fftn``, ``fft2`` and ``stft`` take real
numbers, or pairs with ``pairs=True``. ``ops.stack([z.real, z.imag], -1)`` returns the pairs of a complex NumPy array.
Any length takes time in proportion to n log n. Everything is computed in float32, also of float16, in which the result
is returned then.

Examples of the functions assume ``import numpy as np`` and ``from dmlgpu import Tensor, ops``.
"""

from __future__ import annotations

from dmlgpu.ops.fft import discrete, frequencies, short_time
from dmlgpu.ops.fft.discrete import *  # noqa: F403
from dmlgpu.ops.fft.frequencies import *  # noqa: F403
from dmlgpu.ops.fft.short_time import *  # noqa: F403

__all__ = sorted(name for module in (discrete, frequencies, short_time) for name in module.__all__)  # noqa: PLE0605


def __dir__() -> list[str]:
    return __all__
