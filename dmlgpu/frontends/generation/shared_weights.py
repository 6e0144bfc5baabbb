"""Weights shared between networks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.common.errors import abridged
from dmlgpu.frontends.onnx.values import OnnxValue

_SAMPLED = 64

_Converted = TypeVar("_Converted")


class SharedWeights:
    """Weights of several networks; equal ones share an object."""

    def __init__(self) -> None:
        self._by_sample: dict[tuple[Any, ...], list[OnnxValue]] = {}
        self._converted: dict[tuple[int, Hashable], Any] = {}

    def of(self, tensor: TensorProto, folder: Path | None) -> OnnxValue:
        """Return the value of an initializer.

        Raises:
            ModelError: If its data are missing, or have another size.
            NotSupported: If its type is not supported.
        """
        value = OnnxValue.of_tensor(tensor, f"initializer {abridged(tensor.name)!r}", folder)
        candidates = self._by_sample.setdefault((value.shape, value.data_type, value.is_bool, _sample(value)), [])
        for candidate in candidates:
            if np.array_equal(_raw(candidate), _raw(value)):
                return candidate
        candidates.append(value)
        return value

    def converted(self, value: OnnxValue, convert: Callable[[NDArray[Any]], _Converted]) -> _Converted:
        """Apply a function of the package to a value of ``of``, once for all networks."""
        key = id(value), convert
        if key not in self._converted:
            assert value.array is not None
            self._converted[key] = convert(value.array)
        result: _Converted = self._converted[key]
        return result


def _raw(value: OnnxValue) -> NDArray[np.uint8]:
    assert value.array is not None
    return np.ascontiguousarray(value.array).reshape(-1).view(np.uint8)


def _sample(value: OnnxValue) -> bytes:
    """Return a sample of bytes in which different arrays usually differ, to avoid full comparisons."""
    raw = _raw(value)
    return raw[:: max(1, raw.size // _SAMPLED)].tobytes()
