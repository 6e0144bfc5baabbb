"""Networks apart from their integers, and the same networks with other integers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.symbols import SymbolicNumber, hint_of
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve


@dataclass(frozen=True)
class Structure:
    """A network apart from its integers.

    Attributes:
        kind: All but integers and layouts; networks of one kind have as many integers.
        packed: Of each tensor, whether its description omits strides.
    """

    kind: Hashable
    packed: tuple[bool, ...]


def structure_of(network: Network) -> tuple[Structure, list[int]]:
    """Return the structure of a network, and its integers: sizes, strides, bytes, attributes."""
    kind: list[Hashable] = [network.name, network.initial, network.outputs]
    kind += [hashlib.sha256(data).digest() for data in network.constants]
    packed: list[bool] = []
    integers: list[int] = []

    def flatten(value: Any) -> None:
        if type(value) is SymbolicNumber and not isinstance(value, int):
            value = value.pinned()
        cls: Any = type(value)
        if cls is int or cls is SymbolicNumber:
            kind.append(int)
            integers.append(value)
        elif cls is TensorDesc:
            kind.extend((value.data_type, value.flags, len(value.sizes)))
            packed.append(value.strides is None)
            integers.extend(tensor_integers(value))
        elif cls is tuple:
            kind.append(len(value))
            for item in value:
                flatten(item)
        elif cls is float:
            kind.append(value.hex())
        elif fields := _fields(cls):
            kind.append(cls)
            values = value.__dict__
            for field in fields:
                flatten(values[field])
        else:
            kind.append((cls, value))

    for tensor in (*network.inputs, *network.output_tensors):
        flatten(tensor)
    for node in network.nodes:
        kind.append((node.name, node.inputs))
        flatten(node.desc)
    return Structure(tuple(kind), tuple(packed)), integers


def tensor_integers(desc: TensorDesc) -> tuple[int, ...]:
    """Return the integers of a tensor: sizes, strides, bytes, alignment."""
    return *desc.sizes, *desc.element_strides, desc.byte_size, desc.guaranteed_base_offset_alignment


@functools.cache  # bounded by the classes of descriptions
def _fields(cls: Any) -> tuple[str, ...]:
    """Return the fields of a class of descriptions or of parts of them; none for other classes."""
    if issubclass(cls, OperatorDesc):
        return cls.field_names
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()


def with_integers(network: Network, integers: Sequence[Any]) -> Network:
    """Return a network with other integers, in the order of ``structure_of``, which are not checked."""
    return _Rebuilding(integers).network(network)


def with_tensor_integers(desc: TensorDesc, integers: Iterator[int]) -> TensorDesc:
    """Return a tensor with the next integers in place of its own, in the order of ``tensor_integers``."""
    tensor: TensorDesc = _Rebuilding(integers).of(desc)
    return tensor


@dataclass(frozen=True)
class SizedNetwork:
    """A network by its structure and integers. Only what is read of it is built.

    Attributes:
        template: A network of the structure, with any integers.
        structure: Its structure.
        integers: The integers of the network.
        varying: What they vary with (``common.variation.Variation``).
    """

    template: Network
    structure: Structure
    integers: Sequence[int]
    varying: Sequence[Hashable]

    @functools.cached_property
    def network(self) -> Network:
        """The network."""
        return with_integers(self.template, self.integers)

    @functools.cached_property
    def tensors(self) -> tuple[tuple[TensorDesc | None, ...], tuple[TensorDesc, ...]]:
        """Its inputs and outputs."""
        rebuilding = _Rebuilding(self.integers)
        return rebuilding.of(self.template.inputs), rebuilding.of(self.template.output_tensors)


class SymbolicNetwork:
    """The network of a description with symbolic numbers.

    Args:
        desc: The description.

    Attributes:
        desc: The description.
        integers: Of the network.

    Raises:
        InvalidGraph: As ``resolve``.
    """

    def __init__(self, desc: GraphDesc):
        self.desc, self._template = desc, resolve(desc)
        self._structure, self.integers = structure_of(self._template)
        self._varying = [number.number if type(number) is SymbolicNumber else None for number in self.integers]

    def sized(self, integers: Sequence[int]) -> SizedNetwork:
        """Return the network with numbers in place of its integers."""
        return SizedNetwork(self._template, self._structure, integers, self._varying)


class _Rebuilding:
    """Takes integers in order."""

    def __init__(self, integers: Iterable[Any]):
        self._integers = iter(integers)

    def network(self, network: Network) -> Network:
        """Return a network with the next integers."""
        inputs = tuple(map(self.of, network.inputs))
        outputs = tuple(map(self.of, network.output_tensors))
        nodes = tuple(replace(node, desc=self.of(node.desc)) for node in network.nodes)
        return replace(network, inputs=inputs, output_tensors=outputs, nodes=nodes)

    def of(self, value: Any) -> Any:
        """Return a value with the next integers in place of its own."""
        cls: Any = type(value)
        if cls is int or (cls is SymbolicNumber and isinstance(value, int)):
            return next(self._integers)
        if cls is SymbolicNumber:
            return hint_of(value)
        if cls is tuple:
            return tuple(map(self.of, value))
        if cls is TensorDesc:
            sizes = tuple(next(self._integers) for _ in value.sizes)
            strides = tuple(next(self._integers) for _ in value.sizes)
            return _created(
                cls,
                data_type=value.data_type,
                sizes=sizes,
                strides=None if value.strides is None else strides,
                flags=value.flags,
                total_tensor_size_in_bytes=next(self._integers),
                guaranteed_base_offset_alignment=next(self._integers),
            )
        if names := _fields(cls):
            return _created(cls, **{name: self.of(value.__dict__[name]) for name in names})
        return value


def _created(cls: Any, **values: Any) -> Any:
    """Return an object of a class without checks."""
    instance = object.__new__(cls)
    instance.__dict__.update(values)
    return instance
