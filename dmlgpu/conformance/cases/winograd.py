"""What Winograd's filtering adds up, for the bound of its rounding errors (see ``tolerance.Transformed``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Wide: TypeAlias = NDArray[np.float64]

WINDOW = 3

MATRICES: Mapping[int, tuple[Any, Any, Any]] = {
    2: (
        [[1, 1, 1, 0], [0, 1, -1, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    ),
    4: (
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
    ),
}
"""By tiles of m x m outputs: of output, filter and patch, as Lavin and Gray (arXiv:1509.09308) print them."""


def transformed_magnitude(
    images: Wide, filters: Wide, tile: int, *, start: Sequence[int], positions: Sequence[int]
) -> Wide:
    """What the absolute values come to, through all transforms.

    Args:
        images: {batch, groups, channels, height, width}.
        filters: {groups, outputs, channels, 3, 3}, as for a forward cross-correlation.
        tile: outputs of a tile along each dimension.
        start: padding before each spatial dimension.
        positions: sizes of the output.

    Returns:
        {batch, groups * outputs, *positions}.
    """
    output, of_filter, of_patch = (np.abs(np.array(matrix, np.float64)) for matrix in MATRICES[tile])
    down, across = (-(-size // tile) * tile for size in positions)
    padded = _padded(np.abs(images), start, (down + WINDOW - 1, across + WINDOW - 1))
    weights = np.einsum("ik,gockl,jl->goijc", of_filter, np.abs(filters), of_filter)
    result = np.zeros((*images.shape[:2], filters.shape[1], down, across))
    for row in range(0, down, tile):
        for column in range(0, across, tile):
            patch = padded[..., row : row + tile + WINDOW - 1, column : column + tile + WINDOW - 1]
            sums = np.einsum("ik,ngckl,jl,goijc->ngoij", of_patch, patch, of_patch, weights, optimize=True)
            transformed = np.einsum("ai,ngoij,bj->ngoab", output, sums, output, optimize=True)
            result[..., row : row + tile, column : column + tile] = transformed
    rows, columns = positions
    return result[..., :rows, :columns].reshape(len(images), -1, rows, columns)


def _padded(images: Wide, start: Sequence[int], sizes: Sequence[int]) -> Wide:
    """The images among zeros, cut off where they are larger."""
    padded = np.zeros((*images.shape[:3], *sizes))
    height, width = (min(n, size - at) for n, size, at in zip(images.shape[3:], sizes, start, strict=True))
    padded[..., start[0] : start[0] + height, start[1] : start[1] + width] = images[..., :height, :width]
    return padded
