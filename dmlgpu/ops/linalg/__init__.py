"""Linear algebra on tensors and arrays, with the names and arguments of ``numpy.linalg``.

    from dmlgpu import ops

    x = ops.linalg.solve(a, b)
    U, S, Vh = ops.linalg.svd(a, full_matrices=False)

Leading axes are those of a batch, whose matrices are computed at the same time, column by column. Everything is
computed in float32, also of float16, in which the result is returned then. Nothing is read from the device: where NumPy
raises LinAlgError, of singular matrices for instance, results have inf or NaN.

Examples of the functions assume ``import numpy as np`` and ``from dmlgpu import Tensor, ops``.
"""

from __future__ import annotations

from dmlgpu.ops.linalg import decompositions, norms, products, systems
from dmlgpu.ops.linalg.decompositions import *  # noqa: F403
from dmlgpu.ops.linalg.norms import *  # noqa: F403
from dmlgpu.ops.linalg.products import *  # noqa: F403
from dmlgpu.ops.linalg.systems import *  # noqa: F403

__all__ = sorted(  # noqa: PLE0605
    name for module in (decompositions, norms, products, systems) for name in module.__all__
)


def __dir__() -> list[str]:
    return __all__
