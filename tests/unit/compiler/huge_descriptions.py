"""Descriptions of every operator with huge sizes and attributes, most of them valid: repaired as messages demand.

The smallest description of an operator gets one or two huge numbers; where its checks then name the sizes that another
tensor must have, it gets those, until it is accepted or rejected for another reason.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator

from dmlgpu.catalog import FieldSchema, OperatorSchema, operator
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.minimal import minimal_examples
from dmlgpu.catalog.operator_desc import OperatorDesc, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription

LEVEL = FeatureLevel.LEVEL_6_4
HUGE_SIZES = (2**31 + 11, 2**27 + 1, 2**20)
HUGE_INTEGERS = (2**31 - 1, 2**20 + 1, 1009)
HUGE_FLOATS = (1e-30, 1e9, 1 / 3)
HUGE_SQUARES = (Size2D(2**32 - 1, 1), Size2D(60000, 60000))
MAX_REPAIRS = 10

_TENSOR = re.compile(r"(\w+?)(?:\[(\d+|:)\])?\.sizes(?:\[(-?\d+)\])?")
_WANTED = re.compile(r"must (?:be |be \S+ \(|equal \S+ \(|add up to \S+ \()(\[[\d, ]*\]|\d+)")


def smallest(name: str) -> OperatorDesc:
    """Return an operator's smallest description."""
    return next(iter(minimal_examples(operator(name), {}, LEVEL)))


def variants(desc: OperatorDesc) -> Iterator[OperatorDesc]:
    """Yield a description with each of its numbers huge, and with huge tensors and a huge attribute."""
    schema = operator(desc.operator)
    sizes = list(_with_sizes(desc, schema, HUGE_SIZES))
    attributes = list(_with_attributes(desc, schema))
    yield from (change(desc) for change in (*sizes, *attributes))
    for size, attribute in itertools.product(_with_sizes(desc, schema, HUGE_SIZES[-1:]), attributes):
        yield attribute(size(desc))


Change = Callable[[OperatorDesc], OperatorDesc]


def _with_sizes(desc: OperatorDesc, schema: OperatorSchema, huge: tuple[int, ...]) -> Iterator[Change]:
    """Yield changes that make one dimension of an input huge, or its last two large; of an output if there is no
    input."""
    for slot in desc.inputs or desc.outputs:
        if slot.tensor is None:
            continue
        rank = slot.tensor.dimension_count
        for dimension, size in itertools.product(range(rank), huge):
            yield _resizing(slot.field, {dimension: size})
        if rank > 1:
            yield _resizing(slot.field, {rank - 2: 2**15, rank - 1: 2**15})


def _resizing(field: str, changed: dict[int, int]) -> Change:
    def change(desc: OperatorDesc) -> OperatorDesc:
        value = getattr(desc, field)
        tensor = value[0] if isinstance(value, tuple) else value
        sizes = (changed.get(dimension, size) for dimension, size in enumerate(tensor.sizes))
        huge = _resized(tensor, tuple(sizes))
        return desc.replace(**{field: (huge, *value[1:]) if isinstance(value, tuple) else huge})

    return change


def _resized(tensor: TensorDesc, sizes: tuple[int, ...]) -> TensorDesc:
    return TensorDesc(tensor.data_type, sizes)


def _with_attributes(desc: OperatorDesc, schema: OperatorSchema) -> Iterator[Change]:
    """Yield changes that make one attribute huge; of a list one entry or all."""
    for field in schema.python_fields:
        value = getattr(desc, field.python_name)
        if field.is_tensor or value is None:
            continue
        for huge in _huge(field):
            if not field.is_array:
                yield _setting(field.python_name, huge)
                continue
            yield _setting(field.python_name, (huge,) * len(value))
            if len(value) > 1:
                yield _setting(field.python_name, (*value[:-1], huge))


def _huge(field: FieldSchema) -> tuple[object, ...]:
    kinds = {"UINT": HUGE_INTEGERS, "INT": HUGE_INTEGERS, "FLOAT": HUGE_FLOATS, "SIZE_2D": HUGE_SQUARES}
    return kinds.get(field.type, ())


def _setting(field: str, value: object) -> Change:
    return lambda desc: desc.replace(**{field: value})


def repaired(desc: OperatorDesc, rejection: InvalidDescription) -> OperatorDesc | None:
    """Return a description with the sizes that an exception demands; None if it demands something else."""
    where, requested = _TENSOR.fullmatch(rejection.field), _WANTED.match(rejection.reason)
    if where is None or requested is None:
        return None
    name, position, dimension = where.groups()
    position = "0" if position == ":" else position
    value, needed = getattr(desc, name), ast.literal_eval(requested[1])
    tensor = value if position is None else value[int(position)]
    if dimension is not None and isinstance(needed, int):
        sizes = list(tensor.sizes)
        sizes[int(dimension)] = needed
    elif isinstance(needed, list):
        sizes = needed
    else:
        return None
    changed = _resized(tensor, tuple(sizes))
    if position is not None:
        changed = (*value[: int(position)], changed, *value[int(position) + 1 :])
    return desc.replace(**{name: changed})
