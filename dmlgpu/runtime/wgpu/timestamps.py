"""Execution time of work on the device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import wgpu

from dmlgpu.runtime.executor import Timing
from dmlgpu.runtime.wgpu.buffers import Allocator
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.queue import GpuQueue, RecordedWork, Work
from dmlgpu.runtime.wgpu.transfers import Transfers

_QUERY_BYTES = 8
_MAX_PARTS = 1024  # a query set holds 4096 at most


class Timestamps:
    """Timer of lists of work, by GPU timestamps if the device has them."""

    def __init__(self, context: Context, allocator: Allocator, queue: GpuQueue, transfers: Transfers):
        self._context, self._allocator, self._queue, self._transfers = context, allocator, queue, transfers
        self._has_queries = context.target.has("timestamp-query")

    def time(self, work: Sequence[Work], parts: bool = False) -> Timing:
        """Run work once, wait, and return the time taken.

        Args:
            work: Pieces of work, in order.
            parts: Also time each piece, in a pass of its own; wall-clock results have no parts.

        Raises: As ``GpuQueue.submit``.
        """
        self._queue.wait(self._queue.flush())
        if self._has_queries and work and (not parts or len(work) <= _MAX_PARTS):
            ticks, wall = self._by_queries([RecordedWork([item]) for item in work] if parts else [RecordedWork(work)])
            period = self._context.library.timestamp_period(self._context.queue) * 1e-9
            return Timing.of_timestamps(((ticks - ticks[0, 0]).view(np.int64) * period).tolist(), wall, parts)
        start = time.perf_counter()
        self._queue.wait(self._queue.submit(work))
        wall = time.perf_counter() - start
        return Timing(wall, "wall clock", host_seconds=wall)

    def _by_queries(self, groups: Sequence[RecordedWork]) -> tuple[Any, float]:
        """Return the ticks at the start and the end of each group, and the wall-clock seconds of all."""
        context, count = self._context, 2 * len(groups)
        result = self._allocator.create(count * _QUERY_BYTES, "timestamps", charged=False)
        try:
            with context.lock, context.reporting("timestamps"):
                context.check()
                for group in groups:
                    self._queue.check(group)
                usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
                resolved = context.device.create_buffer(label="timestamps", size=result.size, usage=usage)
                queries = context.device.create_query_set(type="timestamp", count=count)
                start = time.perf_counter()
                encoder = context.device.create_command_encoder()
                for index, group in enumerate(groups):
                    _stamp(encoder, queries, 2 * index)
                    group.record(context.library, encoder._internal)
                    _stamp(encoder, queries, 2 * index + 1)
                encoder.resolve_query_set(queries, 0, count, resolved, 0)
                encoder.copy_buffer_to_buffer(resolved, 0, result.wgpu, 0, result.size)
                commands = encoder.finish()
                serial = self._queue.send(commands._internal)
            self._queue.wait(serial)
            wall = time.perf_counter() - start
            return self._transfers.read(result, 0, result.size).view(np.uint64).reshape(-1, 2), wall
        finally:
            self._allocator.destroy(result)


def _stamp(encoder: wgpu.GPUCommandEncoder, queries: Any, index: int) -> None:
    """Write one timestamp between pieces of work, by an empty pass, which needs no other feature."""
    encoder.begin_compute_pass(timestamp_writes={"query_set": queries, "beginning_of_pass_write_index": index}).end()
