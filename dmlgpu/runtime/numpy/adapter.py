"""The adapter that always exists; listing it must not load the reference."""

from __future__ import annotations

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
