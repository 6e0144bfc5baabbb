"""Tensors created by rule: ranges, identity matrices, triangles and their indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from dmlgpu import ops
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.frontends.torch.dtypes import cast, data_type_of
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.ops.creation import diagonals
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing import compiled

_IF = directml.element_wise_if


def _zeros(dtype: torch.dtype, sizes: tuple[int, ...], device: Any) -> Any:
    data_type, is_boolean = data_type_of(dtype)
    return ops.zeros(sizes, dtype="bool" if is_boolean else data_type, device=device)


@aten("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Return evenly spaced numbers; for floats, their number is computed in float64, as in PyTorch."""
    numbers = (start, end, step)
    if all(type(number) in {int, float} for number in numbers) and (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is None:
        dtype = torch.get_default_dtype() if any(isinstance(number, float) for number in numbers) else torch.int64
    if not dtype.is_floating_point:
        start, end, step = map(math.trunc, numbers)
        count = max(-((start - end) // step), 0)
    else:
        count = max(math.ceil((end - start) / step), 0)
        start, step = float(start), float(step)
    if not count:
        return _zeros(dtype, (0,), device)
    if dtype.is_floating_point:
        places = ops.arange(count, dtype="float32", device=device)
    else:
        places = ops.arange(count, dtype="int64", device=device)
    places = places if _is(step, 1) else places * step
    return cast(places if _is(start, 0) else places + start, dtype)


def _is(number: Any, value: int) -> bool:
    """Return whether a number has a value; False for one that depends on sizes, which must not be compared."""
    return not is_symbolic(number) and number == value


@aten("arange")
def arange_of_end(end: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return arange(0, end, dtype=dtype, device=device)


@aten("arange.start")
def arange_of_start(start: Any, end: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return arange(start, end, dtype=dtype, device=device)


def _spaced(start: Any, end: Any, steps: int, device: Any) -> Any:
    """Return numbers from one to another, counted from the nearer end, in float32."""
    if steps < 2:
        if isinstance(start, Tensor):
            return cast(start, torch.float32).reshape(1)[:steps]
        return ops.full((steps,), float(start), dtype="float32", device=device)
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        device = (start if isinstance(start, Tensor) else end).device
        start, end = (
            cast(bound, torch.float32) if isinstance(bound, Tensor) else float(bound) for bound in (start, end)
        )
    elif recorder() is None:  # in memory, since numbers are constants of the compiled function
        numbers = float(start), float(end), (float(end) - float(start)) / (steps - 1)
        first, last, step = (Tensor(number, "float32", device=device) for number in numbers)
        return _compiled_steps(first, last, step, steps)
    else:
        start, end = float(start), float(end)
    step = (end - start) * (1 / (steps - 1)) if isinstance(end - start, Tensor) else (end - start) / (steps - 1)
    return _steps(start, end, step, steps, device)


def _steps(start: Any, end: Any, step: Any, steps: int, device: Any = None) -> Any:
    """Return numbers counted from the nearer end."""
    places = ops.arange(steps, dtype="float32", device=device or start.device)
    back = (steps - 1) - places
    return _IF(places < steps / 2, places * step + start, directml.element_wise_subtract(end, back * step))


_compiled_steps = compiled.compile(_steps)


_LINSPACE = "", ".Tensor_Tensor", ".Tensor_Scalar", ".Scalar_Tensor"


@aten(*(f"linspace{kind}" for kind in _LINSPACE))
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    kind = torch.get_default_dtype() if dtype is None else dtype
    if not kind.is_floating_point and not isinstance(start, Tensor) and not isinstance(end, Tensor):
        return _whole_linspace(start, end, steps, kind, device)
    return cast(_spaced(start, end, steps, device), kind)


def _whole_linspace(start: Any, end: Any, steps: int, dtype: torch.dtype, device: Any) -> Any:
    """Return integers as PyTorch truncates them: float32 steps from the nearer end."""
    step = np.float32(np.float32(end) - np.float32(start)) / np.float32(max(steps - 1, 1))
    places = np.arange(steps)
    half = steps // 2
    values = (
        np.where(places < half, int(start) + step * places, int(end) - step * (steps - places - 1))
        if steps > 1
        else np.full(steps, start)
    )
    return Tensor(np.trunc(values).astype(data_type_of(dtype)[0].numpy), device=device)


@aten(*(f"logspace{kind}" for kind in _LINSPACE))
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None, device: Any = None
) -> Any:
    kind = torch.get_default_dtype() if dtype is None else dtype
    places = _spaced(start, end, steps, device)
    if not places.size:
        return cast(places, kind)
    return cast(directml.element_wise_pow(float(base), places), kind)


@aten("eye.m", fused=True)
def eye_of_sizes(n: int, m: int, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    data_type, is_boolean = data_type_of(dtype or torch.get_default_dtype())
    return ops.eye(n, m, dtype="bool" if is_boolean else data_type, device=device)


@aten("eye", fused=True)
def eye(n: int, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return eye_of_sizes(n, n, dtype=dtype, device=device)


@aten("_efficientzerotensor")
def zero_gradient(size: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Return zeros, the gradients of constants."""
    return _zeros(dtype or torch.get_default_dtype(), tuple(size), device)


# ---- triangles -------------------------------------------------------------------------------------------------------


def _triangle(x: Any, diagonal: int, is_lower: bool) -> Any:
    if not x.size:
        return x
    places = diagonals((x.sizes[-2], x.sizes[-1]), x.device)
    mask = (places <= diagonal) if is_lower else (places >= diagonal)
    return _IF(mask, x, False if x.is_boolean else 0)


@aten("tril", fused=True)
def tril(x: Any, diagonal: int = 0) -> Any:
    return _triangle(x, diagonal, True)


@aten("triu", fused=True)
def triu(x: Any, diagonal: int = 0) -> Any:
    return _triangle(x, diagonal, False)


def _indices(places: Any, dtype: torch.dtype | None, device: Any) -> Any:
    return cast(Tensor(np.stack(places).astype(np.int64), device=device), dtype or torch.int64)


@aten("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return _indices(np.tril_indices(row, offset, col), dtype, device)


@aten("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return _indices(np.triu_indices(row, offset, col), dtype, device)
