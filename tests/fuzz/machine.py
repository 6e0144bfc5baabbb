"""The life of a device's objects as a state machine: calls in any order, on objects of any device.

Each rule calls dmlgpu through a monitor, so that what it refuses ends nothing; what it accepts is done to the shadows
as well, and reads must agree with them.
"""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from dmlgpu import BufferArrayBinding, BufferBinding, ExecutionFlags
from tests.fuzz.memory import OFFSETS, SKIPPED, Memory, real_of
from tests.fuzz.monitor import Monitor, Refused
from tests.fuzz.operators import DESCS
from tests.fuzz.picks import any_of, one_of, rule_of
from tests.fuzz.shadow import (
    Bound,
    Copied,
    Dispatched,
    FenceShadow,
    InitializerShadow,
    ListShadow,
    OperatorShadow,
    Place,
    TableShadow,
)

EXAMPLES, STEPS = 10, 50
"""Of a seed, and of an example."""


class LifeCycle(Memory):
    """Objects of up to three devices; arguments are of the right kinds, but else of any."""

    # ---- operators --------------------------------------------------------------------------------------------------

    @rule_of(
        "compiled",
        device=one_of("devices"),
        number=st.integers(0, len(DESCS) - 1),
        flags=st.sampled_from((ExecutionFlags.NONE, ExecutionFlags.NONE, ExecutionFlags.DESCRIPTORS_VOLATILE)),
    )
    def compile(self, device: Any, number: int, flags: Any) -> Any:
        operator = self.on(device, "create_operator", DESCS[number])
        real = SKIPPED if isinstance(operator, Refused) else self.on(device, "compile_operator", operator, flags)
        volatile = bool(flags & ExecutionFlags.DESCRIPTORS_VOLATILE)
        return self.wrapped(OperatorShadow, real, device, desc=DESCS[number], volatile=volatile)

    @rule_of("initializers", device=one_of("devices"), operators=any_of("compiled", most=3))
    def create_initializer(self, device: Any, operators: Any) -> Any:
        real = self.on(device, "create_operator_initializer", [real_of(operator) for operator in operators])
        return self.wrapped(InitializerShadow, real, device, operators=tuple(operators))

    @rule_of(initializer=one_of("initializers"), operators=any_of("compiled", most=2))
    def reset_initializer(self, initializer: Any, operators: Any) -> None:
        if not isinstance(self.on(initializer, "reset", [real_of(operator) for operator in operators]), Refused):
            initializer.operators = tuple(operators)

    # ---- tables -----------------------------------------------------------------------------------------------------

    @rule_of("tables", device=one_of("devices"), to=one_of("compiled", "initializers") | st.none())
    def create_table(self, device: Any, to: Any) -> Any:
        real = self.on(device, "create_binding_table", real_of(to))
        return self.wrapped(TableShadow, real, device, bound=Bound.to(to))

    @rule_of(table=one_of("tables"), to=one_of("compiled", "initializers") | st.none())
    def reset_table(self, table: Any, to: Any) -> None:
        if not isinstance(self.on(table, "reset", real_of(to)), Refused):
            table.bound = Bound.to(to)

    @rule_of(table=one_of("tables"), data=st.data())
    def bind(self, table: Any, data: Any) -> None:
        """Bind what a table's target needs, to buffers that are there: some are too small, or another device's."""
        target = None if table is None else table.bound.target
        candidates = [buffer for device in self.pools["devices"] for buffer in device.buffers]
        if target is None or not candidates:
            return
        # Other devices' buffers, and used-up ones, are drawn rarely.
        place = st.builds(Place, st.sampled_from(8 * table.device.buffers + candidates), st.sampled_from(OFFSETS))
        if isinstance(target, OperatorShadow):
            inputs = [None if _is_owned(slot) else data.draw(place) for slot in target.desc.inputs]
            outputs = [data.draw(place) for _ in target.desc.outputs]
            self.bind_places(table, "inputs", inputs)
            self.bind_places(table, "outputs", outputs)
            if target.properties.temporary_resource_size:
                self.bind_resource(table, "temporary", data.draw(place))
            if target.properties.persistent_resource_size:
                persistent = target.destination or data.draw(place)
                self.bind_resource(table, "persistent", data.draw(st.sampled_from((persistent, persistent)) | place))
        else:
            owned = [_owned_places(operator.desc, data.draw(place)) for operator in table.bound.operators]
            arrays = [None if places is None else self.array(places) for places in owned]
            if not isinstance(self.on(table, "bind_inputs", arrays), Refused):
                table.bound.inputs = owned
            for operator in table.bound.operators:
                operator.destination = data.draw(place) if operator.properties.persistent_resource_size else None
            self.bind_places(table, "outputs", [operator.destination for operator in table.bound.operators])

    def bind_places(self, table: Any, what: str, places: list[Any]) -> None:
        """Bind inputs or outputs."""
        if not isinstance(self.on(table, f"bind_{what}", [self.binding(place) for place in places]), Refused):
            setattr(table.bound, what, tuple(places))

    def bind_resource(self, table: Any, what: str, place: Place) -> None:
        """Bind the temporary or the persistent resource."""
        if not isinstance(self.on(table, f"bind_{what}_resource", self.binding(place)), Refused):
            setattr(table.bound, what, place)

    def binding(self, place: Place | None) -> Any:
        """A place as dmlgpu takes it."""
        if place is None or place.buffer.real is None:
            return None
        binding = self.call(BufferBinding, place.buffer.real, place.offset)
        return None if isinstance(binding, Refused) else binding

    def array(self, places: Any) -> Any:
        """Places as an initializer takes them."""
        binding = self.call(BufferArrayBinding, [self.binding(place) for place in places])
        return None if isinstance(binding, Refused) else binding

    # ---- work -------------------------------------------------------------------------------------------------------

    @rule_of("lists", device=one_of("devices"))
    def create_list(self, device: Any) -> Any:
        return self.wrapped(ListShadow, self.on(device, "create_command_list"), device)

    @rule_of(commands=one_of("lists"), table=one_of("tables"))
    def record(self, commands: Any, table: Any) -> None:
        if commands is None or commands.device.real is None or table is None:
            return
        target = table.bound.target
        recorder = self.on(commands.device, "create_command_recorder")
        if isinstance(recorder, Refused):
            return
        done = self.call(recorder.record_dispatch, real_of(commands), real_of(target), real_of(table))
        if not isinstance(done, Refused):
            volatile = isinstance(target, OperatorShadow) and target.volatile
            commands.work.append(Dispatched(table.bound if volatile else table.bound.copy()))

    @rule_of(
        commands=one_of("lists"),
        source=one_of("buffers"),
        destination=one_of("buffers"),
        size=st.sampled_from((0, 4, 16, 64, 3)),
    )
    def copy(self, commands: Any, source: Any, destination: Any, size: int) -> None:
        done = self.on(commands, "copy_buffer", real_of(destination), 4, real_of(source), 0, size)
        if not isinstance(done, Refused):
            commands.work.append(Copied(Place(source), Place(destination, 4), size))

    @rule_of(commands=one_of("lists"))
    def close(self, commands: Any) -> None:
        self.on(commands, "close")

    @rule_of(commands=one_of("lists"))
    def reset_list(self, commands: Any) -> None:
        if not isinstance(self.on(commands, "reset"), Refused):
            commands.work = []

    @rule_of(device=one_of("devices"), commands=any_of("lists", most=3))
    def execute(self, device: Any, commands: Any) -> None:
        if device is None:
            return
        done = self.call(device.real.queue.execute, [real_of(command) for command in commands])
        if self.knows and not isinstance(done, Refused):
            for work in [work for command in commands for work in command.work]:
                work.run()

    @rule_of(device=one_of("devices"), number=st.integers(0, len(DESCS) - 1), data=st.data())
    def run_operator(self, device: Any, number: int, data: Any) -> None:
        """All that it takes to run an operator, which single rules seldom come to."""
        operator = self.compile(device, number, ExecutionFlags.NONE)
        if operator is None:
            return
        size = operator.properties.temporary_resource_size + operator.properties.persistent_resource_size + 512
        for bytes_ in (4096, 4096, size // 4 * 4):
            self.create_buffer(device, bytes_, None, number)
        initializer = self.create_initializer(device, [operator])
        commands = self.create_list(device)
        for target in (initializer, operator):
            table = self.create_table(device, target)
            self.bind(table, data)
            self.record(commands, table)
        self.close(commands)
        self.execute(device, [commands])

    @rule_of(device=one_of("devices"), words=st.integers(0, 16), data=st.data())
    def run_copy(self, device: Any, words: int, data: Any) -> None:
        """All that it takes to copy."""
        if device is None or not device.buffers:
            return
        source, destination = (data.draw(st.sampled_from(device.buffers)) for _ in range(2))
        commands = self.create_list(device)
        self.copy(commands, source, destination, 4 * words)
        self.close(commands)
        self.execute(device, [commands])

    # ---- fences -----------------------------------------------------------------------------------------------------

    @rule_of("fences", device=one_of("devices"), value=st.integers(0, 3))
    def create_fence(self, device: Any, value: int) -> Any:
        return self.wrapped(FenceShadow, self.on(device, "create_fence", value), device, last=value)

    @rule_of(device=one_of("devices"), fence=one_of("fences"), value=st.integers(0, 9))
    def signal(self, device: Any, fence: Any, value: int) -> None:
        if device is not None and not isinstance(self.call(device.real.queue.signal, real_of(fence), value), Refused):
            fence.last = value

    @rule_of(fence=one_of("fences"), value=st.integers(0, 9), timeout=st.sampled_from((None, 0, 0.01, -1.0)))
    def wait(self, fence: Any, value: int, timeout: Any) -> None:
        reached = self.on(fence, "wait", value, timeout)
        if self.knows and not isinstance(reached, Refused) and (timeout is None or value > fence.last):
            self.monitor.check(reached is (value <= fence.last), "wrong result", "Fence.wait", f"{value}: {reached}")

    @rule_of(fence=one_of("fences"))
    def completed(self, fence: Any) -> None:
        if fence is not None and fence.real is not None:
            value = self.call(lambda: fence.real.completed_value)
            if self.knows and not isinstance(value, Refused):
                self.monitor.check(value <= fence.last, "wrong result", "Fence.completed_value", f"{value}")

    # ---- threads ----------------------------------------------------------------------------------------------------

    @rule_of(
        works=st.lists(
            st.lists(st.tuples(st.integers(0, 5), one_of("buffers"), one_of("lists"), one_of("fences")), max_size=4),
            max_size=3,
        )
    )
    def threads(self, works: Any) -> None:
        """Several threads at once; of the memory that they may touch nothing is known afterwards."""
        threads = [threading.Thread(target=self._work, args=(work,), daemon=True) for work in works]
        self.monitor.subject = lambda: f"threads: {works}"
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.monitor.check(not thread.is_alive(), "hang", "threads")
        for device in self.pools["devices"]:
            device.forget()

    def _work(self, steps: Any) -> None:
        call = self.monitor.call
        for verb, buffer, commands, fence in steps:
            if any(shadow is None or shadow.real is None for shadow in (buffer, commands, fence)):
                continue
            match verb:
                case 0:
                    call(buffer.real.write, bytes(8), 4)
                case 1:
                    call(buffer.real.read)
                case 2:
                    call(commands.real.device.queue.execute, [commands.real])
                case 3:
                    value = fence.last = fence.last + 1
                    call(fence.real.device.queue.signal, fence.real, value)
                case 4:
                    call(fence.real.wait, fence.last, 0.1)
                case 5:
                    call(buffer.real.release)


def _is_owned(slot: Any) -> bool:
    return slot.tensor is not None and slot.tensor.owned_by_dml


def _owned_places(desc: Any, place: Place) -> list[Place | None] | None:
    owned = [place if _is_owned(slot) else None for slot in desc.inputs]
    return owned if any(owned) else None


def run_machine(machine: type[LifeCycle], seed_: int, monitor: Monitor) -> None:
    """Run some examples of a machine: under a strict monitor until the first finding, which is made smaller then."""
    bound = type(machine.__name__, (machine,), {"monitor": monitor})
    phases = (Phase.generate, Phase.shrink) if monitor.strict else (Phase.generate,)
    options = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(seed_)(bound), settings=options)
