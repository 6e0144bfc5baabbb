"""What the namespace is able to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.array.operands import KINDS, Where
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shared import as_device, default_device, shared_devices

__all__ = ["__array_namespace_info__"]


class NamespaceInfo:
    """What ``__array_namespace_info__`` returns."""

    def capabilities(self) -> dict[str, Any]:
        """Return what is possible: truth values as indices, sizes that depend on values, and how many dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMENSIONS}

    def default_device(self) -> Device:
        """Return the device on which arrays are made where none is named."""
        return default_device()

    def default_dtypes(self, *, device: Where = None) -> dict[str, np.dtype[Any]]:
        """Return the types that numbers of Python's become; there is none for complex ones.

        Raises:
            InvalidArgument: no device; AdapterNotFound: no adapter of the name.
        """
        as_device("default_dtypes", device)
        return {
            "real floating": np.dtype("float32"),
            "integral": np.dtype("int64"),
            "indexing": np.dtype("int64"),
        }

    def dtypes(self, *, device: Where = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """Return the types of the standard that a device computes, by name.

        Args:
            device: all devices compute the same ones.
            kind: one of the standard's, or several; None is all.

        Raises:
            InvalidArgument: no device, or no kind; AdapterNotFound: no adapter of the name.
        """
        as_device("dtypes", device)
        wanted = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in wanted:
            if not isinstance(one, str) or one not in KINDS:
                raise InvalidArgument(f"dtypes: kind must be one of {', '.join(KINDS)}, or several, got {shown(one)}")
        names = dict.fromkeys(name for one in wanted for name in KINDS[one])
        return {name: np.dtype(name) for name in names}

    def devices(self) -> list[Device]:
        """Return the default device and the others that this process has opened by the names of their adapters; the
        names of further adapters are devices, too (see ``dmlgpu.adapters``)."""
        opened = [one for one in shared_devices() if one is not default_device()]
        return [default_device(), *opened]


def __array_namespace_info__() -> NamespaceInfo:
    """Return what the namespace is able to do."""
    return NamespaceInfo()
