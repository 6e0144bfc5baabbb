"""Named sizes of a graph: the graph is built once and compiled for any values of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.graph.description import ConstantNode, GraphDesc
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.sizes import Symbol, inside, is_symbolic
from dmlgpu.compiler.sizes.named import NamedSizes
from dmlgpu.compiler.sizes.networks import RecordedNetwork, SizedNetwork
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.nodes import Array, BuiltNode, InputNode, used
from dmlgpu.tensors.memory import is_decided_inside
from dmlgpu.tensors.tensor import Tensor

_KEPT: Final = CacheLimits(64, 64)

_SIZE: Final = coercion.between(1, 2**32 - 1)


class GraphSizes:
    """The named sizes of a graph, and the operators compiled for their values.

    Args:
        label: The graph, for messages.
        locate: Returns the line of the code that builds it.
    """

    def __init__(self, label: str, locate: Callable[[], str]):
        self.label, self.recording = label, NamedSizes(label, locate, is_decided_inside)
        self._outputs: Cache[Hashable, SizedOutputs] = Cache(_KEPT)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sizes, in order of their first use."""
        return tuple(self.recording.names)

    def size(self, caller: str, name: str) -> Symbol:
        """Return the size of a name.

        Raises:
            InvalidArgument: If it is no identifier.
        """
        if not name.isidentifier():
            raise InvalidArgument(f"{caller}: a size must be an integer or a name such as 'n', got {shown(name)}")
        return self.recording.symbol(name)

    def values(self, caller: str, sizes: Mapping[str, int] | None) -> tuple[int, ...]:
        """Return the values of all sizes that have names.

        Raises:
            InvalidArgument: If one is missing or no size; names it.
        """
        if sizes is not None and not isinstance(sizes, Mapping):
            raise InvalidArgument(f"{caller}: sizes must be a mapping from names to integers, got {shown(sizes)}")
        unknown = next((name for name in sizes or {} if name not in self.names), None)
        if unknown is not None:
            known = ", ".join(self.names)
            raise InvalidArgument(f"{caller}: sizes must be of the names {known}, got {shown(unknown)}")
        missing = next((name for name in self.names if name not in (sizes or {})), None)
        if sizes is None or missing is not None:
            raise InvalidArgument(
                f"{caller}: the size {missing} is not known; pass sizes={{'{missing}': 8}}, or another value"
            )
        return tuple(coercion.argument(caller, f"sizes[{name!r}]", _SIZE, sizes[name]) for name in self.names)

    def bound(self, inputs: Sequence[InputNode], arrays: Sequence[Array | None]) -> dict[str, int]:
        """Return the values of the named sizes in the shapes of arrays.

        Raises:
            InvalidArgument: If arrays have other ranks, or disagree, or no array has a size; names it.
        """
        sizes: dict[str, tuple[int, str]] = {}
        for source, array in zip(inputs, arrays, strict=True):
            if array is None:
                continue
            shape = np.shape(array)
            if len(shape) != len(source.desc.sizes):
                raise InvalidArgument(
                    f"{self.label}: {source.name!r} must have the shape {_written(source.desc.sizes)}, got {shape}"
                )
            for size, actual in zip(source.desc.sizes, shape, strict=True):
                name = self._name_of(size)
                if name is None:
                    continue
                known, first = sizes.setdefault(name, (actual, source.name))
                if actual != known:
                    raise InvalidArgument(
                        f"{self.label}: {name} must be {known} in {source.name!r} as in {first!r}, of the shape "
                        f"{_written(source.desc.sizes)}, got {actual}"
                    )
                if not actual:
                    raise InvalidArgument(f"{self.label}: {name} must be at least 1, got 0 in {source.name!r}")
        missing = next((name for name in self.names if name not in sizes), None)
        if missing is not None:
            names = ", ".join(
                repr(source.name) for source in inputs if missing in map(self._name_of, source.desc.sizes)
            )
            raise InvalidArgument(f"{self.label}: the size {missing} is not known; pass an array for {names}")
        return {name: size for name, (size, _) in sizes.items()}

    def _name_of(self, size: Any) -> str | None:
        """Return the name of a size; None for numbers and expressions."""
        numbers = {symbol.node: name for symbol, name in zip(self.recording.symbols, self.names, strict=True)}
        return numbers.get(size.node) if is_symbolic(size) else None

    def outputs(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[InputNode],
        nodes: Sequence[BuiltNode],
        describe: Callable[[], GraphDesc],
    ) -> SizedOutputs:
        """Return the subgraph of outputs; from a cache unless the graph has grown."""
        key = tuple((output.origin, id(output)) for output in outputs), len(inputs), len(nodes), len(self.names)
        return self._outputs.get_or_make(
            key, lambda: SizedOutputs(self, outputs, inputs, nodes, describe()), lambda _: 1
        )


class SizedOutputs:
    """The subgraph of outputs of a graph with names for sizes.

    Args:
        sizes: The names.
        outputs: The outputs.
        inputs: Inputs of the graph.
        nodes: Nodes of the graph.
        desc: Description of the subgraph, with names.
    """

    @inside()
    def __init__(
        self,
        sizes: GraphSizes,
        outputs: Sequence[Tensor],
        inputs: Sequence[InputNode],
        nodes: Sequence[BuiltNode],
        desc: GraphDesc,
    ):
        self._sizes, self._outputs = sizes, tuple(outputs)
        self._desc, network = desc, RecordedNetwork(resolve(desc), sizes.recording)
        numbers = used(nodes, [output.origin for output in outputs])  # in the order of the description
        self._constants = [(place, nodes[n]) for place, n in enumerate(numbers) if nodes[n].number is not None]
        self._replay = sizes.recording.replayed(
            (
                network.sized,
                [source.desc for source in inputs],
                [(output.sizes, output.strides, output.offset) for output in outputs],
                [node.number for _, node in self._constants],
            )
        )
        self._general = list(sizes.recording.general.values())

    def sized(self, values: Sequence[int]) -> SizedGraph:
        """Return the subgraph for these values of the sizes.

        Raises:
            InvalidArgument: If a condition of the graph does not hold for these; names it.
            InvalidGraph: If an operator does not accept a size of 1, or two that are equal.
        """
        sizes = self._sizes
        results = self._replay(values)
        assignment = ", ".join(f"{name} = {value}" for name, value in zip(sizes.names, values, strict=True))
        if results is None:
            condition = next(sizes.recording.broken(values))
            raise InvalidArgument(f"{sizes.label}: it was built for sizes with {condition}, got {assignment}")
        (network, inputs, layouts, numbers), general = results
        outputs = [output._resized(*layout) for output, layout in zip(self._outputs, layouts, strict=True)]
        constants = {
            place: _encoded(node, number) for (place, node), number in zip(self._constants, numbers, strict=True)
        }
        graph = SizedGraph(self._desc, network, inputs, outputs, constants=constants, values=assignment)
        if general != self._general:
            graph.check()
        return graph


class SizedGraph:
    """A subgraph for values of the sizes.

    Args:
        symbolic: Its description with names.
        network: Its network.
        inputs: Inputs of the graph.
        outputs: Outputs of the subgraph.
        constants: Data of constants that depend on sizes, by index of the node.
        values: The values, as a text.
    """

    def __init__(
        self,
        symbolic: GraphDesc,
        network: SizedNetwork,
        inputs: Sequence[TensorDesc],
        outputs: Sequence[Tensor],
        *,
        constants: Mapping[int, bytes],
        values: str,
    ):
        self.inputs, self.outputs = inputs, outputs
        self._symbolic, self._network, self._constants, self._values = symbolic, network, constants, values

    @property
    def desc(self) -> GraphDesc:
        """Description of the subgraph."""
        desc = self._network.described(self._symbolic)
        nodes = [*desc.nodes]
        for place, data in self._constants.items():
            node = nodes[place]
            assert isinstance(node, ConstantNode)
            nodes[place] = replace(node, data=data)
        return replace(desc, nodes=tuple(nodes))

    def check(self) -> None:
        """Check the operators for these sizes.

        Raises:
            InvalidGraph: If one does not accept them.
        """
        check_nodes(self._network.network, max(FeatureLevel))

    def compile(self, device: Device) -> CompiledOperator:
        """Compile the subgraph, by the plan for other sizes if all constants are equal. Raises NotSupported."""
        if self._constants:
            compiled = device.compile_graph(self.desc)
        else:
            compiled = device._compile_sized(self._symbolic, self._network)
        return self.named(compiled)

    def named(self, compiled: CompiledOperator) -> CompiledOperator:
        """Name a compiled operator after the graph and the sizes."""
        compiled.name = f"{self._symbolic.name or 'graph'} of {self._values}"
        return compiled


def _encoded(node: BuiltNode, number: int | float) -> bytes:
    """Return the data of a constant of one number."""
    assert isinstance(node.desc, TensorDesc)
    return node.desc.encode(np.array([number], node.desc.data_type.numpy)).tobytes()


def _written(sizes: Sequence[Any]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
