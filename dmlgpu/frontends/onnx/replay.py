"""Repeat a run with other elements, without checks, allocations and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmlgpu.frontends.onnx.segments import Segment, Slots, SymbolicFill
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.session import Place, session_of
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.session import Session


class RunReplay:
    """Repeats the last run of a session.

    Outputs lie in two sets of memory that take turns, the first of which is that of the run: the run after the next one
    overwrites them.

    Args:
        device: Device of the session.
        segment: The segment that the run computed.
        inputs: Tensors of the inputs of the run, by slot.
        slots: Slots of the inputs, by name.
        outputs: Tensors of the requested outputs, by name, and their indices among those of the segment.
        in_place: Memory of outputs that are computed in place of an input, by output index.
    """

    def __init__(
        self,
        device: Device,
        segment: Segment,
        inputs: Mapping[int, Tensor],
        *,
        slots: Mapping[str, int],
        outputs: Mapping[str, tuple[Tensor, int]],
        in_place: Mapping[int, Buffer],
    ):
        self._session, self._prepared, self._reads = session_of(device), segment.prepared, segment.reads
        self._inputs, self._slots = inputs, slots
        pool, size = self._session.pool, self._prepared.executable.temporary_size
        scratch = pool.take(device, size, "graph") if size else None
        fixed = dict(in_place)
        self._owned: list[Any] = [scratch]
        self._turns: list[tuple[list[Any], dict[str, Tensor]]] = []
        for memory in ({index: tensor.buffer for tensor, index in outputs.values()}, {}):
            buffers = [
                None if desc is None else (fixed | memory).get(index) or pool.take(device, desc.byte_size, "graph")
                for index, desc in enumerate(self._prepared.outputs)
            ]
            written = [None if buffer is None else buffer._memory for buffer in (*buffers, scratch)]
            tensors = {
                name: Tensor._packed(buffers[index], tensor.data_type, tensor.sizes)  # type: ignore[arg-type]
                for name, (tensor, index) in outputs.items()
            }
            self._turns.append((written, tensors))
            self._owned.append(buffers)

    @classmethod
    def of(cls, session: Session, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> RunReplay | None:
        """Return the repetition of the last run of a session.

        Args:
            session: The session.
            inputs: Inputs of the run that are not bound.
            outputs: Requested outputs of the run.

        Returns:
            None if the run was more than one graph, or did not update all bound inputs in place.
        """
        stage = session._runner.only_stage
        if stage is None or stage.segment is None or stage.action is not None:
            return None
        if not all(isinstance(fill, SymbolicFill) for fill in stage.fills):  # others differ from run to run
            return None
        segment, slots = stage.segment, {output.name: output.slot for output in stage.outputs}
        input_slots = {name: index for index, name in enumerate(session._runner.inputs)}
        donated = session._donated(session._runner, inputs)
        values, counts = session._run_inputs(inputs)
        held = Slots(session.device, [value.held for value in values if value is not None])
        held.sizes = stage.sizes
        for fill in stage.fills:
            fill.run(held)
        updated = [bound for bound in session._bound.values() if bound.updated_by is not None]
        if (
            counts
            or stage.containers
            or len(held.inputs) != len(values)
            or segment.prepared.clears
            or len(donated) != len(updated)
        ):
            return None
        sources = [None if slot is None else held.tensor(slot) for slot in segment.reads]
        in_place = segment._in_place(sources, donated)
        if len(in_place) != len(donated) or any(slots[name] not in segment.fills for name in outputs):
            return None
        places = {
            slot: tensor
            for slot, tensor in zip(segment.reads, sources, strict=True)
            if slot is not None and tensor is not None
        }
        requested = {name: (tensor, segment.fills.index(slots[name])) for name, tensor in outputs.items()}  # type: ignore[arg-type]
        return cls(session.device, segment, places, slots=input_slots, outputs=requested, in_place=in_place)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run with other tensors for some inputs, which are packed; return the requested outputs. Does not wait.

        The run shares a submission with the next work or read, which should follow at once.

        Raises:
            OutOfMemory: If memory for the work cannot be allocated.
            DeviceRemoved: If the device is removed.
        """
        self._turns.reverse()
        written, outputs = self._turns[0]
        tensors = {**self._inputs, **{self._slots[name]: tensor for name, tensor in inputs.items()}}
        places: list[Place | None] = [
            None if slot is None else (tensors[slot].buffer._memory, 0) for slot in self._reads
        ]
        work = self._session._recorded_work(self._prepared, places, written)
        self._session.submit(work, "graph", is_followed=True)
        return outputs
