"""Stages of a run: compiled graphs between slots, and host reads between them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.compiler.sizes.networks import SizedNetwork
from dmlgpu.frontends.onnx import watching
from dmlgpu.frontends.onnx.placement import NodeKernels, Placement, PlacementSource, PlannedPlacement
from dmlgpu.frontends.onnx.tensor_proto import type_name
from dmlgpu.frontends.onnx.values import Bounds, Recipe, Shape
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.profiling import profile
from dmlgpu.tensors.recorded_call import Bytes, Place, Prepared, RecordedCall, refuse_repetition
from dmlgpu.tensors.session import leaves_untouched, session_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import bytes_of, elements_of

Array = NDArray[Any]
Held: TypeAlias = "Tensor | Array"
Outcome: TypeAlias = Hashable

MAX_FETCHED = 1 << 20
"""Maximum bytes of results that are read without becoming tensors."""

MAX_NUMBERS = 64
"""Maximum size of an integer tensor whose elements become symbols of a recording when the host reads them."""

Written: TypeAlias = "tuple[tuple[int, str], ...]"
"""Slots that a segment fills, with the names of the values in them."""


@dataclass(eq=False)
class RunInput:
    """An input of a run: its shape, its type (``OnnxValue.coded``) and its content."""

    shape: Shape
    data_type: DataType
    coded: int
    held: Held

    @property
    def signature(self) -> tuple[Shape, DataType, str]:
        """Facts that the translation depends on. The type is a name, because integers of outcomes count as sizes."""
        return self.shape, self.data_type, type_name(self.coded)


RunOutput: TypeAlias = "RunInput | list[RunInput] | None"
"""An output of a run: a tensor, a sequence of them, or None for an optional without an element."""


class Slots:
    """Tensors of one run, by slot index. Arrays are uploaded when a segment first reads them.

    Attributes:
        late: Results of recipes in this run.
        inputs: Inputs of the run, arrays or tensors.
        sizes: Values of symbolic numbers in this run, by index of their node.
    """

    def __init__(self, device: Device, inputs: Sequence[Held]):
        self.device = device
        self.sizes: Mapping[int, Any] = {}
        self.late: dict[Hashable, Any] = {}
        self.inputs = tuple(inputs)
        self._held: dict[int, Held] = dict(enumerate(inputs))

    def put(self, slot: int, held: Held) -> None:
        """Fill a slot."""
        self._held[slot] = held

    def held(self, slot: int) -> Held:
        """Return the content of a slot, on the host or on the device."""
        return self._held[slot]

    def tensor(self, slot: int) -> Tensor:
        """Return the content of a slot on the device, packed at offset 0."""
        held = self._held[slot]
        if not isinstance(held, Tensor):
            held = Tensor._uploaded(_as_numbers(held), self.device)
        elif held.signature[2] is not None or held.offset:
            held = held.copy()
        self._held[slot] = held
        return held

    def numbers(self, numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Return numbers, symbolic ones as they are in this run."""
        return tuple([self.sizes[number.node] if is_symbolic(number) else number for number in numbers])

    def array(self, slot: int) -> Array:
        """Return the content of a slot on the host; waits for the device."""
        held = self._held[slot]
        return held.numpy() if isinstance(held, Tensor) else held


def _as_numbers(array: Array) -> Array:
    """Convert an array to its form on the device: booleans to UINT8."""
    return array.astype(np.uint8) if array.dtype == np.bool_ else array


@dataclass(eq=False)
class Segment:
    """A graph from slots and weights to slots; compiled when it first runs.

    Attributes:
        ALL_NODES: Name in profiles of a graph whose kernels cannot be timed separately.
        graph: The graph.
        outputs: Its outputs, then required but unused outputs of operators.
        feeds: Slot of each input of the graph, None for a weight.
        weights: Key of the weight of each input of the graph, None for a slot.
        fills: Slot of each of ``outputs``.
        store: The weights.
        sized: If sizes in the graph are symbols, its network for the sizes of this segment.
    """

    ALL_NODES: ClassVar[str] = "all nodes"

    graph: Graph
    outputs: list[Tensor]
    feeds: list[int | None]
    weights: list[int | None]
    fills: list[int]
    store: Weights
    sized: SizedNetwork | None = None
    _prepared: Prepared | None = field(default=None, repr=False)
    _compiled: CompiledOperator | None = field(default=None, repr=False)

    @cached_property
    def kernels(self) -> NodeKernels:
        """Kernels by the nodes that they compute."""
        return NodeKernels(self)

    @cached_property
    def desc(self) -> GraphDesc:
        """Description of the graph; its outputs, then those that operators require and nothing reads."""
        return self.graph.desc(self._all_outputs) if self.sized is None else self.sized.desc

    @property
    def _all_outputs(self) -> list[Tensor]:
        return [*self.outputs, *self.graph._unread(self.outputs)]

    @property
    def compiled(self) -> CompiledOperator:
        """The compiled graph.

        Raises:
            DmlError: As ``Graph.compile``.
        """
        if self._compiled is None:
            self._compiled = self.graph.compile(self._all_outputs) if self.sized is None else self._of(self.sized)
            self.store.users.add(self._compiled)
        return self._compiled

    def _of(self, network: SizedNetwork) -> CompiledOperator:
        device = self.graph.device
        try:
            return device._compile_sized(network)
        except NotSupported:  # without symbols, the message names the node
            return device.compile_graph(self.desc)

    @property
    def prepared(self) -> Prepared:
        """The compiled graph, initialized. Raises as ``compiled``."""
        if self._prepared is None:
            prepared = Prepared.of(self.compiled, self.clears)
            self._initialize(prepared)
            self._prepared = prepared
        return self._prepared

    @cached_property
    def call(self) -> RecordedCall:
        """The call of the compiled graph. Raises as ``compiled``."""
        return RecordedCall.of_operator(session_of(self.compiled.device), self.prepared)

    @cached_property
    def clears(self) -> bool:
        """Whether some elements of the outputs are not written and must be zero beforehand."""
        origins = [self.graph.nodes[output.origin.number].desc for output in self._all_outputs]
        return any(isinstance(desc, OperatorDesc) and leaves_untouched(desc) for desc in origins)

    @property
    def node_count(self) -> int:
        """Number of nodes of the graph, constants among them."""
        return len(self.graph.nodes)

    def _initialize(self, prepared: Prepared) -> None:
        """Fill the persistent resource, or take parts of it that other graphs have filled."""
        compiled = self.compiled
        if prepared.executable.persistent_size:
            owned = [key if port.owned else None for port, key in zip(compiled.inputs, self.weights, strict=True)]
            self.store.initialize(prepared, compiled.program, owned)

    @cached_property
    def reads(self) -> list[int | None]:
        """Slot of each input that every run reads; None if absent or read by the initialization."""
        descs = self.prepared.inputs
        return [
            slot if desc is not None and not desc.owned_by_dml else None
            for desc, slot in zip(descs, self.feeds, strict=True)
        ]

    @cached_property
    def _written(self) -> list[tuple[int, DataType, Shape]]:
        """The slot, type and sizes of each output."""
        return [(slot, output.data_type, output.sizes) for slot, output in zip(self.fills, self.outputs, strict=True)]

    def run(self, slots: Slots, fetch: bool = False, donated: Collection[int] = ()) -> None:
        """Compute the segment's slots. Recorded work is reused for the same memory.

        Args:
            slots: Slots of this run.
            fetch: Whether the results are for the host: small ones then become arrays.
            donated: Slots whose memory is not needed after the run, so that results may be computed in it.
        """
        watch = watching.current()
        if watch is not None and self._prepared is None:
            start = time.perf_counter()
            with watch.compiling(self):
                self.prepared  # noqa: B018
            watch.compiled(self, start, time.perf_counter() - start)
        if fetch and watch is None and self._is_small:
            self._fetch(slots)
            return
        device = self.compiled.device
        sources = [None if slot is None else slots.tensor(slot) for slot in self.reads]
        places = [None if source is None else (source.buffer._memory, 0) for source in sources]
        in_place = self._in_place(sources, donated)
        written = {output: (buffer._memory, 0) for output, buffer in in_place.items()}
        session, is_timed = session_of(device), watch is not None and watch.times
        with profile() if is_timed else nullcontext() as times:
            label = self.ALL_NODES if is_timed else "graph"
            buffers = self.call.run(session, device, places, label, owners=sources, in_place=written)
        if times is not None and watch is not None:
            start = times.kernels[0][1] if times.kernels else time.perf_counter()
            watch.ran(self, start, [(name, seconds) for name, _, seconds in times.kernels])
        targets = [in_place.get(output, buffer) for output, buffer in enumerate(buffers)]
        for (slot, data_type, sizes), target in zip(self._written, targets, strict=False):
            assert target is not None
            slots.put(slot, Tensor._packed(target, data_type, sizes))

    def _in_place(self, sources: Sequence[Tensor | None], donated: Collection[int]) -> dict[int, Buffer]:
        """Return the memory of the outputs that are computed in place of an input, by output index."""
        prepared, reads = self.prepared, self.reads
        if not donated or prepared.clears:
            return {}
        memory = {}
        for output, index in prepared.executable.in_place.items():
            desc, source = prepared.outputs[output], sources[index]
            fits = source is not None and desc is not None and source.buffer.size == desc.byte_size
            if fits and reads[index] in donated and reads.count(reads[index]) == 1:
                assert source is not None
                memory[output] = source.buffer
        return memory

    @cached_property
    def _is_small(self) -> bool:
        """Whether creating tensors would take noticeable time compared to reading the results."""
        return sum(0 if desc is None else desc.byte_size for desc in self.prepared.outputs) <= MAX_FETCHED

    def _fetch(self, slots: Slots) -> None:
        """Compute the segment's slots as arrays. Arrays among the inputs are on the device only meanwhile."""
        sources: list[Place | Bytes | None] = []
        for slot in self.reads:
            held = None if slot is None else slots.held(slot)
            if slot is None or held is None:
                sources.append(None)
            elif isinstance(held, Tensor):
                sources.append((slots.tensor(slot).buffer._memory, 0))
            else:
                array = _as_numbers(held)
                sources.append(bytes_of(array, DataType.from_numpy(array.dtype)))
        results = self.call.compute(session_of(self.compiled.device), sources, "graph")
        for (slot, data_type, sizes), raw in zip(self._written, results, strict=False):
            assert raw is not None
            slots.put(slot, elements_of(raw, data_type, sizes))


class Action(Protocol):
    """An action between two segments, which determines the further translation."""

    def run(self, slots: Slots) -> Outcome:
        """Run it; return its outcome. Equal outcomes lead to the same segments."""


@dataclass(frozen=True)
class Read:
    """Read elements that shapes depend on."""

    recipes: Sequence[Recipe]

    def run(self, slots: Slots) -> Outcome:
        """Return the elements of each: a few integers as a tuple, else bytes."""
        return tuple(_outcome_of(recipe(slots)) for recipe in self.recipes)


def _outcome_of(array: Array) -> Outcome:
    is_index = array.dtype.kind in "iu" and array.dtype.itemsize >= 4
    return tuple(array.reshape(-1).tolist()) if is_index and array.size <= MAX_NUMBERS else array.tobytes()


@dataclass(frozen=True)
class Decide:
    """Apply a function to elements, whose result determines shapes.

    Attributes:
        recipes: Recipes of the elements.
        function: The function.
        numbers: Its further arguments: integers, which may be symbolic.
    """

    recipes: Sequence[Recipe]
    function: Callable[..., Hashable]
    numbers: Sequence[Any] = ()

    def run(self, slots: Slots) -> Outcome:
        """Return the result."""
        return self.function(*(recipe(slots) for recipe in self.recipes), *slots.numbers(self.numbers))


@dataclass(frozen=True)
class Fill:
    """Elements that the host computes: the state of a random number stream, or numbers that depend on sizes, so that
    graphs are independent of them.

    Attributes:
        slot: Target slot.
        function: Returns the elements for some numbers; an iterator over those of each run if ``node`` is given.
        numbers: Its arguments; symbolic ones are ``needed``.
        node: Name of the node that draws elements in each run; None if all runs have the same.
    """

    slot: int
    function: Callable[..., Any]
    numbers: Sequence[Any]
    node: str | None

    @cached_property
    def _elements(self) -> Iterator[Array]:
        elements = self.function(*self.numbers)
        return itertools.repeat(elements) if self.node is None else elements

    def run(self, slots: Slots) -> None:
        """Fill the slot."""
        if self.node is not None:
            refuse_repetition()
        slots.put(self.slot, next(self._elements))


class OnDevice(Exception):
    """An element is on the device and must not be read."""


class HostOnly:
    """Inputs of a run that are arrays, for recipes."""

    def __init__(self, slots: Slots):
        self.late, self.numbers, self._inputs = slots.late, slots.numbers, slots.inputs

    def array(self, index: int) -> Array:
        """Return the elements of an input that is an array.

        Raises:
            OnDevice: If it is a tensor, or no input.
        """
        held = self._inputs[index] if index < len(self._inputs) else None
        if not isinstance(held, np.ndarray):
            raise OnDevice
        return held


@dataclass(frozen=True)
class InputCheck:
    """Range check of indices or lengths that depend on inputs of the run."""

    recipe: Recipe
    bounds: Bounds

    def run(self, slots: Slots) -> None:
        """Raise InvalidArgument if an element is out of range; no check if inputs are on the device."""
        try:
            array = self.recipe(HostOnly(slots))
        except OnDevice:
            return
        self.bounds.of(slots).check(array)


@dataclass(eq=False)
class Output:
    """An output: a slot, an array determined by input shapes and the model, or a host computation."""

    name: str
    shape: Shape
    data_type: DataType
    coded: int
    slot: int | None = None
    array: Array | None = None
    recipe: Recipe | None = None

    def take(self, slots: Slots) -> Held:
        """Return the output of a run: a tensor with its shape, or an array."""
        if self.recipe is not None:
            return self.recipe(slots)
        if self.slot is None:
            assert self.array is not None
            return self.array
        held = slots.held(self.slot)
        return held if held.shape == self.shape else held.reshape(self.shape)


@dataclass(eq=False)
class RunStage:
    """A stage of a run: a segment, then an action or the outputs of the model.

    Attributes:
        segment: The segment; None if nothing is computed.
        action: Action after it; None at the end.
        outputs: Outputs of the model, at the end.
        placed: Nodes translated since the last stage.
        checks: Checks before it.
        fills: Elements generated before it.
        sizes: Values of symbolic numbers that its checks and its action need, by index of their node.
        before: Slots that earlier stages must have filled.
        written: Slots that its segment fills.
        containers: Element counts of the outputs that are sequences, by output index; None for an optional without an
            element. Their elements are among ``outputs``, in order.
        is_recorded: Whether it follows from a recording.
    """

    segment: Segment | None
    action: Action | None = None
    outputs: tuple[Output, ...] = ()
    placed: tuple[PlannedPlacement | tuple[str, PlacementSource], ...] = ()
    checks: tuple[InputCheck, ...] = ()
    fills: tuple[Fill, ...] = ()
    sizes: Mapping[int, Any] = field(default_factory=dict)
    before: tuple[Written, ...] = ()
    written: Written = ()
    containers: Mapping[int, int | None] = field(default_factory=dict)
    is_recorded: bool = False

    @property
    def memory(self) -> int:
        """Bytes that its compiled graph holds, as estimated; 0 before it is compiled."""
        prepared = None if self.segment is None else self.segment._prepared
        return 0 if prepared is None else prepared.memory

    def grouped(self, results: Iterable[RunInput]) -> Iterator[RunOutput]:
        """Return the outputs of the model from the tensors in ``outputs``."""
        remaining = iter(results)
        index = 0
        while True:
            if index in self.containers:
                count = self.containers[index]
                yield None if count is None else list(itertools.islice(remaining, count))
            else:
                result = next(remaining, None)
                if result is None:
                    return
                yield result
            index += 1

    def placements(self) -> Iterator[Placement]:
        """Return where its nodes were computed, those in bodies prefixed by the names of loops."""
        for placed in self.placed:
            if isinstance(placed, PlannedPlacement):
                yield placed.placement
            else:
                name, body = placed
                yield from (replace(inner, node=f"{name}/{inner.node}") for inner in body.placement)

    def run(self, slots: Slots, fetch: bool = False, donated: Collection[int] = ()) -> None:
        """Run checks, fill slots, and compute the segment; see ``Segment.run``. Later stages need what is donated."""
        slots.sizes = self.sizes
        for check in self.checks:
            check.run(slots)
        for fill in self.fills:
            fill.run(slots)
        if self.segment is not None:
            is_last = self.action is None
            returned = {output.slot for output in self.outputs}
            may_donate = is_last and all(output.recipe is None for output in self.outputs)
            self.segment.run(
                slots, fetch and is_last, [slot for slot in donated if may_donate and slot not in returned]
            )
