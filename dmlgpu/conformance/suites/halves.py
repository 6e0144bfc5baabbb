"""The suite of all halves: every float16 value through every element-wise operator and activation of one tensor.

A case's name is an operator's with ``halves`` after the stem: ``activation_elu-halves-float16-65536-packed-s1``. The
operator's attributes come from the seed, so that one with parameters is run with several sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.accuracy.functions import FUNCTIONS
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import Layout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.suites.operators import CaseSuite

INFIX = "-halves-"
COUNT = 1 << 16
PARAMETER_SETS = {"quick": 1, "standard": 3, "full": 12}
"""How often an operator with attributes is run."""


def is_unary(cases: OperatorCases) -> bool:
    """Whether an operator computes each element from one element; CAST does, rows of SOFTMAX do not."""
    schema = cases.schema
    is_elementwise = cases.stem.startswith(("element_wise_", "activation_", "cast")) and "max" not in cases.stem
    return is_elementwise and [field.kind for field in schema.tensor_fields] == ["input", "output"]


def all_halves() -> np.ndarray:
    """Every value of float16, NaN with all payloads among them."""
    return np.arange(COUNT, dtype=np.uint16).view(np.float16)


def _types(cases: OperatorCases) -> tuple[Types, ...]:
    """The combinations of types that read float16."""
    return tuple(types for types in cases.types if types[0] is DataType.FLOAT16)


def _has_attributes(cases: OperatorCases) -> bool:
    tensors = {field.name for field in cases.schema.tensor_fields}
    return any(field.name not in tensors and field.type != "SCALE_BIAS" for field in cases.schema.python_fields)


class HalvesSuite(CaseSuite):
    """Every operator of one tensor that takes float16.

    Quick leaves out those whose function is measured anyway, and takes one set of parameters, one type of the result.
    """

    profiles = tuple(PARAMETER_SETS)

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases."""
        return tuple(name for cases in OPERATOR_CASES.values() if is_unary(cases) for name in _named(cases, profile))

    def case(self, name: str) -> Case:
        """The case with a name.

        Raises:
            InvalidArgument: when it names none.
        """
        stem, infix, rest = name.partition(INFIX)
        cases = OPERATOR_CASES.get(stem)
        if not infix or cases is None or not is_unary(cases) or not rest.startswith("float16-"):
            raise InvalidArgument(f"{name!r} names no case such as activation_elu-halves-float16-65536-packed-s1")
        case = case_by_name(f"{stem}-{rest}")
        tensor = case.desc.inputs[0].tensor
        if tensor is None or tensor.sizes != (COUNT,):
            raise InvalidArgument(f"{name!r}: there are {COUNT} halves, so the sizes must be {COUNT}")
        return replace(case, name=name, fill=lambda contents: (all_halves(),))


def _is_measured(stem: str) -> bool:
    """Whether the suite ``accuracy`` measures the operator's function, on all halves too."""
    function = stem.removeprefix("element_wise_").removeprefix("activation_")
    return any(known.name in (function, f"{function}_f32") for known in FUNCTIONS)


def _named(cases: OperatorCases, profile: str) -> Iterator[str]:
    types = _types(cases)
    if profile == "quick" and _is_measured(cases.stem):
        return
    for chosen in types[:1] if profile == "quick" else types:
        for seed in range(PARAMETER_SETS[profile] if _has_attributes(cases) else 1):
            yield f"{cases.stem}{INFIX}{Key(chosen, (COUNT,), Layout.PACKED, PLAIN, seed)}"
