"""The namespace of the Python array API standard, 2024.12, on ``dmlgpu.Tensor``.

    import dmlgpu.array as xp

    x = xp.linspace(0.0, 1.0, 5)
    xp.mean(x[x > 0.2])

Functions, arguments and results are those of the standard, https://data-apis.org/array-api. They are computed by
``dmlgpu.ops`` on the device of the tensors, and so are combinations of dtypes that the standard leaves undefined, as in
NumPy. ``float16`` is available in addition to the standard's dtypes; ``float64`` and complex dtypes are rejected,
because adapters cannot compute them. The extensions ``linalg`` and ``fft`` are not offered.

Examples of the functions assume ``import dmlgpu.array as xp`` and ``import numpy as np``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dmlgpu.array import creation, data_types, elementwise, linear_algebra, manipulation, searching, statistical
from dmlgpu.array.creation import *  # noqa: F403
from dmlgpu.array.data_types import *  # noqa: F403
from dmlgpu.array.elementwise import *  # noqa: F403
from dmlgpu.array.linear_algebra import *  # noqa: F403
from dmlgpu.array.manipulation import *  # noqa: F403
from dmlgpu.array.searching import *  # noqa: F403
from dmlgpu.array.statistical import *  # noqa: F403
from dmlgpu.common.suggestions import suggestion

__array_api_version__ = "2024.12"

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Versions of the standard that ``__array_namespace__`` answers to."""

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

_MODULES = (creation, data_types, elementwise, linear_algebra, manipulation, searching, statistical)

__all__ = sorted(  # noqa: PLE0605
    [
        "__array_api_version__",
        "e",
        "inf",
        "nan",
        "newaxis",
        "pi",
        *(name for module in _MODULES for name in module.__all__),
    ]
)


if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> Any:
        message = f"module {__name__!r} has no attribute {name!r}{suggestion(name, __name__)}"
        raise AttributeError(message, name=name, obj=None)  # without an obj Python adds no suggestion of its own


def __dir__() -> list[str]:
    return __all__
