"""Changes to valid descriptions: of sizes, strides, types, attributes, kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any, TypeAlias

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from tests.fuzz import values
from tests.fuzz.monitor import Monitor, Refused

Fields: TypeAlias = dict[str, Any]
"""A description's values by name."""

ACTIVATIONS = tuple(
    cls
    for cls in descs.all_descs()
    if cls.__name__.startswith("Activation") and {"input_tensor", "output_tensor"} <= set(cls.defaults)
)
"""Descriptions of activations that may be fused: their tensors can be omitted."""


def mutate(desc: OperatorDesc, rng: random.Random, monitor: Monitor) -> OperatorDesc | Refused:
    """A description with one change, seldom several."""
    changed: Fields = dict(desc.values)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        if rng.random() < 0.4:
            _mutate_tensors_alike(changed, rng, monitor)
        else:
            name = rng.choice(list(changed))
            changed[name] = _mutated(changed[name], rng, monitor)
    if rng.random() < 0.02:
        changed.pop(rng.choice(list(changed)))
    if rng.random() < 0.02:
        changed[rng.choice(("x", "", "operator", "desc", "\ud800"))] = values.strange(rng)
    mutant: OperatorDesc | Refused = monitor.call(type(desc), **changed)
    return mutant


def _mutated(value: Any, rng: random.Random, monitor: Monitor) -> Any:
    """A value in place of another, mostly of its kind."""
    if rng.random() < 0.05:
        return values.strange(rng)
    for kind, change in _CHANGES:
        if isinstance(value, kind):
            changed = change(value, rng, monitor)
            return value if isinstance(changed, Refused) else changed
    return _absent(rng)


def _absent(rng: random.Random) -> Any:
    """Return a value in place of an omitted optional one."""
    return rng.choice(
        (
            TensorDesc(DataType.FLOAT32, (1, 1, 1, 4)),
            TensorDesc(rng.choice(list(DataType)), (rng.choice((1, 2, 3)),)),
            ScaleBias(values.number(rng), values.number(rng)),
            descs.ActivationRelu(),
            (),
            values.integer(rng),
            values.number(rng),
        )
    )


def _enumerated(value: IntEnum, rng: random.Random, monitor: Monitor) -> Any:
    return rng.choice([*type(value), *type(value), *map(int, type(value)), -1, 99, 2**40])


def _boolean(value: bool, rng: random.Random, monitor: Monitor) -> Any:
    return rng.choice((not value, not value, int(not value), None))


def _integer(value: int, rng: random.Random, monitor: Monitor) -> int:
    return rng.choice((value + 1, value - 1, -value, 2 * value, 0, 1, values.integer(rng), values.integer(rng)))


def _float(value: float, rng: random.Random, monitor: Monitor) -> Any:
    return rng.choice((-value, values.number(rng), values.number(rng), values.integer(rng)))


def _tuple(value: tuple[Any, ...], rng: random.Random, monitor: Monitor) -> Any:
    """A changed, dropped, repeated or moved element; none; many."""
    items = list(value)
    at = rng.randrange(len(items)) if items else 0
    match rng.randrange(10):
        case 0 if items:
            del items[at]
        case 1 if items:
            items.insert(at, items[at])
        case 2:
            rng.shuffle(items)
        case 3:
            items = []
        case 4:
            items = items * rng.choice((2, 3, 50))
        case 5:
            items.append(values.integer(rng))
        case _ if items:
            items[at] = _mutated(items[at], rng, monitor)
    return items if rng.random() < 0.5 else tuple(items)


def _scale_bias(value: ScaleBias | Size2D, rng: random.Random, monitor: Monitor) -> Any:
    name = rng.choice([field.name for field in fields(value)])
    return monitor.call(replace, value, **{name: _mutated(getattr(value, name), rng, monitor)})


def _nested(value: OperatorDesc, rng: random.Random, monitor: Monitor) -> Any:
    if rng.random() < 0.3:
        return monitor.call(rng.choice(ACTIVATIONS))
    return mutate(value, rng, monitor)


def _tensor(value: TensorDesc, rng: random.Random, monitor: Monitor) -> Any:
    """A tensor with another type, size, layout, flag, length or alignment."""
    return monitor.call(TensorDesc, **_tensor_fields(value, rng))


def _tensor_fields(value: TensorDesc, rng: random.Random) -> Fields:
    """The fields of a changed tensor; a total size that no longer fits is left to be computed."""
    total, sizes = value.byte_size, list(value.sizes)
    changed: Fields = {field.name: getattr(value, field.name) for field in fields(value)}
    if rng.random() < 0.03:
        return changed | {rng.choice(list(changed)): values.strange(rng)}
    if rng.random() < 0.6:
        changed["total_tensor_size_in_bytes"] = None
        changes: tuple[Callable[[], Fields], ...] = (
            lambda: {"data_type": rng.choice(list(DataType))},
            lambda: {"sizes": _other_size(sizes, rng), "strides": rng.choice((None, value.strides))},
            lambda: {"sizes": _other_rank(sizes, rng), "strides": None},
            lambda: {"strides": _strides(sizes, rng)},
            lambda: {"strides": _strides(sizes, rng)},
        )
    else:
        totals = (0, -4, 1, 4, total - 4, total + 4, total + 1, 2 * total, 2**31, 2**32, 2**40, 2**63, 2**64)
        changes = (
            lambda: {"flags": rng.choice((TensorFlags.OWNED_BY_DML, TensorFlags.NONE, 2, -1))},
            lambda: {"total_tensor_size_in_bytes": rng.choice(totals)},
            lambda: {
                "guaranteed_base_offset_alignment": rng.choice((0, 1, 3, 4, 16, 48, 256, 4096, -16, 2**32, 2**64))
            },
        )
    return changed | rng.choice(changes)()


def _other_size(sizes: list[int], rng: random.Random) -> list[int]:
    if sizes:
        at = rng.randrange(len(sizes))
        sizes[at] = rng.choice((sizes[at] + 1, sizes[at] - 1, 2 * sizes[at], 0, 1, values.integer(rng)))
    return sizes


def _other_rank(sizes: list[int], rng: random.Random) -> list[int]:
    return rng.choice((sizes[1:], [1, *sizes], rng.sample(sizes, len(sizes)), [], [1] * (9 - len(sizes)) + sizes))


def _strides(sizes: list[int], rng: random.Random) -> Any:
    """Strides that repeat, pad, interleave or permute, and some that do not fit."""
    packed = list(packed_strides(sizes))
    if rng.random() < 0.3 and packed:
        packed[rng.randrange(len(packed))] = rng.choice((0, values.integer(rng)))
        return packed
    return rng.choice(
        (
            None,
            [0] * len(sizes),
            rng.sample(packed, len(packed)),
            [rng.randrange(1, 9) for _ in sizes],
            [2 * stride for stride in packed],
            packed[1:],
            # These reach into each other, far apart.
            [rng.choice((2**20 + 7, 2**18 + 1, 4099, 257, 3)) for _ in sizes],
        )
    )


def _mutate_tensors_alike(field_values: Fields, rng: random.Random, monitor: Monitor) -> None:
    """Change a size, or a type, in all tensors that have it: descriptions often stay valid."""
    tensors = [tensor for value in field_values.values() for tensor in _tensors(value)]
    if not tensors:
        return
    chosen = rng.choice(tensors)
    change: Callable[[TensorDesc], Fields]
    if rng.random() < 0.3:
        data_type = rng.choice(list(DataType))

        def change(tensor: TensorDesc) -> Fields:
            return {"data_type": data_type if tensor.data_type is chosen.data_type else tensor.data_type}

    elif chosen.sizes:
        old = rng.choice(chosen.sizes)
        new = rng.choice((1, 2, 3, 5, 8, 17, 64, 257, *values.HUGE[:8], 65536))

        def change(tensor: TensorDesc) -> Fields:
            return {"sizes": [new if size == old else size for size in tensor.sizes], "strides": None}

    else:
        return

    def changed(value: Any) -> Any:
        if isinstance(value, tuple) and any(_tensors(value)):
            return tuple(changed(item) for item in value)
        if not isinstance(value, TensorDesc):
            return value
        constructor_values = {field.name: getattr(value, field.name) for field in fields(value)}
        tensor = monitor.call(TensorDesc, **{**constructor_values, "total_tensor_size_in_bytes": None, **change(value)})
        return value if isinstance(tensor, Refused) else tensor

    for name, value in field_values.items():
        field_values[name] = changed(value)


def _tensors(value: Any) -> list[TensorDesc]:
    if isinstance(value, TensorDesc):
        return [value]
    return [item for item in value if isinstance(item, TensorDesc)] if isinstance(value, tuple) else []


_CHANGES: tuple[tuple[type[Any], Callable[..., Any]], ...] = (
    (TensorDesc, _tensor),
    (OperatorDesc, _nested),
    (ScaleBias, _scale_bias),
    (Size2D, _scale_bias),
    (bool, _boolean),
    (IntEnum, _enumerated),
    (int, _integer),
    (float, _float),
    (tuple, _tuple),
)
"""How values of a kind are changed; the first that fits."""
