"""Seeded inputs that resemble a model's real ones: audio, images, token ids, states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Settings = Mapping[str, Any]


def make(settings: Settings, sizes: Mapping[str, int], kind: np.dtype[Any], seed: tuple[int, ...]) -> Array:
    """Return an input.

    Args:
        settings: ``make``, one of the functions below; ``shape``, numbers and words; and what the function takes.
        sizes: what words stand for.
        kind: of the elements.
        seed: equal inputs for equal seeds.

    Raises:
        ValueError: no such function, or a word that stands for nothing.
    """
    if settings["make"] not in _MAKERS:
        raise ValueError(f"make must be one of {', '.join(_MAKERS)}, got {settings['make']!r}")
    shape = tuple(number(size, sizes) for size in settings["shape"])
    array = _MAKERS[settings["make"]](shape, settings, sizes, np.random.default_rng(seed))
    return np.ascontiguousarray(array).astype(kind).reshape(shape)


def number(value: Any, sizes: Mapping[str, int]) -> Any:
    """Return a number, or what a word stands for."""
    if not isinstance(value, str):
        return value
    if value not in sizes:
        raise ValueError(f"sizes must have {value!r}, got {dict(sizes)}")
    return sizes[value]


Random = np.random.Generator


def _sound(shape: tuple[int, ...], settings: Settings, _: Mapping[str, int], random: Random) -> Array:
    """Return a few tones that swell and fade, and noise, along the longest dimension."""
    axis = int(np.argmax(shape))
    time = np.arange(shape[axis]) / 16000
    row = np.zeros(time.shape)
    for tone in random.uniform(80, 2000, 5):
        row += random.uniform(0.1, 1) * np.sin(2 * np.pi * (tone * time + random.uniform()))
    row *= np.sin(2 * np.pi * (3 * time + random.uniform())) ** 2
    sizes = [1] * len(shape)
    sizes[axis] = -1
    waves = row.reshape(sizes) * random.uniform(0.3, 1, [1 if at == axis else size for at, size in enumerate(shape)])
    return _between(waves + 0.05 * random.standard_normal(shape), settings, -1.0, 1.0)


def _picture(shape: tuple[int, ...], settings: Settings, _: Mapping[str, int], random: Random) -> Array:
    """Return patches of colors with sharp edges, shaded, and a little noise, in the last two dimensions."""
    height, width = shape[-2:]
    patches = random.uniform(0, 1, (*shape[:-2], -(-height // 16), -(-width // 16)))
    picture = np.repeat(np.repeat(patches, 16, -2), 16, -1)[..., :height, :width]
    shade = np.linspace(0.7, 1, height)[:, None] * np.linspace(1, 0.8, width)[None, :]
    return _between(picture * shade + 0.02 * random.standard_normal(shape), settings, 0.0, 1.0)


def _between(array: Array, settings: Settings, low: float, high: float) -> Array:
    """Return numbers scaled from their own range to the requested one."""
    low, high = settings.get("low", low), settings.get("high", high)
    least, most = float(array.min()), float(array.max())
    return low + (array - least) * ((high - low) / max(most - least, 1e-12))


def _normal(shape: tuple[int, ...], settings: Settings, _: Mapping[str, int], random: Random) -> Array:
    return random.standard_normal(shape) * settings.get("scale", 1.0)


def _spikes(shape: tuple[int, ...], _: Settings, __: Mapping[str, int], random: Random) -> Array:
    """Return zeros with scattered loud bands, as in spectrograms of speech."""
    noise = random.standard_normal(shape)
    return np.where(noise > 1.5, 5 * noise, 0)


def _integers(shape: tuple[int, ...], settings: Settings, _: Mapping[str, int], random: Random) -> Array:
    """Return integers from ``low`` on, less than ``high``."""
    return random.integers(settings["low"], settings["high"], shape)


def _mask(shape: tuple[int, ...], _: Settings, __: Mapping[str, int], ___: Random) -> Array:
    """Return rows of ones, each but the first with some zeros more at its end."""
    count, length = shape
    lengths = np.maximum(length - 3 * np.arange(count), 1)
    return np.arange(length)[None, :] < lengths[:, None]


def _constant(shape: tuple[int, ...], settings: Settings, sizes: Mapping[str, int], _: Random) -> Array:
    return np.full(shape, number(settings["value"], sizes))


def _zeros(shape: tuple[int, ...], _: Settings, __: Mapping[str, int], ___: Random) -> Array:
    return np.zeros(shape)


_MAKERS: Mapping[str, Callable[[tuple[int, ...], Settings, Mapping[str, int], Random], Array]] = {
    "sound": _sound,
    "picture": _picture,
    "normal": _normal,
    "spikes": _spikes,
    "integers": _integers,
    "mask": _mask,
    "constant": _constant,
    "zeros": _zeros,
}
