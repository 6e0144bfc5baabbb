"""Scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, some held out. Needs the ``train`` extra."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HELD_OUT = 360


@dataclass(frozen=True)
class Digits:
    """Images {count, 1, 8, 8} from 0 to 1, and the digits on them, UINT32 {count}."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.uint32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.uint32]


def load_digits(seed: int) -> Digits:
    """Return the digits, 360 that ``seed`` picks held out.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    from sklearn import datasets  # noqa: PLC0415  an extra

    found = datasets.load_digits()
    images = (found.images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = found.target.astype(np.uint32)
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train], images[test], labels[test])


def batch_order(count: int, steps: int, batch: int, seed: int) -> NDArray[np.uint32]:
    """Return which images each step takes, {steps, batch}: all ``count`` of them in a new order, again and again."""
    draw = np.random.default_rng([seed, 2])
    epochs = -(-steps * batch // count)
    numbers = np.concatenate([draw.permutation(count) for _ in range(epochs)])
    return numbers[: steps * batch].reshape(steps, batch).astype(np.uint32)
