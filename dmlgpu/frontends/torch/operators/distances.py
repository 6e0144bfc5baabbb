"""Distances between rows, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.tensor import Tensor

_FUNCTIONS = {1.0: ReduceFunction.L1, 2.0: ReduceFunction.L2, math.inf: ReduceFunction.MAX}


def _norms(differences: Tensor, p: float) -> Tensor:
    """Return the p-norm along the last axis."""
    if p in _FUNCTIONS:
        values = abs(differences) if p == math.inf else differences
        return reduced(values, _FUNCTIONS[p], -1, False)
    if p == 0:
        return reduced((differences != 0).astype(differences.data_type), ReduceFunction.SUM, -1, False)
    powers = abs(differences) ** p
    result: Tensor = reduced(powers, ReduceFunction.SUM, -1, False) ** (1 / p)
    return result


def _norm_slopes(differences: Tensor, norms: Tensor, p: float) -> Tensor:
    """Return the derivatives of p-norms along the last axis; 0 where a norm is 0."""
    norms = norms.expand_dims(norms.ndim)
    signs: Any = directml.element_wise_sign(differences)
    if p == 0:
        return filled(differences, (1,) * differences.ndim).broadcast_to(differences.sizes)
    if p == 1:
        result = signs
    elif p == math.inf:
        result = signs * (abs(differences) == norms).astype(signs.data_type)
    elif p == 2:
        result = differences / norms._chosen(norms > 0, 1.0)
    else:
        # |d|^(p - 1) may be infinite at 0 for p < 1, where the derivative counts as 0.
        shares = abs(differences) / norms._chosen(norms > 0, 1.0)
        result = signs * shares._chosen(shares > 0, 1.0) ** (p - 1)
    slopes: Tensor = result
    return slopes


def _differences(a: Tensor, b: Tensor) -> Tensor:
    """Return the differences of all pairs of rows {..., A, B, width}."""
    result: Tensor = a.expand_dims(a.ndim - 1) - b.expand_dims(b.ndim - 2)
    return result


@aten("_cdist_forward", wide=True)
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Return the distance of each row of `a` to each row of `b`."""
    leading = np.broadcast_shapes(a.sizes[:-2], b.sizes[:-2])
    sizes = (*leading, a.sizes[-2], b.sizes[-2])
    if 0 in sizes or not a.sizes[-1]:
        return filled(a, sizes)
    return _norms(_differences(a, b), float(p))


@aten("_cdist_backward", wide=True)
def cdist_backward(gradient: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """Return the gradient of the first operand of `_cdist_forward`."""
    sizes = (*distances.sizes[:-2], *a.sizes[-2:])
    if not gradient.size or not a.size:
        return filled(a, a.sizes)
    slopes = _norm_slopes(_differences(a, b), distances, float(p))
    result = total(slopes * gradient.expand_dims(gradient.ndim), (slopes.ndim - 2,))
    of_first: Tensor = result.reshape(sizes)
    return of_first


def _pairs(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and second row of each pair."""
    first, second = np.triu_indices(count, 1)
    return like._beside(first.astype(np.int32)), like._beside(second.astype(np.int32))


@aten("_pdist_forward", wide=True)
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """Return the distance of each pair of rows."""
    count = x.sizes[0]
    if count < 2 or not x.sizes[1]:
        return filled(x, (count * (count - 1) // 2 if count else 0,))
    first, second = (x._taken(rows, 0, "pdist") for rows in _pairs(count, x))
    return _norms(first - second, float(p))


@aten("_pdist_backward", wide=True)
def pdist_backward(gradient: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    """Return the gradient of the rows of `_pdist_forward`."""
    count = x.sizes[0]
    if not gradient.size or not x.size:
        return filled(x, x.sizes)
    places = np.zeros((count, count), np.int32)
    places[np.triu_indices(count, 1)] = np.arange(distances.sizes[0])
    index = x._beside((places + places.T).reshape(-1))
    shape = (count, count)
    values, weights = (tensor._taken(index, 0, "pdist").reshape(shape) for tensor in (distances, gradient))
    slopes = _norm_slopes(_differences(x, x), values, float(p))
    off_diagonal = x._beside(1 - np.eye(count, dtype=x.dtype))
    result: Tensor = total(slopes * (weights * off_diagonal).expand_dims(2), (1,)).squeeze(1)
    return result
