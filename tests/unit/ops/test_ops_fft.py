"""``ops.fft`` against NumPy in float64: lengths, axes, norms, dtypes, strides, empty tensors, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.signal

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from tests.unit.tensors.gradients.gradient_checks import check, draw

fft = ops.fft
RNG = np.random.default_rng(17)
LENGTHS = (1, 2, 3, 5, 8, 97, 256, 257, 258, 300, 514, 1009, 2187, 4093, 4096)
"""Powers of two and of three, primes and their doubles, on both sides of the longest matrix."""


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Arrays are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def complex_of(pairs: Any) -> Any:
    return pairs[..., 0].astype(np.float64) + 1j * pairs[..., 1]


def pairs_of(numbers: Any) -> Any:
    return np.stack([numbers.real, numbers.imag], -1)


def assert_near(actual: Any, expected: Any, what: str, tolerance: float = 2e-6) -> None:
    """Errors are relative to the largest magnitude."""
    assert actual.shape == expected.shape, what
    error = np.abs(actual - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30)
    assert error < tolerance, f"{what}: {error}"


@pytest.mark.slow
def test_lengths() -> None:
    for length in LENGTHS:
        x = RNG.standard_normal((2, length)).astype(np.float32)
        z = RNG.standard_normal((2, length, 2)).astype(np.float32)
        for norm in (None, "ortho", "forward") if length < 300 else (None,):
            what = f"{length}, {norm}"
            assert_near(complex_of(fft.fft(x, norm=norm, pairs=False)), np.fft.fft(x, norm=norm), what)
            assert_near(complex_of(fft.fft(z, norm=norm, pairs=True)), np.fft.fft(complex_of(z), norm=norm), what)
            assert_near(complex_of(fft.ifft(z, norm=norm)), np.fft.ifft(complex_of(z), norm=norm), what)
            assert_near(complex_of(fft.rfft(x, norm=norm)), np.fft.rfft(x, norm=norm), what)
            for signals in (length, length + 1):
                expected = np.fft.irfft(complex_of(z), signals, norm=norm)
                assert_near(fft.irfft(z, signals, norm=norm), expected, f"{what}, {signals}")


def test_axes_lengths_and_strides() -> None:
    x = RNG.standard_normal((3, 6, 5)).astype(np.float32)
    z = RNG.standard_normal((3, 6, 5, 2)).astype(np.float32)
    for axis in (0, 1, -1, -3):
        for length in (None, 2, 4, 9):
            what = f"axis {axis}, n {length}"
            for operand, array in (
                (Tensor(x), x),
                (Tensor(x)[:, ::2].transpose(2, 0, 1), x[:, ::2].transpose(2, 0, 1)),
            ):
                expected = np.fft.rfft(array, length, axis)
                assert_near(complex_of(fft.rfft(operand, length, axis).numpy()), expected, what)
                expected = np.fft.fft(array, length, axis)
                assert_near(complex_of(fft.fft(operand, length, axis).numpy()), expected, what)
            numbers = complex_of(z)
            assert_near(complex_of(fft.fft(z, length, axis, pairs=True)), np.fft.fft(numbers, length, axis), what)
            assert_near(complex_of(fft.ifft(z, length, axis)), np.fft.ifft(numbers, length, axis), what)
            assert_near(fft.irfft(z, length, axis), np.fft.irfft(numbers, length, axis), what)
    assert fft.rfft(x.astype(np.float16)).dtype == np.float16
    assert_near(complex_of(fft.rfft(np.arange(8))), np.fft.rfft(np.arange(8)), "integers")


def test_several_axes() -> None:
    x = RNG.standard_normal((4, 6, 5)).astype(np.float32)
    for name in ("fftn", "rfftn", "fft2", "rfft2"):
        for axes in (None, (0, 1), (-1, 0), (1,)):
            for lengths in (None, (3, 7)):
                if lengths is not None and axes is not None and len(axes) != len(lengths):
                    continue
                options: dict[str, Any] = {} if lengths is None else {"s": lengths}
                if axes is not None or lengths is not None:
                    options["axes"] = (-2, -1) if axes is None else axes
                expected = getattr(np.fft, name)(x, **options)
                assert_near(complex_of(getattr(fft, name)(x, **options)), expected, f"{name} {options}")
                inverse = getattr(np.fft, f"i{name}")(expected, **options)
                actual = getattr(fft, f"i{name}")(pairs_of(expected).astype(np.float32), **options)
                actual = actual if name.startswith("r") else complex_of(actual)
                assert_near(actual, inverse, f"i{name} {options}")
    z = RNG.standard_normal((3, 4, 2)).astype(np.float32)
    assert_near(complex_of(fft.fftn(z, pairs=True)), np.fft.fftn(complex_of(z)), "pairs")
    assert_near(complex_of(fft.fft2(z, pairs=True)), np.fft.fft2(complex_of(z)), "pairs")


def test_frequencies() -> None:
    for n in (1, 2, 5, 8):
        for d in (1, 0.5, -3):
            np.testing.assert_allclose(fft.fftfreq(n, d).numpy(), np.fft.fftfreq(n, d), rtol=1e-6)
            np.testing.assert_allclose(fft.rfftfreq(n, d).numpy(), np.fft.rfftfreq(n, d), rtol=1e-6)
    x = RNG.integers(0, 99, (4, 5, 2))
    for axes in (None, 0, (0, 1)):
        for shift in ("fftshift", "ifftshift"):
            expected = getattr(np.fft, shift)(complex_of(x), axes)
            assert np.array_equal(complex_of(getattr(fft, shift)(x, axes, pairs=True)), expected)
            assert np.array_equal(getattr(fft, shift)(x, axes, pairs=False), getattr(np.fft, shift)(x, axes))


def test_windows() -> None:
    x = RNG.standard_normal((2, 3, 100)).astype(np.float32)
    for length, hop, size, pad_mode in [
        (16, None, None, "reflect"),
        (15, 4, None, "constant"),
        (16, 5, 12, "edge"),
        (64, 9, 64, "reflect"),
    ]:
        window = None if size is None else scipy.signal.get_window("hamming", size).astype(np.float32)
        whole = np.ones(length) if window is None else np.pad(window, ((length - size) // 2, (length - size + 1) // 2))
        step = hop or length // 4
        for center in (True, False):
            margin = length // 2 if center else 0
            padded = np.pad(x.astype(float), ((0, 0), (0, 0), (margin, margin)), pad_mode)
            frames = np.lib.stride_tricks.sliding_window_view(padded, length, -1)[..., ::step, :] * whole
            actual = fft.stft(x, length, hop, size, window, center, pad_mode)
            assert_near(complex_of(actual), np.fft.rfft(frames).swapaxes(-1, -2), f"{length}, {hop}, {size}, {center}")
            full = fft.stft(x, length, hop, size, window, center, pad_mode, normalized=True, onesided=False)
            expected = np.fft.fft(frames, norm="ortho").swapaxes(-1, -2)
            assert_near(complex_of(full), expected, f"{length}, {hop}, {size}, {center}, all frequencies")
        result = fft.istft(fft.stft(x, length, hop, size, window), length, hop, size, window)
        assert result.shape[-1] <= 100
        assert_near(result, x[..., : result.shape[-1]].astype(float), f"{length}, {hop}, {size}: inverse", 1e-5)
        extended = fft.istft(fft.stft(x, length, hop, size, window), length, hop, size, window, length=130)
        assert extended.shape[-1] == 130 and np.array_equal(extended[..., :90], result[..., :90])
    z = RNG.standard_normal((2, 40, 2)).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(complex_of(z), 16, -1)[:, ::4]
    actual = fft.stft(z, 16, center=False, pairs=True)
    assert_near(complex_of(actual), np.fft.fft(frames).swapaxes(-1, -2), "pairs")


def test_tensors_without_elements() -> None:
    assert fft.fft(np.zeros((0, 4), np.float32)).shape == (0, 4, 2)
    assert fft.rfft(np.zeros((0, 4), np.float32)).shape == (0, 3, 2)
    assert fft.irfft(np.zeros((0, 3, 2), np.float32)).shape == (0, 4)
    assert fft.ifft(np.zeros((0, 3, 2), np.float32)).shape == (0, 3, 2)
    assert fft.fft(np.zeros((3, 0), np.float32), n=4).tolist() == np.zeros((3, 4, 2)).tolist()
    assert fft.stft(np.zeros((0, 20), np.float32), 8).shape == (0, 5, 11, 2)
    assert fft.istft(np.zeros((0, 5, 3, 2), np.float32), 8).shape == (0, 4)


def test_errors() -> None:
    pairs = np.ones((4, 2), np.float32)
    signal = np.ones(8, np.float32)
    for call, message in {
        lambda: fft.fft(pairs): "fft: pairs must be True if the last axis of x, of size 2",
        lambda: fft.fftshift(pairs): "fftshift: pairs must be True if",
        lambda: fft.stft(pairs, 2): "stft: pairs must be True if",
        lambda: fft.fft(pairs, pairs=1): "fft: pairs must be a bool, got 1",
        lambda: fft.fft(signal, pairs=True): "fft: x must have real and imaginary parts in a last axis of size 2",
        lambda: fft.ifft(signal): "ifft: x must have real and imaginary parts",
        lambda: fft.irfft(signal): "irfft: x must have real and imaginary parts",
        lambda: fft.fft(signal, n=0): "fft: n must be an integer from 1 to 4194304, got 0",
        lambda: fft.rfft(signal, n=2**62): "rfft: n must be an integer from 1",
        lambda: fft.rfft(signal, n=2.0): "rfft: n must be an integer from 1",
        lambda: fft.rfft(signal[:0]): "rfft: n must be an integer from 1 to 4194304, got an axis of size 0",
        lambda: fft.irfft(pairs[:1]): "irfft: n must be an integer from 1 to 4194304, got an axis of size 0",
        lambda: fft.fft(signal, axis=1): "fft: axis must be an integer between -1 and 0",
        lambda: fft.fft(signal, norm="half"): "fft: norm must be None, 'backward', 'ortho' or 'forward', got 'half'",
        lambda: fft.fft(signal * 1j): "fft: x must be an array of real numbers, got NumPy type complex64",
        lambda: fft.fft(1.0): "fft: x must be a Tensor or an array, got float",
        lambda: fft.fftn(signal, s=(2, 2)): "fftn: s must have at most 1 lengths",
        lambda: fft.fftn(signal, axes=(0, 0)): "fftn: axes must name each axis once",
        lambda: fft.fftn(signal, axes=()): "fftn: axes must name at least one axis",
        lambda: fft.fftn(signal, axes=0): "fftn: axes must be a sequence of integers or None, got 0",
        lambda: fft.fftfreq(4, 0): "fftfreq: d must be a number other than 0",
        lambda: fft.stft(signal, 16): "stft: x must have more than n_fft // 2 elements, 8, got sizes [8]",
        lambda: fft.stft(signal, 16, center=False): "stft: x must have at least n_fft elements, 16",
        lambda: fft.stft(signal, 4, window=np.ones(5)): "stft: win_length must be at most n_fft, 4, got 5",
        lambda: fft.stft(signal, 4, win_length=2, window=np.ones(3)): "stft: window must have win_length elements, 2",
        lambda: fft.stft(signal, 4, pad_mode="wrap"): "stft: pad_mode must be 'reflect' or 'constant' or 'edge'",
        lambda: fft.istft(np.ones((4, 2, 2)), 8): "istft: x must have sizes {..., 5, windows, 2}",
    }.items():  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert str(caught.value).startswith(message)


def test_gradients() -> None:
    check(fft.rfft, lambda a: pairs_of(np.fft.rfft(a)), draw(2, 9))
    check(lambda x: fft.fft(x)[:4], lambda a: pairs_of(np.fft.fft(a))[:4], draw(257), tolerance=2e-3)
    check(lambda x: fft.irfft(x, 9), lambda a: np.fft.irfft(complex_of(a), 9), draw(2, 5, 2))
    window = np.hanning(10)[1:-1].astype(np.float32)
    round_trip = lambda x: fft.istft(fft.stft(x, 8, 2, window=window), 8, 2, window=window)  # noqa: E731
    check(round_trip, lambda a: a, draw(20))


def test_compiled() -> None:
    x = RNG.standard_normal((2, 300)).astype(np.float32)
    transform = dmlgpu.compile(lambda x: ops.norm(fft.rfft(x), axis=-1))
    assert_near(transform(x), np.abs(np.fft.rfft(x)), "compiled")
