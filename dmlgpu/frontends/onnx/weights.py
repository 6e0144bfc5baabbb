"""Weights of a model on a device: uploaded and laid out a tensor at a time, shared by all compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.persistent_parts import FilledParts, PersistentPart, filled_parts
from dmlgpu.compiler.program import Program
from dmlgpu.frontends.onnx.tensor_proto import as_held
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.recorded_call import Prepared
from dmlgpu.tensors.session import OwnedBuffer, PersistentBuffers, session_of

_MAX_IN_FLIGHT = 2 << 20
"""Bytes of uploads after which loading waits: drivers free their copies when the device has read them."""

_MAX_BATCH = 4 << 20
"""Bytes of uploads of a batch: a write to the device submits the work before it."""

_PIECE = 1 << 20
"""Maximum bytes of an upload."""


class _SharedSubmission:
    """Fills of parts whose weights are uploaded, which share a submission.

    Attributes:
        uploads: Weights on the device that are needed, by input.
        fills: The fills, by the content of the parts.
    """

    def __init__(self) -> None:
        self.uploads: dict[int, OwnedBuffer] = {}
        self.fills: dict[Hashable, Callable[[], None]] = {}
        self._bytes = 0

    def add(self, key: Hashable, fill: Callable[[], None], size: int) -> None:
        """Add a fill that reads uploads of some bytes."""
        self.fills[key] = fill
        self._bytes += size
        if self._bytes > _MAX_BATCH:
            self.run()

    def run(self) -> None:
        """Run all fills."""
        for fill in self.fills.values():
            fill()
        self.fills, self._bytes = {}, 0


class Weights:
    """Constants of a model on a device, laid out by initializations that all compiled graphs of the model share.

    Attributes:
        users: Compiled graphs that read them.
        translating: Seconds spent translating nodes.
    """

    def __init__(self, device: Device):
        self._device = device
        self.users: WeakSet[CompiledOperator] = WeakSet()
        self.translating = 0.0
        self._arrays: dict[int, tuple[NDArray[Any], DataType]] = {}
        self._in_flight = 0
        self._uploaded: WeakValueDictionary[int, OwnedBuffer] = WeakValueDictionary()
        self._parts: WeakValueDictionary[Hashable, OwnedBuffer] = WeakValueDictionary()

    def key_of(self, array: NDArray[Any], data_type: DataType) -> int:
        """Return the key of an array, registered if new."""
        self._arrays.setdefault(id(array), (array, data_type))
        return id(array)

    def data(self, key: int) -> NDArray[np.uint8]:
        """Return the bytes of an array in memory order."""
        array, data_type = self._arrays[key]
        shape = array.shape or (1,)
        held, desc = as_held(array, data_type).reshape(shape), TensorDesc(data_type, shape)
        is_whole = data_type.bits >= 8 and held.nbytes == desc.byte_size
        return held.reshape(-1).view(np.uint8) if is_whole else desc.encode(held)

    def initialize(self, prepared: Prepared, program: Program | None, keys: Sequence[int | None]) -> None:
        """Fill the persistent resource of a graph, a part at a time. Graphs share parts of equal content.

        Args:
            prepared: The graph.
            program: Its kernels; None on executors without kernels.
            keys: Key of the weight of each input; None for other inputs.

        Raises:
            OutOfMemory: If the device has no memory left.
        """
        if program is None:
            whole = [None if key is None else self._upload(key) for key in keys]
            session = session_of(self._device)
            session.initialize(prepared, [None if buffer is None else (buffer.memory, 0) for buffer in whole])
            return
        # Largest first: later ones fill the hole in the driver's last block that a freed upload leaves.
        filled = sorted(filled_parts(program), key=lambda group: -self._upload_size(group, keys))
        last_use = {source: index for index, group in enumerate(filled) for source in group.inputs}
        buffers: dict[PersistentPart, OwnedBuffer] = {}
        batch = _SharedSubmission()
        for index, group in enumerate(filled):
            buffers |= self._filled(prepared, program, group, keys, batch)
            for source in group.inputs:
                if last_use[source] == index:
                    batch.uploads.pop(source, None)
        batch.run()
        prepared.persistent = PersistentBuffers(buffers)

    def _filled(
        self,
        prepared: Prepared,
        program: Program,
        group: FilledParts,
        keys: Sequence[int | None],
        batch: _SharedSubmission,
    ) -> dict[PersistentPart, OwnedBuffer]:
        """Return the memory of parts, filled by a batch or for another graph."""
        key = group.key(program, keys)
        if key in batch.fills:
            batch.run()
        lasting = [part for part in group.parts if part.is_lasting]
        shared = {part: self._parts.get((key, number)) for number, part in enumerate(lasting)}
        present = {part: buffer for part, buffer in shared.items() if buffer is not None}
        if len(present) == len(lasting):
            return present
        copied, session = group.copied_input(program), session_of(self._device)
        filled = {}
        if copied is None:  # first, as drivers fill their last block, and so holes of uploads that follow
            filled = {part: OwnedBuffer(session.state, part.size, "weight") for part in group.parts}
        for source in group.inputs:
            weight = keys[source]
            assert weight is not None
            if source not in batch.uploads:
                batch.uploads[source] = self._upload(weight)
        own = {source: batch.uploads[source] for source in group.inputs}
        if copied is not None:
            filled = dict.fromkeys(group.parts, own[copied])

        def fill() -> None:
            if copied is None:
                places = [(own[source].memory, 0) if source in own else None for source in range(len(keys))]
                session.fill(prepared, places, PersistentBuffers(filled), group.kernels)
            for number, part in enumerate(lasting):
                self._parts[key, number] = filled[part]

        batch.add(key, fill, sum(buffer.size for buffer in own.values()))
        return {part: filled[part] for part in lasting}

    def _upload_size(self, group: FilledParts, keys: Sequence[int | None]) -> int:
        """Return the bytes of the largest weight that fills some parts."""
        weights = [key for source in group.inputs if (key := keys[source]) is not None]
        return max((self._arrays[key][0].nbytes for key in weights), default=0)

    def _upload(self, key: int) -> OwnedBuffer:
        """Return the bytes of an array on the device, uploaded unless they are there."""
        buffer = self._uploaded.get(key)
        if buffer is None:
            data, state = self.data(key), session_of(self._device).state
            buffer = OwnedBuffer(state, data.size, "weight")
            for start in range(0, data.size, _PIECE):
                piece = data[start : start + _PIECE]
                state.call(state.backend.write, buffer.memory, start, piece)
                self._in_flight += piece.size
                if self._in_flight > _MAX_IN_FLIGHT:
                    self._in_flight = 0
                    state.backend.wait(state.call(state.backend.submit, []))
            self._uploaded[key] = buffer
        return buffer
