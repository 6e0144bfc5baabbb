"""Sequences of millions of elements where a few are due are refused before they are copied."""

import time

from dmlgpu import BufferArrayBinding, DataType, TensorDesc, descs
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.compiler.graph import GraphDesc
from tests.fuzz.devices import ROW, open_device
from tests.fuzz.monitor import Refused

REDUCED = descs.Reduce(function=ReduceFunction.SUM, input_tensor=ROW, output_tensor=ROW, axes=(0,))
JOINED = descs.Join(input_tensors=(ROW,), output_tensor=ROW, axis=0)


def replay(monitor):
    device = open_device(monitor.adapter)
    start = time.thread_time()
    for count in (2**26, 2**40):
        for function, *arguments in (
            (TensorDesc, DataType.INT32, range(count)),
            (TensorDesc, DataType.INT32, (1,), range(count)),
            (device.create_operator_initializer, range(count)),
            (device.queue.execute, range(count)),
            (device.evict, range(count)),
            (GraphDesc, 1, 1, range(count)),
            (BufferArrayBinding, range(count)),
            (lambda axes: REDUCED.replace(axes=axes), range(count)),
            (lambda tensors: JOINED.replace(input_tensors=tensors), range(count)),
        ):
            refused = monitor.call(function, *arguments)
            monitor.check(isinstance(refused, Refused), "accepted", str(function))
    monitor.check(time.thread_time() - start < 0.5, "slow", "long_sequences")
