"""The example of an operator's page: Python that builds a small case, runs it and compares with the expected result.

DirectML's documented example if there is one, otherwise the operator's smallest test case with rounded numbers.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog import OperatorSchema
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler import operators
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.tolerance import EXACT

Array = NDArray[Any]
MAX_ELEMENTS = 100
"""Maximum elements in all of a documented example that is shown."""

STYLE: dict[str, Any] = {"separator": ", ", "threshold": 10**6, "floatmode": "unique", "suppress_small": True}

SIZES = ((2, 3), (1, 1, 2, 3), (1, 2, 2, 3), (1, 1, 4, 4), (1, 2, 4, 4), (1, 1, 1, 4, 4))
"""Sizes of the first input to try."""


def example(schema: OperatorSchema) -> str:
    """The source of the example."""
    case, inputs, outputs = _pick(OPERATOR_CASES[schema.stem])
    writer = _Writer()
    desc = writer.value(case.desc, "")
    arrays = ",\n    ".join("None" if array is None else writer.array(array, "    ") for array in inputs)
    names = [slot.label.replace("[", "_").replace("]", "") for slot in case.desc.outputs if slot.tensor is not None]
    lines = [
        "import numpy as np\n",
        "import dmlgpu",
        *writer.imports(),
        "",
        f"desc = {desc}",
        f"inputs = [{f'{chr(10)}    {arrays},{chr(10)}' if inputs else ''}]",
        f"{_targets(names)} = dmlgpu.evaluate(desc, inputs)",
        *(_comparison(name, array, writer) for name, array in zip(names, outputs, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def _targets(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _comparison(name: str, expected: Array, writer: _Writer) -> str:
    """Lines that check one output."""
    is_float = expected.dtype.kind == "f"
    tolerance = {"f2": "rtol=2e-3", "f4": "rtol=1e-4, atol=1e-6"}.get(expected.dtype.str[1:], "")
    compared = f"np.allclose({name}, expected, {tolerance}, equal_nan=True)"
    test = compared if is_float else f"np.array_equal({name}, expected)"
    return f"expected = {writer.array(expected, 'expected = ')}\nassert {test}"


def _pick(cases: OperatorCases) -> tuple[Case, list[Array | None], list[Array]]:
    """A case with its inputs and outputs."""
    documented = [cases.case(name) for name in cases.names("standard") if "-example" in name]
    small = [case for case in documented if _elements(case) <= MAX_ELEMENTS]
    if small:
        inputs = small[0].inputs()
        return small[0], list(inputs), _present(small[0], small[0].expected(inputs))
    case = min(_candidates(cases), key=_weight)
    inputs = [_rounded(case, array) for array in case.inputs()]
    return case, inputs, _present(case, reference.evaluate(case.desc, inputs))


def _present(case: Case, outputs: tuple[Array, ...]) -> list[Array]:
    """The outputs that are there."""
    return [array for slot, array in zip(case.desc.outputs, outputs, strict=False) if slot.tensor is not None]


def _candidates(cases: OperatorCases) -> Iterator[Case]:
    """Plain small cases, and one that always exists."""
    for types, sizes in itertools.product(_plainest(cases.types), SIZES):
        with contextlib.suppress(DmlError, ValueError, IndexError):
            case = cases.case_of(Key(types, sizes, TensorLayout.PACKED))
            validate(case.desc)
            operators.check(case.desc)
            yield case
    smallest = min((name for name in cases.names("standard") if "-example" not in name), key=len)
    yield cases.case(smallest)


def _plainest(types: tuple[Types, ...]) -> list[Types]:
    """The two combinations of data types that read best."""
    plain = (DataType.FLOAT32, DataType.INT32)
    return sorted(types, key=lambda combination: sum(data_type not in plain for data_type in combination))[:2]


def _weight(case: Case) -> tuple[bool, int]:
    """Small, but with something in it."""
    return _elements(case) < 6, _elements(case)


def _elements(case: Case) -> int:
    slots = (*case.desc.inputs, *case.desc.outputs)
    return sum(math.prod(slot.tensor.sizes) for slot in slots if slot.tensor is not None)


def _rounded(case: Case, array: Array | None) -> Array | None:
    """Numbers that read well, where exact bits are not the point."""
    if array is None or array.dtype.kind != "f" or case.tolerance == EXACT:
        return array
    return np.round(array.astype(np.float64), 2).astype(array.dtype)


class _Writer:
    """Values as Python source, and the enumerations that it names."""

    def __init__(self) -> None:
        self._enums: set[str] = set()

    def imports(self) -> Iterator[str]:
        yield "from dmlgpu import TensorDesc, descs"
        if self._enums:
            yield f"from dmlgpu.catalog.enums import {', '.join(sorted(self._enums))}"

    def value(self, value: Any, indent: str) -> str:
        """The source of a field's value."""
        if isinstance(value, OperatorDesc):
            return self._desc(value, indent)
        if isinstance(value, TensorDesc):
            return self._tensor(value)
        if isinstance(value, ScaleBias | Size2D):
            return f"descs.{value!r}"
        if isinstance(value, enum.Enum):
            self._enums.add(type(value).__name__)
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, tuple):
            entries = [self.value(entry, indent + "    ") for entry in value]
            return f"({', '.join(entries)}{',' if len(entries) == 1 else ''})"
        return repr(value) if value not in (math.inf, -math.inf) else f'float("{value}")'

    def _desc(self, desc: OperatorDesc, indent: str) -> str:
        inner = indent + "    "
        fields = {field: getattr(desc, field) for field in desc.__annotations__}
        lines = [f"{inner}{name}={self.value(value, inner)}," for name, value in fields.items() if value is not None]
        return "\n".join([f"descs.{type(desc).__name__}(", *lines, f"{indent})"])

    def _tensor(self, tensor: TensorDesc) -> str:
        self._enums.add("DataType")
        words = [f"DataType.{tensor.data_type.name}", repr(tensor.sizes)]
        if tensor.strides is not None:
            words.append(repr(tensor.strides))
        return f"TensorDesc({', '.join(words)})"

    def array(self, array: Array, before: str) -> str:
        """The source of an array that stands after some text on its line."""
        prefix = f"{before}np.array("
        text = np.array2string(
            array,
            separator=", ",
            threshold=10**6,
            max_line_width=110,
            prefix=prefix,
            floatmode="unique",
            suppress_small=True,
        )
        text = re.sub(r"\n\n+", "\n", text).replace("nan", "np.nan").replace("inf", "np.inf")
        return f"np.array({text}, np.{array.dtype.name})"
