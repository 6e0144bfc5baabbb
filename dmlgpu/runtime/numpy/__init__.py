"""The executor on host memory: the NumPy reference as an adapter. Listing it does not load the reference."""

import platform

import numpy as np

from dmlgpu.compiler.target import AdapterInfo

NUMPY_ADAPTER = AdapterInfo(
    name="numpy",
    backend="NumPy",
    kind="cpu",
    vendor="NumPy developers",
    driver=f"NumPy {np.__version__}, Python {platform.python_version()}",
)
"""The NumPy reference as an adapter."""
