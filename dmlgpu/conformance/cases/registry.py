"""The cases of every operator, one module per family, found by walking the package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases import families
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.operator_cases import REGISTRY, OperatorCases

for _module in pkgutil.iter_modules(families.__path__):
    importlib.import_module(f"{families.__name__}.{_module.name}")

OPERATOR_CASES: Mapping[str, OperatorCases] = MappingProxyType(dict(sorted(REGISTRY.items())))
"""The case object of each operator, by stem (``gather_nd1``)."""


def implemented() -> frozenset[str]:
    """DirectML's names of the operators that have cases."""
    return frozenset(stem.upper() for stem in OPERATOR_CASES)


def case_names(profile: str) -> tuple[str, ...]:
    """Names of all cases of a profile, one of PROFILES. The same on every call.

    Raises:
        InvalidArgument: For another profile.
    """
    return tuple(name for cases in OPERATOR_CASES.values() for name in cases.names(profile))


def case_by_name(name: str) -> Case:
    """Return the case with a name.

    Raises:
        InvalidArgument: If there is no such operator or case.
    """
    stem = name.partition("-")[0]
    if stem not in OPERATOR_CASES:
        raise InvalidArgument(f"{name!r} names no case; cases exist for {', '.join(OPERATOR_CASES)}")
    return OPERATOR_CASES[stem].case(name)
