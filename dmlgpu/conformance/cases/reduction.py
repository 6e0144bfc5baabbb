"""Cases of the operators that combine the elements along axes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dmlgpu import descs
from dmlgpu.conformance.case import Array, Arrays, Case
from dmlgpu.conformance.operator_cases import PLAIN, Key, OperatorCases, Types, cases, place_all
from dmlgpu.conformance.tolerance import EXACT, Accumulated, Bound
from dmlgpu.conformance.values import few, mixed, numbers
from dmlgpu.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction

INNER = "inner"  # the last axis alone
OUTER = "outer"  # the first axis alone
EVERY = "every"  # all axes
TIES = "ties"
NAN = "nan"
SPECIAL = "special"

LONG_SIZES = ((70001,), (3, 20011), (20011, 3), (257, 130), (2, 4099, 3))


def _axes(key: Key, rng: np.random.Generator) -> tuple[int, ...]:
    """A set of axes, in any order."""
    rank = len(key.sizes)
    match key.variant:
        case "inner":
            return (rank - 1,)
        case "outer":
            return (0,)
        case "every":
            return tuple(range(rank))
    if len(key.sizes) <= 3 and math.prod(key.sizes) > 20000:
        return (int(np.argmax(key.sizes)),)
    return tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)])


def _reduced(sizes: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if dimension in axes else size for dimension, size in enumerate(sizes))


class _PlaceCases(OperatorCases):
    """ARGMIN and ARGMAX: any axes, both directions, ties, NaN alone and in whole lines."""

    long_sizes = LONG_SIZES
    large_sizes = ((16_700_001,), (4_300_000, 3), (3, 1_000_003))

    @property
    def types(self) -> tuple[Types, ...]:
        """All combinations that the newest feature level allows."""
        table = self.schema.support_at(FeatureLevel.LEVEL_6_4)
        return tuple(itertools.product(table["InputTensor"].types, table["OutputTensor"].types))

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (PLAIN, INNER, OUTER, EVERY, TIES, *([NAN] if types[0].is_float else []))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        axes = _axes(key, rng)
        source, output = place_all(
            key, rng, (key.types[0], key.sizes, False), (key.types[1], _reduced(key.sizes, axes), True)
        )
        desc: Any = self.desc_class(
            input_tensor=source, output_tensor=output, axes=axes, axis_direction=AxisDirection(int(rng.integers(2)))
        )
        return Case(name, desc, lambda contents: (_rivalling(contents, key, axes),), EXACT)


def _rivalling(rng: np.random.Generator, key: Key, axes: tuple[int, ...]) -> Array:
    """Numbers to find the best among."""
    data_type, sizes = key.types[0], key.sizes
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant != NAN:
        return numbers(rng, data_type, sizes)
    values = few(rng, data_type, sizes)
    values[rng.random(sizes) < 0.2] = math.inf
    values[rng.random(sizes) < 0.2] = -math.inf
    values[rng.random(sizes) < 0.3] = math.nan
    lines = np.broadcast_to(rng.random(_reduced(sizes, axes)) < 0.2, sizes)
    values[lines] = math.nan
    return values


@cases(descs.Argmin)
class ArgminCases(_PlaceCases):
    """ARGMIN."""


@cases(descs.Argmax)
class ArgmaxCases(_PlaceCases):
    """ARGMAX."""


@cases(descs.Reduce)
class ReduceCases(OperatorCases):
    """REDUCE with SUM: floats within the accumulated bound, integers wrap."""

    long_sizes = LONG_SIZES
    large_sizes = ((16_700_001,), (4_300_000, 3), (3, 1_000_003))

    @property
    def types(self) -> tuple[Types, ...]:
        """All combinations that the newest feature level allows."""
        variant = next(v for v in self.schema.variants if ReduceFunction.SUM.name in v.members)
        table = self.schema.support_at(FeatureLevel.LEVEL_6_4, variant)
        return tuple((data_type,) for data_type in table["InputTensor"].types)

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (PLAIN, INNER, OUTER, EVERY, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        axes = _axes(key, rng)
        data_type = key.types[0]
        source, output = place_all(
            key, rng, (data_type, key.sizes, False), (data_type, _reduced(key.sizes, axes), True)
        )
        desc = descs.Reduce(function=ReduceFunction.SUM, input_tensor=source, output_tensor=output, axes=axes)
        terms = math.prod(key.sizes[axis] for axis in axes)

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[0] is not None
            return np.abs(inputs[0].astype(np.float64)).sum(axes, keepdims=True)

        def fill(contents: np.random.Generator) -> Arrays:
            return (_addends(contents, data_type, key),)

        return Case(name, desc, fill, Accumulated(terms), magnitude=magnitude)


def _addends(rng: np.random.Generator, data_type: DataType, key: Key) -> Array:
    """Numbers to add; special ones without the largest, whose partial sums may or may not overflow."""
    if key.variant != SPECIAL:
        return numbers(rng, data_type, key.sizes)
    if not data_type.is_float:
        return mixed(rng, data_type, key.sizes)
    values = few(rng, data_type, key.sizes)
    values[rng.random(key.sizes) < 0.05] = math.inf
    values[rng.random(key.sizes) < 0.02] = -math.inf
    values[rng.random(key.sizes) < 0.02] = math.nan
    return values
