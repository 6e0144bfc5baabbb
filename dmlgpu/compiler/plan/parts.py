"""Traversal of steps: the tensors that they read and write, and the same steps on other tensors."""

from __future__ import annotations

import dataclasses
import enum
import operator
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from dmlgpu.compiler.plan.products import RotatedContract
from dmlgpu.compiler.plan.sources import Allocation, PlanBinding, PlanTensor
from dmlgpu.compiler.plan.steps import Repeat, Step, Together

AnyValue = TypeVar("AnyValue")
AnyPart = TypeVar("AnyPart")

_WRITTEN = ("output", "count", "region_output", "singles", "statistic_outputs")
"""Fields of steps of all kinds that hold written tensors."""


def replace_parts(value: AnyValue, cls: type[AnyPart], change: Callable[[AnyPart], Any]) -> AnyValue:
    """Return a step, or a part of one, with ``change`` applied to every part of a class (PlanBinding, PlanTensor).

    Unchanged parts are returned as they are, and shared parts stay shared.
    """
    changed: AnyValue = _replaced(value, cls, change, {})
    return changed


def _replaced(part: Any, cls: type[Any], change: Callable[[Any], Any], memo: dict[int, tuple[Any, Any]]) -> Any:
    own = type(part)
    if issubclass(own, cls):
        return change(part)
    names = _fields(own)
    if own is not tuple and not names:
        return part
    known = memo.get(id(part))
    if known is not None:
        return known[1]
    parts = part if own is tuple else [getattr(part, name) for name in names]
    items = [each if type(each) in _leaves else _replaced(each, cls, change, memo) for each in parts]
    result = part
    if any(map(operator.is_not, items, parts)):
        result = tuple(items) if own is tuple else own(**dict(zip(names, items, strict=True)))
    memo[id(part)] = part, result  # keeps the part alive, so that its id is not reused
    return result


def tensors(value: Any) -> Iterator[PlanTensor]:
    """Yield the tensors in memory of a step or part of a step, shared ones once."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        cls = type(part)
        if issubclass(cls, PlanTensor):
            yield part
        else:
            parts = part if cls is tuple else [getattr(part, name) for name in _fields(cls)]
            pending.extend([part for part in parts if type(part) not in _leaves])


def signature(value: Any) -> tuple[Hashable | None, tuple[PlanBinding, ...]]:
    """Return a key of a step or part of a step without its bindings, and the bindings.

    Two keys are equal if the steps differ only in the resources that they bind: their bindings correspond to each other
    one to one, in order, and parts shared within one step are shared within the other. The key is None if a part cannot
    be compared bit by bit.
    """
    entries: list[Hashable] = []
    bindings: dict[PlanBinding, int] = {}
    seen: dict[int, int] = {}
    pending = [value]
    while pending:
        part = pending.pop()
        cls = type(part)
        if cls is PlanBinding:
            entries.append((cls, bindings.setdefault(part, len(bindings))))
        elif isinstance(part, tuple):
            entries.append((cls, len(part)))
            pending.extend(part)
        elif names := _fields(cls):
            if id(part) not in seen:
                pending.extend(getattr(part, name) for name in names)
            entries.append((cls, seen.setdefault(id(part), len(seen))))
        elif cls is float:
            entries.append((cls, struct.pack("d", part)))  # since 0.0 == -0.0
        elif part is None or cls in (bool, int, str, bytes) or isinstance(part, enum.Enum):
            entries.append((cls, part))
        else:
            return None, ()
    return tuple(entries), tuple(bindings)


def written(step: Step) -> tuple[PlanTensor, ...]:
    """Return the tensors that a step writes."""
    if inner := _inner(step):
        return tuple(tensor for each in inner for tensor in written(each))
    return tuple(tensors(tuple([getattr(step, name, None) for name in reversed(_WRITTEN)])))


def read(step: Step) -> tuple[PlanTensor, ...]:
    """Return the tensors that a step reads."""
    if inner := _inner(step):
        own = tensors(step.product) if isinstance(step, RotatedContract) else ()
        return (*own, *(tensor for each in inner for tensor in read(each)))
    names = (name for name in _fields(type(step)) if name not in _WRITTEN)
    return tuple(tensors(tuple(getattr(step, name) for name in names)))


def _inner(step: Step) -> Sequence[Step]:
    """Return the steps of which a step consists, or that store what it computes."""
    if isinstance(step, RotatedContract):
        return [each.step for each in step.ranges]
    return step.steps if isinstance(step, Repeat | Together) else ()


_FIELDS: dict[Any, tuple[str, ...]] = {Allocation: (), tuple: ()}
"""Field names of each class of parts; there are few classes."""

_leaves: set[Any] = {Allocation}
"""Classes of values without parts."""


def _fields(cls: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none for other classes."""
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()
        if not _FIELDS[cls]:
            _leaves.add(cls)
    return _FIELDS[cls]
