"""Run in a process of its own: waits that signal handlers end by raising, each followed by a right result.

Arguments: the adapter, the test, the number of rounds.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType

import numpy as np
from gpu_programs import kernel, output_slot, program, words

import dmlgpu
from dmlgpu import BufferBinding, DataType, TensorDesc, descs
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend, library

COUNT = 1 << 12
SEED = 15
SPIN = "var x = s0[b0 + i]; for (var k = 0u; k < 4000u; k++) { x = x * 1664525u + 1013904223u; } s0[b0 + i] = x;"


class Interrupted(BaseException):
    """What the handler raises."""


class Interrupts:
    """Signals at random times, whose handler raises while ``exposed`` runs and interrupts are left."""

    def __init__(self) -> None:
        self.random = random.Random(SEED)
        self.left = 0
        signal.signal(signal.SIGALRM, self._handle)

    def exposed(self, action: Callable[[], object], longest: float) -> bool:
        """Do something under fire; return whether it was interrupted."""
        self.left = self.random.choice([1, 1, 1, 5])
        signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-6, longest))
        try:
            self.run(action)
        except Interrupted:
            return True
        finally:
            self.left = 0
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    @staticmethod
    def run(action: Callable[[], object]) -> None:
        """Stand on the stack while interrupts are welcome."""
        action()

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not Interrupts.run.__code__:
            frame = frame.f_back
        if frame is not None and self.left > 0:
            self.left -= 1
            if self.left:
                signal.setitimer(signal.ITIMER_REAL, 2e-5)  # while the exception is on its way
            raise Interrupted


class Exponentials:
    """An operator with its buffers and a list that executes it."""

    def __init__(self, device: dmlgpu.Device):
        self.device, self.fence, self.value = device, device.create_fence(), 0
        row = TensorDesc(DataType.FLOAT32, (1, COUNT))
        operator = device.create_operator(descs.ElementWiseExp(input_tensor=row, output_tensor=row))
        self.compiled = device.compile_operator(operator)
        initializer = device.create_operator_initializer([self.compiled])
        device.queue.execute([self._list(initializer, device.create_binding_table(initializer))])
        self.source, self.target = device.create_buffer(4 * COUNT), device.create_buffer(4 * COUNT)
        table = device.create_binding_table(self.compiled)
        table.bind_inputs([BufferBinding(self.source)])
        table.bind_outputs([BufferBinding(self.target)])
        self.list = self._list(self.compiled, table)

    def _list(self, dispatchable: object, table: dmlgpu.BindingTable) -> dmlgpu.CommandList:
        command_list = self.device.create_command_list()
        self.device.create_command_recorder().record_dispatch(command_list, dispatchable, table)  # type: ignore[arg-type]
        command_list.close()
        return command_list

    def compute(self, value: float) -> np.ndarray:
        """Write, execute, signal, wait, read."""
        self.source.write(np.full(COUNT, value, np.float32))
        self.device.queue.execute([self.list])
        self.value += 1
        self.device.queue.signal(self.fence, self.value)
        assert self.fence.wait(self.value, timeout=None if self.value % 2 else 30)
        data = self.target.read() if self.value % 3 else self.target.read_async().result()
        return data.view(np.float32)

    def begin(self, value: float) -> dmlgpu.Readback:
        """Write, execute, and begin to read."""
        self.source.write(np.full(COUNT, value, np.float32))
        self.device.queue.execute([self.list])
        return self.target.read_async()

    def check(self, value: float, result: np.ndarray | None = None) -> None:
        """Compare a result with NumPy's; it is computed by default."""
        result = self.compute(value) if result is None else result
        np.testing.assert_allclose(result, np.exp(np.full(COUNT, value, np.float32)), rtol=1e-6)


def storm(adapter: str, rounds: int) -> None:
    """Interrupt at random times, with reads of both kinds; a worker thread continues meanwhile."""
    device, interrupts = dmlgpu.Device(adapter), Interrupts()
    staging = dmlgpu.Device(adapter, disabled_features=["mappable-primary-buffers"])
    mine, staged, workers = Exponentials(device), Exponentials(staging), Exponentials(device)
    times: deque[float] = deque(maxlen=9)

    def typical(computed: Exponentials) -> float:
        """Return the median time of the latest computations: how busy the machine is changes meanwhile."""
        start = time.perf_counter()
        computed.compute(0.25)
        times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2]

    for _ in range(9):
        longest = typical(mine)
    over, failures, turns = threading.Event(), [], []

    def work() -> None:
        try:
            while not over.is_set():
                workers.check(len(turns) % 7 / 7)
                turns.append(None)
                time.sleep(10 * longest)
        except BaseException as failure:
            failures.append(failure)

    worker = threading.Thread(target=work)
    worker.start()
    interrupted = 0
    for index in range(rounds):
        exponentials = staged if index % 2 else mine
        longest = typical(exponentials)
        interrupted += interrupts.exposed(lambda: exponentials.compute(0.5), longest)  # noqa: B023 - called at once
        readback = exponentials.begin(index / rounds)
        interrupts.exposed(readback.result, longest)
        exponentials.check(interrupts.random.random())
        exponentials.check(index / rounds, readback.result().view(np.float32))
    over.set()
    worker.join()
    assert failures == []
    assert turns
    assert interrupted > rounds / 10, interrupted
    assert device.backend.allocated == 4 * 4 * COUNT  # type: ignore[attr-defined]
    assert len(library.expected_replies) < rounds
    device.remove()
    staging.remove()
    print(interrupted, "of", rounds, "interrupted, a computation takes", longest, "s", file=sys.stderr)


def slow_work(backend: GpuBackend) -> Sequence[object]:
    """Work of some hundredths of a second on a CPU, less on a GPU."""
    buffer = backend.create_buffer(1 << 20, "slow")
    executable = backend.prepare(program(backend, kernel(backend, SPIN, [output_slot(0, 1 << 20)], grid=4096)))
    return executable.bind(Resources((), (Range(buffer, 0, 1 << 20),)))


def long(adapter: str, rounds: int) -> None:
    """Interrupt long waits: of a submission, a time limit's, a read's, and that of the device's end."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    device = dmlgpu.Device(adapter)
    backend = device.backend
    assert isinstance(backend, GpuBackend)
    buffer, work = backend.create_buffer(256, "read"), slow_work(backend)
    start = time.perf_counter()
    backend.wait(backend.submit(work))
    repeats = int(1.0 / (time.perf_counter() - start)) + 1

    def delay(wait: Callable[[], object]) -> float:
        """Return how long after the signal a wait of about a second ends."""
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        armed = time.perf_counter()
        try:
            wait()
        except KeyboardInterrupt:
            return time.perf_counter() - armed - 0.1
        raise AssertionError("the wait was not interrupted")

    for index in range(rounds):
        backend.write(buffer, 0, words([index] * 64))
        serial = backend.submit([*work] * repeats)
        delays = [
            delay(lambda: backend.wait(serial)),  # noqa: B023 - called at once
            delay(lambda: backend.wait(serial, 60.0)),  # noqa: B023 - called at once
            delay(lambda: backend.read(buffer, 0, 256)),
        ]
        assert max(delays) < 0.2, delays
        assert not backend.is_done(serial)
        assert (backend.read(buffer, 0, 256).view(np.uint32) == index).all()
        assert backend.is_done(serial)
    backend.submit([*work] * repeats)
    assert delay(device.remove) < 0.2
    assert device.removed_reason == "it was removed on request"


def sizes(adapter: str, rounds: int) -> None:
    """Interrupt calls with new sizes while they are traced, compiled and run: by operators and a compiled function."""
    device, interrupts, times = dmlgpu.Device(adapter), Interrupts(), deque[float](maxlen=5)
    functions: list[tuple[Callable[[dmlgpu.Tensor], dmlgpu.Tensor], Callable[[np.ndarray], np.ndarray]]] = [
        (dmlgpu.compile(lambda x: dmlgpu.ops.exp(x) * 2 + x), lambda x: np.exp(x) * 2 + x),
        (dmlgpu.ops.sin, np.sin),
        (lambda x: dmlgpu.ops.sum(x, axis=0), lambda x: x.sum(axis=0)),
        (lambda x: x @ x.T, lambda x: x @ x.T),
        (dmlgpu.ops.softmax, lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
    ]
    interrupted = 0
    for index in range(rounds):
        function, expected = functions[index % len(functions)]
        x = np.random.default_rng(index).standard_normal((3 + index, 7), dtype=np.float32)

        def compute(function: Callable[..., dmlgpu.Tensor] = function, x: np.ndarray = x) -> np.ndarray:
            return function(dmlgpu.Tensor(x, device=device)).numpy()

        interrupted += interrupts.exposed(compute, max(times, default=0.05))
        start = time.perf_counter()
        np.testing.assert_allclose(compute(), expected(x), rtol=1e-4, atol=1e-5)
        times.append(time.perf_counter() - start)
    assert interrupted > rounds / 10, interrupted
    assert "dmlgpu helper" not in [thread.name for thread in threading.enumerate()]
    device.remove()


if __name__ == "__main__":
    {"storm": storm, "long": long, "sizes": sizes}[sys.argv[2]](sys.argv[1], int(sys.argv[3]))
    print("done")
