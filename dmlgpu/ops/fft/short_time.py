"""Short-time Fourier transforms: of windows of signals."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.common.coercion import argument, boolean, optional
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.ops.fft.operands import check_pairs, holds_pairs, length_of, with_parts
from dmlgpu.ops.fft.transforms import Constant, real_signal, spectrum
from dmlgpu.ops.precision import in_float32, result_in, result_type
from dmlgpu.ops.shape import pad
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, word
from dmlgpu.tensors.tensor import Tensor

__all__ = ["istft", "stft"]

_MODES = {"reflect": "reflection", "constant": "constant", "edge": "edge"}
"""NumPy's names of modes of padding, and those of ``ops.pad``."""


@eager
def stft(
    x: Operand,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Operand | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    *,
    pairs: bool | None = None,
    device: Where = None,
) -> Array:
    """Return the Fourier transforms of windows of signals, with the arguments of ``torch.stft``.

    Args:
        x: Tensor or array {..., L} of real numbers, or with `pairs` {..., L, 2} of complex ones: float32, float16 or
            integers.
        n_fft: Length of the transforms.
        hop_length: Distance of windows; defaults to None, n_fft // 4.
        win_length: Length of `window`; defaults to None, that of `window`, else `n_fft`.
        window: Factors of the elements {win_length}, continued by zeros on both sides; defaults to None, ones.
        center: Whether windows are centered at multiples of `hop_length`, so that the signal is padded by n_fft // 2 on
            both sides; defaults to True. False: windows begin there.
        pad_mode: ``"reflect"``, the default, ``"constant"`` for zeros, or ``"edge"``.
        normalized: Whether results are divided by the root of `n_fft`; defaults to False.
        onesided: Whether the first n_fft // 2 + 1 frequencies are returned, which determine the rest; defaults to None:
            of real signals.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., frequencies, windows, 2} of real and imaginary parts, float16 if `x` is, else float32 (an array if
        the operands are arrays).

    Raises:
        InvalidArgument: If the signal is shorter than a window, an argument has the wrong type, or lengths do not fit.

    Examples:
        >>> ops.fft.stft(np.ones(16, np.float32), n_fft=8, hop_length=4).shape
        (5, 5, 2)

    See also:
        `istft`, `rfft`.

    Computed in float32 by UNFOLD (`ns-directml-dml_unfold_operator_desc`) and GEMM
    (`ns-directml-dml_gemm_operator_desc`).
    """
    signal = in_float32("x", x)
    is_complex = holds_pairs(signal, pairs)
    length, hop = _lengths(n_fft, hop_length)
    half = argument(caller(), "onesided", optional(boolean), onesided)
    half = not is_complex if half is None else half
    if half and is_complex:
        raise InvalidArgument(f"{caller()}: onesided must be False for pairs, whose frequencies are all needed")
    if not signal.ndim - is_complex:
        raise InvalidArgument(f"{caller()}: x must have at least 1 dimension, got sizes {list(signal.sizes)}")
    batch = signal.sizes[: -1 - is_complex]
    parts = with_parts(signal, is_complex)
    mode = _MODES[word("pad_mode", pad_mode, tuple(_MODES))]
    margin = length // 2 if argument(caller(), "center", boolean, center) else 0
    size = parts.sizes[-2]
    if size + 2 * margin < length or (mode == "reflection" and margin >= size) or not size:
        condition = f"more than n_fft // 2 elements, {margin}," if margin else f"at least n_fft elements, {length},"
        raise InvalidArgument(f"{caller()}: x must have {condition} got sizes {list(signal.sizes)}")
    scale = 1 / math.sqrt(length) if argument(caller(), "normalized", boolean, normalized) else 1.0
    factors = _window(parts, window, win_length, length)
    bins = length // 2 + 1 if half else length
    if 0 in batch:
        return filled(signal, (*batch, bins, (size + 2 * margin - length) // hop + 1, 2), 0, result_type(x))
    rows = parts.reshape(-1, size, parts.sizes[-1])
    if margin:
        rows = pad(rows, ((0, 0), (margin, margin), (0, 0)), mode)
    spectra = windowed_spectra(rows, length, hop, bins, factors, constant=rows._beside, scale=scale)
    return result_in(result_type(x), spectra.transpose(0, 2, 1, 3).reshape(*batch, bins, -1, 2))


def windowed_spectra(
    x: Tensor, length: int, hop: int, bins: int, window: Tensor | None, *, constant: Constant, scale: float = 1.0
) -> Tensor:
    """Return the transforms {rows, windows, bins, 2} of windows of signals.

    Args:
        x: Signals {rows, size, parts} of float32, at least one, with at least ``length`` elements.
        length: Of the windows.
        hop: Distance of windows.
        bins: Number of frequencies.
        window: Factors {length} of the elements, or None.
        constant: Returns arrays as tensors.
        scale: Factor of the results.
    """
    rows, _, parts = x.sizes
    columns: Tensor = directml.unfold(x.transpose(0, 2, 1), **_windows(length, hop))
    count = columns.sizes[2]
    frames = columns.reshape(rows, parts, length, count).transpose(0, 3, 2, 1)
    if window is not None:
        frames = frames * window.reshape(1, 1, length, 1).broadcast_to(frames.sizes)
    spectra = spectrum(frames.reshape(rows * count, length, parts), length, bins, constant=constant, scale=scale)
    return spectra.reshape(rows, count, bins, 2)


def _windows(length: int, hop: int) -> dict[str, Any]:
    """Return the fields of UNFOLD and FOLD."""
    return {
        "window_sizes": (length,),
        "strides": (hop,),
        "dilations": (1,),
        "start_padding": (0,),
        "end_padding": (0,),
    }


def _lengths(n_fft: Any, hop_length: Any) -> tuple[int, int]:
    length = length_of("n_fft", n_fft, 0)
    return length, length_of("hop_length", hop_length, max(length // 4, 1))


def _window(like: Tensor, window: Any, win_length: Any, length: int) -> Tensor | None:
    """Return the factors of the elements of a window {length}, None for ones."""
    if window is None and win_length is None:
        return None
    factors = None if window is None else in_float32("window", window)
    size = length_of("win_length", win_length, length if factors is None else factors.size)
    if size > length:
        raise InvalidArgument(f"{caller()}: win_length must be at most n_fft, {length}, got {size}")
    factors = filled(like, (size,), 1.0) if factors is None else factors
    if factors.sizes != (size,):
        raise InvalidArgument(f"{caller()}: window must have win_length elements, {size}, got {list(factors.sizes)}")
    before = (length - size) // 2
    return pad(factors, (before, length - size - before)) if size < length else factors


@eager
def istft(
    x: Operand,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Operand | None = None,
    center: bool = True,
    normalized: bool = False,
    length: int | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the real signals of one-sided short-time Fourier transforms, the inverse of `stft`.

    Args:
        x: Tensor or array {..., n_fft // 2 + 1, windows, 2} of real and imaginary parts: float32, float16 or integers.
        n_fft: Length of the transforms.
        hop_length: Distance of windows; defaults to None, n_fft // 4.
        win_length: Length of `window`; defaults to None, that of `window`, else `n_fft`.
        window: Factors of the elements {win_length}, those of `stft`; defaults to None, ones.
        center: Whether `stft` padded the signal, so that n_fft // 2 elements on both sides are dropped; defaults to
            True.
        normalized: Whether `stft` divided by the root of `n_fft`; defaults to False.
        length: Length of the signals, which are cut or continued by zeros; defaults to None, all that windows cover.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., L} of real numbers, float16 if `x` is, else float32 (an array if the operands are arrays). Elements
        that every window multiplies by 0 are NaN.

    Raises:
        InvalidArgument: If `x` has other sizes, an argument has the wrong type, or lengths do not fit.

    Examples:
        >>> x = np.arange(16, dtype=np.float32)
        >>> window = np.hanning(9)[:-1].astype(np.float32)
        >>> result = ops.fft.istft(ops.fft.stft(x, 8, window=window), 8, window=window)
        >>> bool(np.allclose(result, x, atol=1e-5))
        True

    See also:
        `stft`, `irfft`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) and FOLD
    (`ns-directml-dml_fold_operator_desc`).
    """
    spectra = in_float32("x", x)
    check_pairs("x", spectra)
    size, hop = _lengths(n_fft, hop_length)
    if spectra.ndim < 3 or spectra.sizes[-3] != size // 2 + 1 or not spectra.sizes[-2]:
        raise InvalidArgument(
            f"{caller()}: x must have sizes {{..., {size // 2 + 1}, windows, 2}} and at least one window, got "
            f"{list(spectra.sizes)}"
        )
    bins, count, _ = spectra.sizes[-3:]
    batch, covered = spectra.sizes[:-3], size + (count - 1) * hop
    begin = size // 2 if argument(caller(), "center", boolean, center) else 0
    total = None if length is None else length_of("length", length, 0)
    end = covered - begin if total is None else min(begin + total, covered)
    if end <= begin:
        raise InvalidArgument(f"{caller()}: x must have windows beyond the padding, got sizes {list(spectra.sizes)}")
    total = end - begin if total is None else total
    scale = 1 / math.sqrt(size) if argument(caller(), "normalized", boolean, normalized) else 1 / size
    factors = _window(spectra, window, win_length, size)
    if 0 in batch:
        return filled(spectra, (*batch, total), 0, result_type(x))
    rows = spectra.reshape(-1, bins, count, 2).transpose(0, 2, 1, 3)
    frames = real_signal(rows.reshape(-1, bins, 2), size, constant=rows._beside, scale=scale).reshape(-1, count, size)
    weights = filled(frames, (size,), 1.0) if factors is None else factors
    squares = (weights * weights).expand_dims((0, 1)).broadcast_to((1, count, size))
    signals = _added(frames * weights, covered, hop)[:, begin:end] / _added(squares, covered, hop)[:, begin:end]
    if total > end - begin:
        signals = pad(signals, ((0, 0), (0, total - end + begin)))
    return result_in(result_type(x), signals.reshape(*batch, total))


def _added(frames: Tensor, covered: int, hop: int) -> Tensor:
    """Return the sums {rows, covered} of windows {rows, windows, size} where they overlap."""
    rows, _, size = frames.sizes
    columns = frames.transpose(0, 2, 1)
    result: Tensor = directml.fold(columns, output_sizes=(rows, 1, covered), **_windows(size, hop))
    return result.reshape(rows, covered)
