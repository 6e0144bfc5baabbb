"""PyTorch versions: the oldest that works, those that are tested, and private names, which any version may remove."""

from __future__ import annotations

import pkgutil
from typing import Any

import torch

from dmlgpu.common.errors import NotSupported, cause_of

INSTALLED = tuple(int(number) for number in torch.__version__.split(".")[:2])
OLDEST = 2, 13
TESTED = "2.13.0", "2.14.1", "2.15.0"
"""Versions that pass the tests; private names were read in each of them unless their line names some."""


def check_version() -> None:
    """Check that the installed PyTorch is new enough.

    Raises:
        NotSupported: If it is not.
    """
    if INSTALLED < OLDEST:
        raise NotSupported(f"dmlgpu.torch: PyTorch 2.13 or later must be installed, got {torch.__version__}")


def private(*names: str) -> Any:
    """Return the object of a private name of PyTorch.

    Args:
        names: Dotted name; if versions have different ones, that of the newest version first.

    Raises:
        NotSupported: If the installed PyTorch has none of them; says which versions do.
    """
    failure: Exception | None = None
    for name in names:
        try:
            return pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            failure = error
    raise NotSupported(
        f"dmlgpu.torch: the installed PyTorch {torch.__version__} lacks {' and '.join(names)}, which dmlgpu needs. "
        f"Tested versions are {', '.join(TESTED)}: install one of them (pip install torch=={TESTED[-1]}), "
        "and report this message to dmlgpu's maintainers"
    ) from (None if failure is None else cause_of(failure))
