"""The base of the state machine: how it calls dmlgpu, its devices and its memory."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

import dmlgpu
from dmlgpu import DataType, reference
from dmlgpu.catalog.enums import FeatureLevel
from tests.fuzz.devices import check_usable, open_device
from tests.fuzz.monitor import Monitor, Refused, shown
from tests.fuzz.operators import DESCS
from tests.fuzz.picks import Pools, any_of, one_of, rule_of
from tests.fuzz.shadow import BufferShadow, DeviceShadow, ReadbackShadow, Shadow

MAX_DEVICES = 3

SKIPPED = Refused(LookupError("nothing to call"))
"""What became of a call that was not made."""

SIZES = (4, 16, 60, 64, 256, 272, 1024, 4096)
NO_SIZES = (0, -4, 3, 2**40, 2**63 - 4)
OFFSETS = (0, 0, 0, 256, 256, 512, 16, 48, 64)
NO_OFFSETS = (4, 8, -16, 1000, 2**31, 2**63)


class Memory(RuleBasedStateMachine):
    """Up to three devices and their buffers.

    Attributes:
        monitor: makes the calls.
    """

    monitor: ClassVar[Monitor]
    knows = True
    """Whether the shadows are to be trusted."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = Pools()

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call dmlgpu; the subject of a finding is the call."""
        name = getattr(function, "__qualname__", repr(function))
        arguments = [*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())]
        self.monitor.subject = lambda: f"{name}({', '.join(arguments)})"
        return self.monitor.call(function, *args, **kwargs)

    def on(self, shadow: Shadow | None, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of an object, unless it is gone or was never made."""
        if shadow is None or shadow.real is None:
            return SKIPPED
        return self.call(getattr(shadow.real, method), *args, **kwargs)

    def wrapped(self, kind: Any, real: Any, device: Any, **more: Any) -> Any:
        """Return a shadow of a call's result, or None."""
        return None if isinstance(real, Refused) else kind(type(real).__name__, real, device, **more)

    # ---- devices ----------------------------------------------------------------------------------------------------

    @initialize(budget=st.sampled_from((None, 1 << 20)), strict=st.booleans())
    def open_first(self, budget: Any, strict: bool) -> None:
        real = open_device(self.monitor.adapter, deterministic=strict, memory_budget=budget)
        self.pools["devices"].append(DeviceShadow("Device", real, has_budget=budget is not None))

    @rule_of("devices", budget=st.sampled_from((None, 1 << 20, 4096)), chance=st.integers(0, 2))
    def open_another(self, budget: Any, chance: int) -> Any:
        if chance or len(self.pools["devices"]) >= MAX_DEVICES:
            return None
        options = {"memory_budget": budget, "deterministic": True, "disabled_features": ("shader-int64",)}
        real = self.call(open_device, self.monitor.adapter, feature_level=FeatureLevel.LEVEL_6_4, **options)
        return self.wrapped(DeviceShadow, real, None, has_budget=budget is not None)

    @rule_of(device=one_of("devices"), chance=st.integers(0, 9))
    def remove(self, device: Any, chance: int) -> None:
        if chance == 0:
            self.on(device, "remove", "on purpose")

    @rule_of(device=one_of("devices"), level=st.sampled_from(FeatureLevel), types=st.sampled_from(DataType))
    def ask(self, device: Any, level: Any, types: Any) -> None:
        for kind, argument in (
            (dmlgpu.FeatureLevelsQuery, [level]),
            (dmlgpu.TensorDataTypeSupportQuery, types),
            (dmlgpu.OperatorSupportQuery, "GATHER"),
        ):
            query = self.call(kind, argument)
            if not isinstance(query, Refused):
                self.on(device, "check_feature_support", query)

    @rule_of(
        device=one_of("devices"), objects=any_of("buffers", "compiled", "initializers", "tables", "fences", most=3)
    )
    def keep_resident(self, device: Any, objects: Any) -> None:
        self.on(device, "evict", [real_of(object) for object in objects])
        self.on(device, "make_resident", [real_of(object) for object in objects])

    @rule_of(
        shadow=one_of("devices", "buffers", "compiled", "initializers", "tables", "lists", "fences"),
        name=st.none() | st.text(max_size=5),
    )
    def name(self, shadow: Any, name: Any) -> None:
        if shadow is not None and shadow.real is not None:
            self.call(type(shadow.real).name.fset, shadow.real, name)
            self.call(repr, shadow.real)
            self.on(shadow, "set_private_data", name, name)
            self.on(shadow, "get_private_data", name)

    @rule_of(device=one_of("devices"), number=st.integers(0, len(DESCS) - 1), value=st.integers(0, 9))
    def evaluate(self, device: Any, number: int, value: int) -> None:
        arrays = [np.full(slot.tensor.sizes, value, slot.tensor.data_type.numpy) for slot in DESCS[number].inputs]
        results = self.call(dmlgpu.evaluate, DESCS[number], arrays, real_of(device))
        if self.knows and not isinstance(results, Refused):
            right = reference.evaluate(DESCS[number], arrays)[0]
            self.monitor.check(np.array_equal(results[0], right), "wrong result", DESCS[number].operator)

    # ---- buffers ----------------------------------------------------------------------------------------------------

    @rule_of(
        "buffers",
        device=one_of("devices"),
        size=st.sampled_from(SIZES),
        name=st.none() | st.text(max_size=3),
        fill=st.none() | st.integers(0, 255),
    )
    def create_buffer(self, device: Any, size: int, name: Any, fill: int | None) -> Any:
        real = self.on(device, "create_buffer", size, name)
        buffer = self.wrapped(BufferShadow, real, device, content=np.zeros(size, np.uint8), known=np.ones(size, bool))
        if buffer is not None:
            device.buffers.append(buffer)
        if fill is not None:
            self.write(buffer, 0, bytes((fill + 37 * index) % 256 for index in range(size)))
        return buffer

    @rule_of(device=one_of("devices"), size=st.sampled_from(NO_SIZES))
    def create_no_buffer(self, device: Any, size: Any) -> None:
        result = self.on(device, "create_buffer", size)
        self.monitor.check(isinstance(result, Refused), "accepted", "Device.create_buffer", f"{size} bytes")

    @rule_of(
        buffer=one_of("buffers"), offset=st.integers(0, 70) | st.sampled_from(NO_OFFSETS), data=st.binary(max_size=80)
    )
    def write(self, buffer: Any, offset: Any, data: Any) -> None:
        if not isinstance(self.on(buffer, "write", data, offset), Refused):
            buffer.put(offset, np.frombuffer(data, np.uint8))

    @rule_of(
        buffer=one_of("buffers"),
        offset=st.integers(0, 70) | st.sampled_from(NO_OFFSETS),
        size=st.none() | st.integers(0, 99),
    )
    def read(self, buffer: Any, offset: Any, size: Any) -> None:
        got = self.on(buffer, "read", offset, size)
        if not isinstance(got, Refused):
            self.compare(buffer, offset, got)

    @rule_of(
        "readbacks",
        buffer=one_of("buffers"),
        offset=st.integers(0, 70) | st.sampled_from(NO_OFFSETS),
        size=st.none() | st.integers(0, 99),
        data=st.binary(max_size=8),
    )
    def read_async(self, buffer: Any, offset: Any, size: Any, data: Any) -> Any:
        """Bytes set off; the buffer may be written before they are fetched."""
        real = self.on(buffer, "read_async", offset, size)
        if isinstance(real, Refused):
            return None
        then = replace(buffer, real=None, content=buffer.content.copy(), known=buffer.known.copy())
        if data:
            self.write(buffer, 0, data)
        return self.wrapped(ReadbackShadow, real, buffer.device, buffer=then, offset=offset)

    @rule_of(readback=one_of("readbacks"), timeout=st.sampled_from((None, 0, -1, 60, float("inf"))))
    def fetch(self, readback: Any, timeout: Any) -> None:
        self.on(readback, "done")
        got = self.on(readback, "result", timeout)
        if not isinstance(got, Refused):
            self.compare(readback.buffer, readback.offset, got)

    def compare(self, buffer: BufferShadow, offset: int, got: Any) -> None:
        """What was read must be what was written."""
        first = buffer.differs(offset, got) if self.knows else None
        if first is not None:
            about = f"byte {first} of {buffer.content.size} is {got[first - offset]}, must be {buffer.content[first]}"
            buffer.forget(0, buffer.content.size)
            self.monitor.note("wrong memory", "Buffer.read", about)

    @rule_of(buffer=one_of("buffers"), chance=st.integers(0, 2))
    def release(self, buffer: Any, chance: int) -> None:
        if chance == 0:
            self.on(buffer, "release")

    @rule_of(shadow=one_of("buffers", "compiled", "tables", "lists", "fences", "readbacks"))
    def drop(self, shadow: Any) -> None:
        """One reference goes, be it the last or not; garbage is collected."""
        if shadow is not None:
            shadow.real = None
            for pool in self.pools.values():
                pool[:] = [other for other in pool if other is not shadow]
        gc.collect(0)

    def teardown(self) -> None:
        """All memory is as it should be, and each device works, or says that it is removed."""
        for readback in self.pools["readbacks"]:
            self.fetch(readback, None)
        for device in self.pools["devices"]:
            for buffer in device.buffers:
                self.read(buffer, 0, None)
            if device.real.removed_reason is None and not device.has_budget:
                check_usable(device.real, self.monitor)
            self.on(device, "remove", "the end")


def real_of(value: Any) -> Any:
    return value.real if isinstance(value, Shadow) else value
