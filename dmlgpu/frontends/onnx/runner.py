"""Runs a graph for inputs of any shapes: what is compiled for some is kept and found again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.registry import Versions
from dmlgpu.frontends.onnx.segments import Fed, Outcome, Part, Slots, Weights
from dmlgpu.frontends.onnx.translate import Steps, Translation
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.runtime.device import Device

MOST_PARTS = 256
"""Most compiled stretches of a graph that are kept, of all shapes together; the least used go first."""

PART_BYTES = 256 << 20
"""Most bytes that they hold, as estimated: pipelines and constants. The parts of one run are kept even if they are
larger. Weights that are laid out anew are not counted, because all shapes share them."""

MOST_BODIES = 64
"""Most bodies of loops that are kept."""

Key: TypeAlias = "tuple[tuple[tuple[Shape, DataType, bool] | None, ...], tuple[Outcome, ...]]"


class Runner:
    """Runs one graph.

    Args:
        device: where.
        versions: of the model's operator sets.
        weights: where the model's constants are.
        nodes: of the graph, in order.
        known: what names stand for in every run.
        inputs, outputs: names.
        is_body: whether it is the body of a loop.
        strict: whether nodes that the host must decide about are refused.
    """

    def __init__(
        self,
        device: Device,
        versions: Versions,
        weights: Weights,
        *,
        nodes: Sequence[NodeProto],
        known: dict[str, Value | None],
        inputs: Sequence[str],
        outputs: Sequence[str],
        is_body: bool = False,
        strict: bool = False,
    ):
        self._device, self._versions, self._weights = device, versions, weights
        self._nodes, self._known = nodes, known
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._parts: Cache[Key, Part] = Cache(CacheLimits(MOST_PARTS, PART_BYTES))
        self._is_body = is_body
        self._bodies: Cache[Hashable, tuple[Any, object]] = Cache(CacheLimits(MOST_BODIES, MOST_BODIES))
        self._strict = strict
        self._last: tuple[Part, ...] = ()

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Where each node was computed in the last run; empty before the first."""
        return tuple(placement for part in self._last for placement in part.placements())

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._device

    @property
    def only_part(self) -> Part | None:
        """What the last run was, if nothing was read or decided within it."""
        return self._last[0] if len(self._last) == 1 else None

    def run(self, given: Sequence[Fed | None], fetch: bool = False) -> list[Fed]:
        """Compute the outputs from the inputs, in order; one that is None is what is known under its name.

        With ``fetch``, small outputs come as arrays, which takes less time than to read them later.

        Raises:
            DmlError: a node is refused, by name.
        """
        signature = tuple(None if one is None else one.signature for one in given)
        slots = Slots(self._device, [np.zeros(0) if one is None else one.held for one in given])
        done: list[Part] = []
        size = 0
        outcomes: tuple[Outcome, ...] = ()
        steps: Steps | None = None
        translation: Translation | None = None
        while True:
            part = self._parts.get((signature, outcomes))
            is_new = part is None
            if part is None:
                if translation is None or steps is None:
                    translation, steps, part = self._resumed(given, outcomes)
                else:
                    part = steps.send(outcomes[-1])
            else:
                translation = steps = None
            done.append(part)
            for check in part.checks:
                check.run(slots)
            if part.segment is not None:
                part.segment.run(slots, fetch and part.action is None)
            size += part.memory
            if is_new:
                self._parts.limits = CacheLimits(max(MOST_PARTS, len(done)), max(PART_BYTES, size))
                self._parts.put((signature, outcomes), part, part.memory)
            if part.action is None:
                self._last = tuple(done)
                return [Fed(one.shape, one.data_type, one.is_bool, one.take(slots)) for one in part.outputs]
            outcomes = (*outcomes, part.action.run(slots))

    def first_part(self, given: Sequence[Fed | None]) -> Part:
        """Translate up to where elements decide how it goes on, or to the end; nothing is compiled or run."""
        return self._resumed(given, ())[2]

    def _resumed(self, given: Sequence[Fed | None], outcomes: Sequence[Outcome]) -> tuple[Translation, Steps, Part]:
        """Translate up to the part that follows outcomes that are known; compiles nothing."""
        translation = Translation(
            self._device,
            self._versions,
            self._weights,
            len(given),
            runner=Runner,
            is_body=self._is_body,
            bodies=self._bodies,
            strict=self._strict,
        )
        values = dict(self._known)
        for number, (name, one) in enumerate(zip(self._inputs, given, strict=True)):
            if one is None:
                continue
            value = Value(one.shape, one.data_type, one.is_bool, slot=number)
            if value.is_empty:
                value = Value(one.shape, one.data_type, one.is_bool, one.held)  # type: ignore[arg-type]
            values[name] = value
        steps = translation.run(self._nodes, values, self._outputs)
        part = next(steps)
        for outcome in outcomes:
            part = steps.send(outcome)
        return translation, steps, part
