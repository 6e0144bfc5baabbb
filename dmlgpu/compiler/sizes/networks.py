"""Networks apart from their integers, and the same networks with other integers."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.compiler.graph.description import GraphDesc, OperatorNode
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.program_cache import ProgramFiles
from dmlgpu.compiler.sizes.arithmetic import Recording, Replay, Size, Symbol, fields_of, is_symbolic, with_fields
from dmlgpu.compiler.sizes.recordings import MAX_RECORDINGS, Recordings, count_failure, first_result
from dmlgpu.compiler.target import Target

if TYPE_CHECKING:
    from dmlgpu.compiler.sizes.programs import PlannedNetwork

_lock: Final = threading.Lock()
"""Held while networks are planned on symbols."""


def _count(plans: Iterable[PlannedNetwork]) -> int:
    """Return how often plans, or steps of them, were recorded."""
    return sum(1 + plan.count for plan in plans)


class RecordedNetwork:
    """A network whose integers follow from the symbols of a recording, and its programs. Thread-safe.

    Args:
        network: A network with symbols. Created while they are recorded.
        recording: The recording.
        desc: Description of the graph, for networks that programs of graphs are compiled of.

    Attributes:
        sized: The network for the symbols. Replays of the recording return it for their values.
        varying: Places of the integers that are symbols.
    """

    def __init__(self, network: Network, recording: Recording, desc: GraphDesc | None = None):
        self.network, self.desc = network, desc
        integers = separated(_distinct(network))[1]
        self.sized = SizedNetwork(self, recording.symbols, integers)
        self.varying = [place for place, integer in enumerate(integers) if is_symbolic(integer)]
        self._replay = Replay(recording.nodes, {}, integers)
        self._plans: dict[Hashable, list[PlannedNetwork]] = {}

    def program(
        self,
        values: Sequence[int],
        target: Target,
        disabled: Collection[str] = (),
        files: ProgramFiles | None = None,
    ) -> Program | None:
        """Return the program for values of the symbols, by a plan that holds for them: from memory, from files, or
        recorded.

        Returns:
            None if it cannot be recorded, which is counted.
        """
        from dmlgpu.compiler.sizes.programs import PlannedNetwork  # noqa: PLC0415 - slow, and loading a model needs none

        target = target.varying
        kind = target, frozenset(disabled)
        with _lock:
            try:
                plans = self._plans.get(kind)
                if plans is None:
                    plans = self._plans[kind] = self._load(target, disabled, files)
                count = _count(plans)
                program = first_result(plans, lambda plan: plan.program(values))
                if program is None:
                    recording = Recording(values)
                    with recording.active():
                        network = _rebuilt(self.network, self._replay.on(recording))
                        plans.insert(0, PlannedNetwork(network, recording, target, disabled))
                    del plans[MAX_RECORDINGS:]
                    program = plans[0].program(values)
            except Exception as error:  # with plain numbers, the compiler says what is wrong
                count_failure(error)
                return None
            if _count(plans) != count and files is not None:
                try:
                    files.save_plans(self._name(target, disabled), plans)
                except Exception as error:  # each process plans again
                    count_failure(error)
            return program

    def _load(self, target: Target, disabled: Collection[str], files: ProgramFiles | None) -> list[PlannedNetwork]:
        return (None if files is None else files.load_plans(self._name(target, disabled))) or []

    def _name(self, target: Target, disabled: Collection[str]) -> str:
        """Return the name of the plans in files."""
        return f"{self._digest}\n{sorted(disabled)}\n{target.text}"

    @functools.cached_property
    def _digest(self) -> str:
        """A hash that is the same for equal networks, and equal expressions of their integers, in every process."""
        network, integers = self.network, self.sized.integers
        distinct = _distinct(network)
        places = {id(desc): place for place, desc in enumerate(distinct[2:])}
        nodes = [(node.name, node.inputs, places[id(node.desc)]) for node in network.nodes]
        read: dict[int, int] = {}
        numbers = [
            f"#{read.setdefault(integer.node, len(read))}" if is_symbolic(integer) else integer for integer in integers
        ]
        data = [hashlib.sha256(constant).hexdigest() for constant in network.constants]
        parts = network.name, sorted(network.initial), network.outputs, data, nodes, separated(distinct)[0], numbers
        return hashlib.sha256(f"{parts!r} {self._replay.text}".encode()).hexdigest()


@dataclass(frozen=True)
class SizedNetwork:
    """A network by the values of its symbols. Only what is read of it is built.

    Attributes:
        recorded: The network with symbols.
        values: Values of the symbols.
        integers: The integers of the network, which follow from them.
    """

    recorded: RecordedNetwork
    values: Sequence[Any]
    integers: Sequence[Any]

    @functools.cached_property
    def network(self) -> Network:
        """The network."""
        return _rebuilt(self.recorded.network, self.integers)

    @functools.cached_property
    def tensors(self) -> tuple[tuple[TensorDesc | None, ...], tuple[TensorDesc, ...]]:
        """Its inputs and outputs."""
        network, following = self.recorded.network, iter(self.integers)
        inputs, outputs = with_integers((network.inputs, network.output_tensors), following)
        return inputs, outputs

    @property
    def desc(self) -> GraphDesc:
        """The description of the graph with sizes in place of symbols."""
        desc, operators = self.recorded.desc, iter(self.network.nodes)  # in the order of the description
        assert desc is not None
        nodes = [
            replace(node, desc=next(operators).desc) if isinstance(node, OperatorNode) else node for node in desc.nodes
        ]
        return replace(desc, nodes=tuple(nodes))


def sized_network(desc: GraphDesc, recording: Recording) -> SizedNetwork:
    """Return the network of a graph with symbols for the symbols, while they are recorded."""
    return RecordedNetwork(resolve(desc), recording, desc).sized


kinds: Final[Cache[Hashable, Recordings[RecordedNetwork]]] = Cache(CacheLimits(entries=64, size=1 << 20))
"""The networks of this process by what they are but for their integers, of which the size is the count."""


def program_of(network: Network, target: Target, disabled: Collection[str] = ()) -> Program | None:
    """Return the program of a network that differs in integers from one that was compiled before; None if it is the
    first of its kind, or cannot be recorded. Thread-safe."""
    if target.policies.specialized:
        return None
    kind, integers = structure_of(network)
    recordings: Recordings[RecordedNetwork] = kinds.get_or_make(
        kind, lambda: Recordings(integers), lambda _: len(integers)
    )

    def record(symbolic: list[Any], recording: Recording) -> RecordedNetwork:
        inputs, outputs, *descs = with_integers(_every(network), iter(symbolic))
        nodes = tuple([replace(node, desc=desc) for node, desc in zip(network.nodes, descs, strict=True)])
        return RecordedNetwork(replace(network, inputs=inputs, output_tensors=outputs, nodes=nodes), recording)

    return recordings.result(integers, lambda recorded, values: recorded.program(values, target, disabled), record)


def structure_of(network: Network) -> tuple[Hashable, list[Any]]:
    """Return all of a network but its integers, and these: sizes, strides, bytes, attributes. Networks with equal
    structures have as many."""
    kind, integers = separated(_every(network))
    nodes = tuple([(node.name, node.inputs) for node in network.nodes])
    data = tuple([hashlib.sha256(data).digest() for data in network.constants])
    return (network.name, network.initial, network.outputs, data, nodes, kind), integers


def separated(part: Any) -> tuple[Hashable, list[Any]]:
    """Return all of tuples, descriptions and their parts but the integers, and these."""
    kind: list[Hashable] = []
    integers: list[Any] = []
    _flatten(part, kind, integers)
    return tuple(kind), integers


def key_of(part: Any) -> Hashable:
    """Return a key of a description, or of numbers in tuples: equal only for equal expressions, without a guard.

    Raises:
        TypeError: If a part cannot be hashed.
    """
    kind, integers = separated(part)
    hash(kind)
    return kind, *[(integer.recording, integer.node) if is_symbolic(integer) else integer for integer in integers]


def _flatten(part: Any, kind: list[Hashable], integers: list[Any]) -> None:
    cls: Any = type(part)
    if cls is int or cls is Size or cls is Symbol:
        kind.append(int)
        integers.append(part)
    elif cls is tuple or cls is list:
        kind.append((cls, len(part)))
        for item in part:
            _flatten(item, kind, integers)
    elif cls is float:
        kind.append(part.hex())
    elif fields := fields_of(cls):
        kind.append(cls)
        values = part.__dict__
        for field in fields:
            _flatten(values[field], kind, integers)
    else:
        kind.append((cls, part))


def _every(network: Network) -> tuple[Any, ...]:
    """Return the inputs and outputs of a network, and the description of each node."""
    return (network.inputs, network.output_tensors, *[node.desc for node in network.nodes])


def _distinct(network: Network) -> tuple[Any, ...]:
    """Return the inputs and outputs of a network, and the descriptions of its nodes: once what equal layers share."""
    return (network.inputs, network.output_tensors, *{id(node.desc): node.desc for node in network.nodes}.values())


def _rebuilt(network: Network, integers: Iterable[Any]) -> Network:
    """Return a network with other integers, which are not checked, in place of those of its ``_distinct`` parts."""
    distinct = _distinct(network)
    inputs, outputs, *descs = with_integers(distinct, iter(integers))
    changed = {id(desc): other for desc, other in zip(distinct[2:], descs, strict=True)}
    nodes = tuple([replace(node, desc=changed[id(node.desc)]) for node in network.nodes])
    return replace(network, inputs=inputs, output_tensors=outputs, nodes=nodes)


def with_integers(part: Any, integers: Iterator[Any]) -> Any:
    """Return what was ``separated`` with the next integers in place of its own."""
    cls: Any = type(part)
    if cls is int or is_symbolic(part):
        return next(integers)
    if cls is tuple:
        return tuple([with_integers(item, integers) for item in part])
    if names := fields_of(cls):
        return with_fields(cls, [with_integers(part.__dict__[name], integers) for name in names])
    return part
