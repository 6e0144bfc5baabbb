"""Exportable programs, with the names of inputs and outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import __version__
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.description import GraphDesc, InputEdge, OperatorNode, OutputEdge
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import SCHEDULES, AdapterInfo, Matrices, MatrixDialect, Policies, Target
from dmlgpu.runtime.rendered import check_limits
from dmlgpu.tensors.session import LEAVES_OUTPUT_UNTOUCHED


@dataclass(frozen=True)
class ExportPort:
    """A named input or output.

    Attributes:
        name: Its name.
        desc: Its layout.
        shape: Shape in the model: sizes of ``desc``, or empty for a scalar.
        is_bool: Whether the elements are booleans, 0 and 1 of UINT8.
    """

    name: str
    desc: TensorDesc
    shape: tuple[int, ...]
    is_bool: bool = False


@dataclass(frozen=True)
class ExportResult:
    """An output and its source, exactly one of the three.

    Attributes:
        port: The output.
        output: Output of the program.
        input: Index of an input that is returned unchanged.
        data: Constant bytes.
    """

    port: ExportPort
    output: int | None = None
    input: int | None = None
    data: bytes | None = None


@dataclass(frozen=True)
class Exportable:
    """A program with everything that a folder needs to run it.

    Attributes:
        name: Name of the model.
        program: The program; None if nothing is computed.
        inputs: Inputs of a run.
        feeds: Source of each input of the program: index among ``inputs``, bytes, or None.
        output_sizes: Bytes of each output of the program.
        results: Results of a run.
        clears: Whether outputs must be cleared before each run.
        provenance: Origin and options.
    """

    name: str
    program: Program | None
    inputs: tuple[ExportPort, ...]
    feeds: tuple[int | bytes | None, ...]
    output_sizes: tuple[int, ...]
    results: tuple[ExportResult, ...]
    clears: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)


MAX_COMBINATIONS: Final = 64
"""Combinations of sizes of a folder: each adds its dispatches to ``program.json``."""

Array: TypeAlias = NDArray[Any]

MATRICES: Final = {
    units.size.replace(" ", ""): units
    for units in (
        Matrices(16, 16, 16, dialect=MatrixDialect.TINT),
        Matrices(8, 16, 16, dialect=MatrixDialect.TINT),
        Matrices(8, 8, 8, dialect=MatrixDialect.TINT),
    )
}
"""Matrix units of browsers' GPUs by size, for subgroups of at most 64 lanes."""

WEB: Final = AdapterInfo("WebGPU's default limits", "Browser", "unknown", "", "")
"""Adapter named in messages about exported programs."""


@dataclass(frozen=True)
class ExportChoices:
    """Compile options.

    Attributes:
        schedules: A key of ``compiler.target.SCHEDULES``.
        half_precision: Whether to use float16 arithmetic, which needs ``shader-f16``.
        without: Disabled passes.
        shares_kernels: Whether sizes are parameters of kernels, which programs of different sizes then share.
        matrices: Size of the matrices that products of float16 use, such as ``16x16x16``; empty to use none.

    Raises:
        InvalidArgument: If ``schedules`` or ``matrices`` is unknown, or matrices are not for ``gpu``.
    """

    schedules: str = "gpu"
    half_precision: bool = False
    without: tuple[str, ...] = ()
    shares_kernels: bool = False
    matrices: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.schedules, str) or self.schedules not in SCHEDULES:
            raise InvalidArgument(f"export: schedules must be gpu or cpu, got {shown(self.schedules)}")
        if self.matrices and (self.matrices not in MATRICES or self.schedules != "gpu"):
            raise InvalidArgument(
                f"export: matrices must be {' or '.join(MATRICES)}, with schedules gpu, got {shown(self.matrices)}"
            )

    @property
    def target(self) -> Target:
        """Target with the default limits of WebGPU, only requested features, and no optional features of WGSL."""
        features = frozenset({"shader-f16"} if self.half_precision else ())
        is_specialized = not self.shares_kernels
        return Target(
            WEB.name,
            SCHEDULES[self.schedules],
            features,
            multiplies_words=False,
            matrices=MATRICES[self.matrices] if self.matrices else None,
            policies=Policies(specialized=is_specialized),
        )

    def provenance(self, **of: Any) -> dict[str, Any]:
        """Return the options recorded in a folder."""
        passes = {"without": list(self.without)} if self.without else {}
        matrices = {"matrices": self.matrices} if self.matrices else {}
        return {"dmlgpu": __version__, **of, "schedules": self.schedules, **matrices, **passes}


def compile_for_web(graph: GraphDesc, choice: ExportChoices) -> tuple[Network, Program]:
    """Return a checked graph and its program.

    Raises:
        InvalidGraph: If the graph or an operator breaks a rule.
        NotSupported: If it needs a feature or a limit that not every device with WebGPU has.
    """
    network = resolve(graph)
    check_nodes(network, max(FeatureLevel))
    program = compile_network(network, choice.target, choice.without).program
    check_limits(program, choice.target, WEB)
    return network, program


def needs_clearing(graph: GraphDesc) -> bool:
    """Return whether a node that computes an output may leave elements unwritten."""
    ends = (graph.nodes[edge.from_node] for edge in graph.output_edges)
    return any(isinstance(node, OperatorNode) and node.desc.operator in LEAVES_OUTPUT_UNTOUCHED for node in ends)


def as_graph(desc: OperatorDesc) -> GraphDesc:
    """Return the graph of one operator, with names of the description's fields."""
    inputs = [slot for slot in desc.inputs if slot.tensor is not None]
    outputs = [slot for slot in desc.outputs if slot.tensor is not None]
    into = tuple(InputEdge(index, 0, desc.inputs.index(name), _short(name)) for index, name in enumerate(inputs))
    out = tuple(OutputEdge(0, desc.outputs.index(name), index, _short(name)) for index, name in enumerate(outputs))
    return GraphDesc(len(inputs), len(outputs), (OperatorNode(desc),), into, (), out, desc.operator.lower())


def _short(slot: TensorSlot) -> str:
    name = slot.field.replace("_tensors", "s").removesuffix("_tensor")
    return name if slot.position is None else f"{name}_{slot.position}"


def exportable(
    graph: GraphDesc,
    choice: ExportChoices,
    *,
    weights: Mapping[str, Array | bytes],
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    provenance: Mapping[str, Any],
) -> Exportable:
    """Return a graph ready for export.

    Args:
        graph: The graph.
        choice: Compile options.
        weights: Arrays, or bytes in memory order, of constant inputs by name.
        inputs, outputs: Names, by index; None takes those of the edges.
        provenance: Origin, recorded in the folder.

    Raises:
        InvalidArgument: If names are unknown or duplicate, or arrays do not fit.
        InvalidGraph, NotSupported: As ``compile_for_web``.
    """
    taken = _names("input", inputs, graph.input_count, {edge.graph_input: edge.name for edge in graph.input_edges})
    output_names = _names(
        "output", outputs, graph.output_count, {edge.graph_output: edge.name for edge in graph.output_edges}
    )
    unknown = [name for name in weights if name not in taken]
    if unknown:
        raise InvalidArgument(f"export: weights must be of the inputs {', '.join(taken)}, got {shown(unknown[0])}")
    network, program = compile_for_web(graph, choice)
    ports: list[ExportPort] = []
    feeds: list[int | bytes | None] = []
    for name, desc in zip(taken, network.inputs, strict=True):
        if desc is None:
            feeds.append(None)
        elif name in weights:
            feeds.append(_bytes(name, desc, weights[name]))
        elif desc.owned_by_dml:
            raise InvalidArgument(f"export: input {name!r} is OWNED_BY_DML, so weights must have its elements")
        else:
            feeds.append(len(ports))
            ports.append(ExportPort(name, desc, desc.sizes))
    results = tuple(
        ExportResult(ExportPort(name, desc, desc.sizes), output=index)
        for index, (name, desc) in enumerate(zip(output_names, network.output_tensors, strict=True))
    )
    sizes = tuple(desc.byte_size for desc in network.output_tensors)
    name = graph.name or "graph"
    clears = needs_clearing(graph)
    return Exportable(name, program, tuple(ports), tuple(feeds), sizes, results, clears, provenance)


def combined(caller: str, sizes: Mapping[Any, Sequence[int]]) -> list[dict[Any, int]]:
    """Return all combinations of the sizes of names.

    Raises:
        InvalidArgument: If there are too many.
    """
    count = math.prod(map(len, sizes.values()))
    if count > MAX_COMBINATIONS:
        raise InvalidArgument(f"{caller}: {count:,} combinations of sizes; a folder has at most {MAX_COMBINATIONS}")
    return [dict(zip(sizes, chosen, strict=True)) for chosen in itertools.product(*sizes.values())]


def _names(kind: str, requested: Sequence[str] | None, count: int, edges: Mapping[int, str | None]) -> list[str]:
    """Return the names of a graph's inputs or outputs, each once."""
    if requested is not None and len(requested) != count:
        raise InvalidArgument(f"export: {kind}s must be {count} names, got {len(requested)}")
    names = [edges.get(index) or (kind if count == 1 else f"{kind}{index}") for index in range(count)]
    names = list(requested) if requested is not None else _distinct(names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"export: the names of {kind}s must differ, got {shown(twice)} twice")
    return names


def _distinct(names: Iterable[str]) -> list[str]:
    """Return unique names: duplicates get a suffix."""
    distinct: dict[str, None] = {}
    for name in names:
        suffix, chosen = 1, name
        while chosen in distinct:
            suffix, chosen = suffix + 1, f"{name}_{suffix}"
        distinct[chosen] = None
    return list(distinct)


def _bytes(name: str, desc: TensorDesc, content: Array | bytes) -> bytes:
    if isinstance(content, bytes):
        if len(content) < desc.byte_size:
            raise InvalidArgument(f"export: weights of {name!r} must be {desc.byte_size:,} bytes, got {len(content):,}")
        return content[: desc.byte_size]
    array = np.asarray(content)
    if array.dtype != desc.data_type.numpy or array.shape != desc.sizes:
        raise InvalidArgument(
            f"export: weights of {name!r} must be an array of {desc.data_type.numpy} with shape {desc.sizes}, got "
            f"{array.dtype} with shape {array.shape}"
        )
    return desc.encode(array).tobytes()
