"""Discrete Fourier transforms along one axis and along several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dmlgpu.ops.fft.operands import (
    axes_of,
    axis_of,
    check_pairs,
    holds_pairs,
    length_of,
    real_inverse,
    transformed,
    with_parts,
)
from dmlgpu.ops.precision import in_float32, result_in, result_type
from dmlgpu.tensors.calls import Array, Operand, Where, eager
from dmlgpu.tensors.tensor import Tensor

__all__ = ["fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"]

Lengths: TypeAlias = Sequence[int] | None
"""Lengths of the transforms along several axes; None for the sizes of the axes."""

# ---- along one axis --------------------------------------------------------------------------------------------------


@eager
def fft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    pairs: bool | None = None,
    device: Where = None,
) -> Array:
    """Return the discrete Fourier transform of signals.

    Args:
        x: Tensor or array of real numbers, or with `pairs` of complex ones, {..., 2}: float32, float16 or integers.
        n: Length of the transform; defaults to None, the size of the axis. Elements beyond are dropped, missing ones
            are 0.
        axis: Axis of the signals, not counting that of the parts; negative axes count from the end. Defaults to the
            last.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, of `n` frequencies along the axis, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range or empty, `n` is not a positive integer, `norm` is none of the
            modes, or `x` has no such parts.

    Examples:
        >>> ops.fft.fft([1.0, 0.0, 0.0]).tolist()
        [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]

    See also:
        `ifft`, `rfft`, which returns the half that determines the transform of real numbers, `fftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) with matrices of up to 256 elements.
    """
    return result_in(result_type(x), _forward(_signal(x, pairs), n, axis, norm))


def _signal(x: Operand, pairs: bool | None) -> Tensor:
    """Return an operand in float32, with an axis of real and imaginary parts or of real ones alone."""
    signal = in_float32("x", x)
    return with_parts(signal, pairs is not False and holds_pairs(signal, pairs))


def _spectra(x: Operand) -> Tensor:
    """Return an operand of pairs in float32."""
    spectra = in_float32("x", x)
    check_pairs("x", spectra)
    return spectra


def _forward(x: Tensor, n: int | None, axis: int, norm: str | None) -> Tensor:
    axis = axis_of(axis, x)
    return transformed(x, axis, length_of("n", n, x.sizes[axis]), norm)


@eager
def ifft(x: Operand, n: int | None = None, axis: int = -1, norm: str | None = None, *, device: Where = None) -> Array:
    """Return the signals of discrete Fourier transforms, the inverse of `fft`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        n: Length of the transform; defaults to None, the size of the axis. Elements beyond are dropped, missing ones
            are 0.
        axis: Axis of the signals, not counting that of the parts; negative axes count from the end. Defaults to the
            last.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, of `n` elements along the axis, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range or empty, `n` is not a positive integer, `norm` is none of the
            modes, or `x` has no such parts.

    Examples:
        >>> ops.fft.ifft(ops.fft.fft([1.0, 2.0, 3.0])).round(3)[:, 0].tolist()
        [1.0, 2.0, 3.0]

    See also:
        `fft`, `irfft`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) with matrices of up to 256 elements.
    """
    spectra = _spectra(x)
    axis = axis_of(axis, spectra)
    length = length_of("n", n, spectra.sizes[axis])
    return result_in(result_type(x), transformed(spectra, axis, length, norm, inverse=True))


@eager
def rfft(x: Operand, n: int | None = None, axis: int = -1, norm: str | None = None, *, device: Where = None) -> Array:
    """Return the half of the discrete Fourier transform of real signals that determines the rest.

    Args:
        x: Tensor or array of real numbers: float32, float16 or integers.
        n: Length of the transform; defaults to None, the size of the axis. Elements beyond are dropped, missing ones
            are 0.
        axis: Axis of the signals; negative axes count from the end. Defaults to the last.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, of `n // 2 + 1` frequencies along the axis, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range or empty, `n` is not a positive integer, `norm` is none of the
            modes.

    Examples:
        >>> ops.fft.rfft([1.0, 0.0, 0.0]).tolist()
        [[1.0, 0.0], [1.0, 0.0]]

    See also:
        `irfft`, `rfftfreq`, `fft`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) with matrices of up to 256 elements.
    """
    return result_in(result_type(x), _real_forward(_signal(x, False), n, axis, norm))


def _real_forward(x: Tensor, n: int | None, axis: int, norm: str | None) -> Tensor:
    axis = axis_of(axis, x)
    length = length_of("n", n, x.sizes[axis])
    return transformed(x, axis, length, norm, bins=length // 2 + 1)


@eager
def irfft(x: Operand, n: int | None = None, axis: int = -1, norm: str | None = None, *, device: Where = None) -> Array:
    """Return the real signals of one-sided discrete Fourier transforms, the inverse of `rfft`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        n: Length of the signals; defaults to None: 2 * (size - 1) for the size of the axis. Pass it for odd lengths.
        axis: Axis of the signals, not counting that of the parts; negative axes count from the end. Defaults to the
            last.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...} of real numbers, of `n` elements along the axis, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range or empty, `n` is not a positive integer, `norm` is none of the
            modes, or `x` has no such parts.

    Examples:
        >>> ops.fft.irfft(ops.fft.rfft([1.0, 2.0, 3.0]), n=3).round(3).tolist()
        [1.0, 2.0, 3.0]

    See also:
        `rfft`, `ifft`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) with matrices of up to 256 elements.
    """
    spectra = _spectra(x)
    return result_in(result_type(x), _real_backward(spectra, n, axis, norm))


def _real_backward(x: Tensor, n: int | None, axis: int, norm: str | None) -> Tensor:
    axis = axis_of(axis, x)
    return real_inverse(x, axis, length_of("n", n, 2 * (x.sizes[axis] - 1)), norm)


# ---- along several axes ----------------------------------------------------------------------------------------------


@eager
def fftn(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    pairs: bool | None = None,
    device: Where = None,
) -> Array:
    """Return the discrete Fourier transform of signals along several axes.

    Args:
        x: Tensor or array of real numbers, or with `pairs` of complex ones, {..., 2}: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals, not counting that of the parts; defaults to None: the last ones, as many as `s` has,
            all without `s`.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> ops.fft.fftn(np.ones((2, 3), np.float32))[..., 0].round(3).tolist()
        [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]]

    See also:
        `ifftn`, `fft2`, `rfftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    return result_in(result_type(x), _several(_signal(x, pairs), s, axes, norm, False))


def _several(x: Tensor, s: Lengths, axes: Sequence[int] | None, norm: str | None, inverse: bool) -> Tensor:
    for axis, length in axes_of(s, axes, x):
        x = transformed(x, axis, length_of("s", length, x.sizes[axis]), norm, inverse=inverse)
    return x


@eager
def ifftn(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the signals of discrete Fourier transforms along several axes, the inverse of `fftn`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals, not counting that of the parts; defaults to None: the last ones, as many as `s` has,
            all without `s`.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> bool(np.allclose(ops.fft.ifftn(ops.fft.fftn(x))[..., 0], x, atol=1e-5))
        True

    See also:
        `fftn`, `ifft2`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    spectra = _spectra(x)
    return result_in(result_type(x), _several(spectra, s, axes, norm, True))


@eager
def rfftn(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return half of the discrete Fourier transform of real signals along several axes.

    Args:
        x: Tensor or array of real numbers: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals; defaults to None: the last ones, as many as `s` has, all
            without `s`.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, of `n // 2 + 1` frequencies along the last of the axes, float16 if
        `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, or `norm`
            is none of the modes.

    Examples:
        >>> ops.fft.rfftn(np.ones((2, 3), np.float32))[..., 0].round(3).tolist()
        [[6.0, 0.0], [0.0, 0.0]]

    See also:
        `irfftn`, `rfft2`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    return result_in(result_type(x), _several_real(_signal(x, False), s, axes, norm))


def _several_real(x: Tensor, s: Lengths, axes: Sequence[int] | None, norm: str | None) -> Tensor:
    *others, (last, length) = axes_of(s, axes, x)
    x = _real_forward(x, length, last, norm)
    for axis, length in others:
        x = transformed(x, axis, length_of("s", length, x.sizes[axis]), norm)
    return x


@eager
def irfftn(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the real signals of one-sided transforms along several axes, the inverse of `rfftn`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        s: Lengths of the signals along the axes; defaults to None: the sizes of the axes, 2 * (size - 1) for the last.
        axes: Axes of the signals, not counting that of the parts; defaults to None: the last ones, as many as `s` has,
            all without `s`.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...} of real numbers, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> bool(np.allclose(ops.fft.irfftn(ops.fft.rfftn(x), s=(2, 3)), x, atol=1e-5))
        True

    See also:
        `rfftn`, `irfft2`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    spectra = _spectra(x)
    return result_in(result_type(x), _several_real_inverse(spectra, s, axes, norm))


def _several_real_inverse(x: Tensor, s: Lengths, axes: Sequence[int] | None, norm: str | None) -> Tensor:
    *others, (last, last_length) = axes_of(s, axes, x)
    for axis, length in others:
        x = transformed(x, axis, length_of("s", length, x.sizes[axis]), norm, inverse=True)
    return _real_backward(x, last_length, last, norm)


@eager
def fft2(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    pairs: bool | None = None,
    device: Where = None,
) -> Array:
    """Return the discrete Fourier transform of signals along two axes.

    Args:
        x: Tensor or array of real numbers, or with `pairs` of complex ones, {..., 2}: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals, not counting that of the parts; defaults to the last two.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> ops.fft.fft2(np.ones((2, 3), np.float32))[..., 0].round(3).tolist()
        [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]]

    See also:
        `ifft2`, `rfft2`, `fftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    return result_in(result_type(x), _several(_signal(x, pairs), s, axes, norm, False))


@eager
def ifft2(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the signals of discrete Fourier transforms along two axes, the inverse of `fft2`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals, not counting that of the parts; defaults to the last two.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> bool(np.allclose(ops.fft.ifft2(ops.fft.fft2(x))[..., 0], x, atol=1e-5))
        True

    See also:
        `fft2`, `ifftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    spectra = _spectra(x)
    return result_in(result_type(x), _several(spectra, s, axes, norm, True))


@eager
def rfft2(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return half of the discrete Fourier transform of real signals along two axes.

    Args:
        x: Tensor or array of real numbers: float32, float16 or integers.
        s: Lengths of the transforms along the axes; defaults to None, the sizes of the axes.
        axes: Axes of the signals; defaults to the last two.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., 2} of real and imaginary parts, of `n // 2 + 1` frequencies along the last of the axes, float16 if
        `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, or `norm`
            is none of the modes.

    Examples:
        >>> ops.fft.rfft2(np.ones((2, 3), np.float32))[..., 0].round(3).tolist()
        [[6.0, 0.0], [0.0, 0.0]]

    See also:
        `irfft2`, `rfftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    return result_in(result_type(x), _several_real(_signal(x, False), s, axes, norm))


@eager
def irfft2(
    x: Operand,
    s: Lengths = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the real signals of one-sided transforms along two axes, the inverse of `rfft2`.

    Args:
        x: Tensor or array {..., 2} of real and imaginary parts: float32, float16 or integers.
        s: Lengths of the signals along the axes; defaults to None: the sizes of the axes, 2 * (size - 1) for the last.
        axes: Axes of the signals, not counting that of the parts; defaults to the last two.
        norm: Which transforms are divided: ``"backward"`` or None, the default, the inverse by the length;
            ``"forward"`` the forward one; ``"ortho"`` both by the root of the length.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...} of real numbers, float16 if `x` is, else
        float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, empty or named twice, a length is not a positive integer, `norm` is
            none of the modes, or `x` has no such parts.

    Examples:
        >>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> bool(np.allclose(ops.fft.irfft2(ops.fft.rfft2(x), s=(2, 3)), x, atol=1e-5))
        True

    See also:
        `rfft2`, `irfftn`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`), one axis after the other.
    """
    spectra = _spectra(x)
    return result_in(result_type(x), _several_real_inverse(spectra, s, axes, norm))
