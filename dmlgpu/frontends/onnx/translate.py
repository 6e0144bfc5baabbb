"""Translates the nodes of a graph for inputs of known shapes into segments.

The walk is a generator of the stages of a run. If it needs elements, it yields a stage that computes and reads them,
and receives the outcome. Functions of operators that need elements are generators of requests, which the walk answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import DmlError, ModelError, NotSupported
from dmlgpu.compiler.sizes.arithmetic import current, is_symbolic, needed
from dmlgpu.compiler.sizes.networks import key_of
from dmlgpu.frontends.onnx import codes, host, registry, zero_size
from dmlgpu.frontends.onnx.containers import constructed
from dmlgpu.frontends.onnx.loops import BodyPerRun, BodyRunner, LoopAction, NeedsBranch, NeedsLoop
from dmlgpu.frontends.onnx.model import RunGraph
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.placement import Placement, PlacementSource, PlannedPlacement
from dmlgpu.frontends.onnx.registry import Translator, Versions
from dmlgpu.frontends.onnx.rewriting import MAX_NESTED, body_of, last_uses, read_names
from dmlgpu.frontends.onnx.segments import (
    Action,
    Array,
    Decide,
    Fill,
    InputCheck,
    Outcome,
    Output,
    Read,
    RunStage,
    Segment,
    Slots,
    Weights,
    Written,
)
from dmlgpu.frontends.onnx.signatures import check_doubles, check_inputs, typed_outputs
from dmlgpu.frontends.onnx.symbolic import SymbolicArray, has_symbols, plain_array
from dmlgpu.frontends.onnx.tensor_proto import as_held
from dmlgpu.frontends.onnx.values import NeedsDecision, NeedsHost, OnnxSequence, OnnxValue, Recipe, limits_of
from dmlgpu.runtime.device import Device
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.memory import Origin
from dmlgpu.tensors.tensor import Tensor

Outputs: TypeAlias = Sequence[OnnxValue | None]
"""The values of a node's outputs; None for one that is not computed."""

Stages: TypeAlias = Generator[RunStage, Outcome, None]
"""Generator of the stages of a run; each `send` passes the outcome of the previous stage."""

OutputStages: TypeAlias = Generator[RunStage, Outcome, Outputs]

_CONSTANT_BYTES = 256
"""Maximum size of weights that become constants of the graph, visible to passes; larger ones are owned inputs."""

_FIRST_OF_SIZES = 1 << 32
"""First slot of integers that the host computes from sizes. Their slots depend on which sizes are symbolic, unlike all
other slots."""

_READ = "the host reads elements of its inputs for a decision"


@dataclass(eq=False)
class Scope:
    """Names of a graph, or of a function body, during the walk.

    Attributes:
        nodes: Nodes, in order.
        values: Values of names.
        last_use: Index of the last node that reads each name; the number of nodes for an output.
        outer: Enclosing scope; None if there is none.
        at: Index of the current node.
    """

    nodes: Sequence[NodeProto]
    values: dict[str, OnnxValue | None]
    last_use: Mapping[str, int]
    outer: Scope | None = None
    at: int = 0

    def find(self, name: str) -> OnnxValue | None:
        """Return the value of a name.

        Raises:
            ModelError: If nothing computes it.
        """
        scope = self._scope_of(name)
        if scope is None:
            raise ModelError("graph", f"a node reads {name!r}, which nothing before it computes")
        return scope.values[name]

    def has(self, name: str) -> bool:
        """Return whether a name is defined."""
        return self._scope_of(name) is not None

    def _scope_of(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope


@dataclass(eq=False)
class Translation:
    """One translation.

    Args:
        device: Compile target of segments.
        versions: Operator set versions of the model.
        weights: Constants of the model.
        first_slot: First slot after the inputs.
        body_runner: Returns the runner of a loop body.
        is_body: Whether it is a loop body. The host then computes outputs that are arithmetic on few integers,
            including the condition, without waiting.
        strict: Whether to reject nodes that need host decisions.
    """

    device: Device
    versions: Versions
    weights: Weights
    first_slot: int
    body_runner: Callable[[NodeProto, RunGraph], BodyRunner]
    is_body: bool
    strict: bool = False

    def __post_init__(self) -> None:
        self._next, self._next_of_sizes = self.first_slot, _FIRST_OF_SIZES
        self._before: list[Written] = []
        self._written: Written = ()
        self._scopes: list[Scope] = []
        self._placed: list[PlannedPlacement | tuple[str, PlacementSource]] = []
        self._checks: list[InputCheck] = []
        self._fills: list[Fill] = []
        self._checked: dict[Hashable, OnnxValue] = {}
        self._reset()

    def _stage(
        self,
        segment: Segment | None,
        action: Action | None = None,
        outputs: tuple[Output, ...] = (),
        containers: Mapping[int, int | None] | None = None,
    ) -> RunStage:
        """Return a stage with the nodes translated since the last one, their checks and fills."""
        placed, checks, fills = tuple(self._placed), tuple(self._checks), tuple(self._fills)
        before, written = tuple(self._before), self._written
        self._before.append(written)
        self._placed, self._checks, self._fills, self._written = [], [], [], ()
        return RunStage(
            segment, action, outputs, placed, checks, fills, before=before, written=written, containers=containers or {}
        )

    def _reset(self) -> None:
        """Begin a new segment."""
        self._open: list[PlannedPlacement] = []
        self.builder = Graph(self.device)
        self._feeds: list[int | None] = []
        self._owned: list[int | None] = []
        self._loaded: dict[int, tuple[OnnxValue, Tensor]] = {}
        self._sizes: dict[Hashable, Tensor] = {}

    def _new_slot(self) -> int:
        """Return an unused slot."""
        self._next += 1
        return self._next - 1

    # ---- graphs -----------------------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[NodeProto], values: dict[str, OnnxValue | None], outputs: Sequence[str]) -> Stages:
        """Yield the stages that compute outputs from values; each is sent the outcome of its action."""
        results = yield from self._walk(nodes, values, outputs, None)
        parts = [
            (name, part)
            for name, value in zip(outputs, results, strict=True)
            if value is not None
            for part in value.parts
        ]
        names, ends = [name for name, _ in parts], [part for _, part in parts]
        containers = {
            index: len(value.parts) if isinstance(value, OnnxSequence) else None
            for index, value in enumerate(results)
            if value is not None and value.is_container
        }
        recipes = [value.recipe if self.is_body and value.array is None else None for value in ends]
        segment = self._flush([value for value, recipe in zip(ends, recipes, strict=True) if recipe is None])
        arrays: list[Array | None] = [None] * len(ends)
        for index, value in enumerate(ends):
            if has_symbols(value.array) and not self.is_body:
                recipes[index] = value.array.recipe()
            elif value.array is not None:
                arrays[index] = plain_array(value.array)
        yield self._stage(
            segment,
            outputs=tuple(
                Output(name, value.shape, value.data_type, value.coded, value.slot, array, recipe)
                for name, value, array, recipe in zip(names, ends, arrays, recipes, strict=True)
            ),
            containers=containers,
        )

    def _walk(
        self,
        nodes: Sequence[NodeProto],
        values: dict[str, OnnxValue | None],
        outputs: Sequence[str],
        outer: Scope | None,
    ) -> Generator[RunStage, Outcome, list[OnnxValue | None]]:
        """Translate nodes in order; return the values of outputs."""
        if len(self._scopes) >= MAX_NESTED:
            raise ModelError("graph", f"bodies and functions must be nested at most {MAX_NESTED} deep")
        scope = Scope(nodes, values, last_uses(nodes, outputs), outer)
        self._scopes.append(scope)
        for index, proto in enumerate(nodes):
            scope.at = index
            name = proto.name or (proto.output[0] if proto.output else str(index))
            operands = [scope.find(name) if name else None for name in proto.input]
            names = registry.array_names(proto)
            inputs, arrays = operands[: len(operands) - len(names)], operands[len(operands) - len(names) :]
            node = OnnxNode(
                proto,
                name=name,
                version=self.versions.of(proto),
                inputs=inputs,
                context=self,
                arrays={name: value for name, value in zip(names, arrays, strict=True) if value is not None},
            )
            try:
                results = yield from self._outputs(node)
            except DmlError as error:
                raise _with_node(error, node) from None
            pairs = zip(proto.output, results, strict=False)
            scope.values.update({name: value for name, value in pairs if name and value is not None})
        scope.at = len(nodes)
        ends = [scope.find(name) for name in outputs]
        self._scopes.pop()
        return ends

    def _outputs(self, node: OnnxNode) -> OutputStages:
        """Translate one node."""
        node.first = len(self.builder.nodes)
        translator = registry.find(node.proto.domain, node.op_type, node.version)
        is_control = registry.is_control(node.proto)
        if not is_control:
            check_inputs(node)
        if translator is not None:
            yield from self._read(node, [node.value(index) for index in translator.host(node) if node.has(index)])
            if is_control:
                steps = translator.function(node)
                assert isinstance(steps, Generator)
                return (yield from self._answered(node, steps))
        has_containers = any(value is not None and value.is_container for value in node.inputs)
        if translator is not None and (translator.of_containers or has_containers):
            return (yield from self._moved(node, translator))
        if has_containers:
            return (yield from self._expanded(node))
        results: Outputs | None = host.compute(node)
        if results is None:
            results = yield from self._computed(node, translator)
        self._add_checks(node)
        if results is None:
            return (yield from self._expanded(zero_size.filled(node)))
        self._place(node, results)
        return results

    def _moved(self, node: OnnxNode, translator: Translator) -> OutputStages:
        """Return the outputs of a node that moves values in and out of containers."""
        results: Any = translator.function(node)
        if isinstance(results, Generator):
            results = yield from self._answered(node, results)
        why = "sequences and optionals are resolved when the model is translated"
        self._placed.append(PlannedPlacement(Placement(node.name, node.op_type, "none", why=why)))
        return results if isinstance(results, Sequence) else [results]

    def _computed(self, node: OnnxNode, translator: Translator | None) -> Generator[RunStage, Outcome, Outputs | None]:
        """Return the result of an operator's function, or of the rules for empty tensors; None to use ONNX's function
        body."""
        codes.check_computed(node)
        called = node
        results: Outputs | None = None
        if translator is not None and zero_size.has_empty_inputs(called):
            sample = zero_size.with_a_row(called)
            if sample is not None:
                results = zero_size.without_rows(called, (yield from self._called(sample, translator)) or ())
        if results is None and zero_size.has_empty_inputs(called):
            results = yield from self._answered(called, zero_size.compute(called))
            called = zero_size.filled(called)
        if results is None and translator is not None:
            results = yield from self._called(called, translator)
        node.first = called.first
        return results

    def _called(self, node: OnnxNode, translator: Translator) -> Generator[RunStage, Outcome, Outputs | None]:
        """Call the function of an operator and return its outputs; None to use ONNX's function body."""
        check_doubles(node, node.inputs, "input")
        with self.builder.scope(node.name):
            results = translator.function(node)
        if isinstance(results, Generator):
            results = yield from self._answered(node, results)
        if results is registry.AS_FUNCTION:
            return None
        values = typed_outputs(node, results)
        check_doubles(node, values, "output")
        host.give_recipes(node, values)
        return values

    def _answered(self, node: OnnxNode, steps: Generator[Any, Any, Any]) -> Generator[RunStage, Outcome, Any]:
        """Answer the requests of an operator's function; return its result."""
        answer: Any = None
        while True:
            with self.builder.scope(node.name):
                try:
                    request = steps.send(answer)
                except StopIteration as stop:
                    return stop.value
            match request:
                case NeedsHost(values, computed):
                    answer = yield from self._read(node, values, computed)
                case NeedsDecision():
                    answer = yield from self._decided(node, request)
                case NeedsBranch(graph, why, values):
                    if why:
                        self._place_on_host(node, why)
                    outputs = [output.name for output in graph.output]
                    names = [*outputs, *values]
                    answer = yield from self._walk(graph.node, dict(values), names, self._scopes[-1])
                    answer = answer[: len(outputs)]
                case NeedsLoop():
                    answer = yield from self._looped(node, request)

    def _expanded(self, node: OnnxNode) -> OutputStages:
        """Translate the nodes of an operator's function body."""
        body = body_of(node)
        if body is None:
            raise NotSupported(f"{node}: operator {node.op_type} is not supported")
        outer, self.versions = self.versions, body.versions
        names = [name for index, name in enumerate(body.outputs) if node.wants(index)]
        # Only bodies in the node's attributes, now part of the function's body, read surrounding names.
        results = yield from self._walk(body.nodes, body.bind(node.inputs), names, self._scopes[-1])
        self.versions = outer
        by_name = dict(zip(names, results, strict=True))
        return [by_name.get(name) for name in body.outputs]

    def _looped(self, node: OnnxNode, loop: NeedsLoop) -> OutputStages:
        """Run a loop, whose results go to slots."""
        graph, captured = self._body_of(loop.graph)
        self._place_on_host(node, loop.why)
        body = self._bodies(node, graph)
        slots = [self._new_slot() for _ in node.proto.output]
        segment = self._flush([*self._live(), *loop.values, *captured])
        self._written += tuple((slot, node.name) for slot in slots)
        for value in (*loop.values, *captured):
            needed(value.shape)
            if has_symbols(value.array):
                value.recipe = value.array.recipe()
        signatures: Any = yield self._stage(segment, LoopAction(loop, body, captured, slots))
        results: list[OnnxValue | None] = []
        for slot, (shape, data_type, name) in zip(slots, signatures, strict=True):
            coded = TensorProto.DataType.Value(name.upper())
            value = OnnxValue(shape, data_type, coded, slot=slot)
            if value.is_empty:
                value = OnnxValue(shape, data_type, coded, np.zeros(shape, data_type.numpy))
            results.append(value)
        return results

    def _bodies(self, node: OnnxNode, graph: RunGraph) -> Callable[[Slots], BodyRunner]:
        """Return a factory for the body's runner, which resolves symbolic captures for each run."""
        runner = self.body_runner
        if current() is None:
            body = runner(node.proto, graph)
            self._placed.append((node.name, body))
            return lambda slots: body
        recipes = {
            name: (value, value.array.recipe())
            for name, value in graph.known.items()
            if value is not None and has_symbols(value.array)
        }

        def body_of(slots: Slots) -> BodyRunner:
            resolved = {name: replace(value, array=recipe(slots)) for name, (value, recipe) in recipes.items()}
            return runner(node.proto, replace(graph, known={**graph.known, **resolved}))

        bodies = BodyPerRun(body_of)
        self._placed.append((node.name, bodies))
        return bodies

    def _body_of(self, body: GraphProto) -> tuple[RunGraph, list[OnnxValue]]:
        """Return the body of a loop as a graph, and the captured values that are its further inputs.

        Captured values that are known on the host are known to the body; others become inputs.
        """
        scope = self._scopes[-1]
        known: dict[str, OnnxValue | None] = {}
        captured: dict[str, OnnxValue] = {}
        constructors: list[NodeProto] = []
        own = {info.name for info in body.input} | {name for node in body.node for name in node.output}
        graphs = [attribute.g for node in body.node for attribute in node.attribute]
        inner = {name for graph in graphs for node in graph.node for name in node.output}
        inner |= {info.name for graph in graphs for info in graph.input}
        read = [name for node in body.node for name in read_names(node)]
        for name in dict.fromkeys([*read, *(info.name for info in body.output)]):
            if name in own or (name in inner and not scope.has(name)):
                continue
            value = scope.find(name)
            if value is not None and value.array is not None:
                known[name] = OnnxValue(value.shape, value.data_type, value.coded, value.array, value.is_weight)
            elif value is not None and value.is_container:
                constructor, parts = constructed(name, value)
                constructors.append(constructor)
                known |= {part: value for part, value in parts.items() if value.array is not None}
                captured |= {part: value for part, value in parts.items() if value.array is None}
            elif value is not None:
                captured[name] = value
        inputs = (*(info.name for info in body.input), *captured)
        outputs = tuple(info.name for info in body.output)
        nodes = (*constructors, *body.node)
        return RunGraph(nodes, self.versions, inputs, outputs, known), list(captured.values())

    def _add_checks(self, node: OnnxNode) -> None:
        """Add the checks of a node; equal checks of a value occur once."""
        for value, bounds in node.bounds:
            key = id(value), repr(bounds.low), repr(bounds.high), bounds.besides
            recipe = host.recipe_of(value)
            if recipe is not None and key not in self._checked:
                self._checked[key] = value
                needed((*limits_of(bounds.low), *limits_of(bounds.high)))
                self._checks.append(InputCheck(recipe, bounds))

    def _place_on_host(self, node: OnnxNode, why: str) -> None:
        self._placed.append(PlannedPlacement(Placement(node.name, node.op_type, "host", why=why)))

    def _note(self, node: OnnxNode) -> PlannedPlacement | None:
        """Record what a node added to the graph under construction and return it; None for nothing."""
        indices = range(node.first, len(self.builder.nodes))
        descs = [self.builder.nodes[index].desc for index in indices]
        operators = tuple(desc.operator for desc in descs if isinstance(desc, OperatorDesc))
        if not operators:
            return None
        placed = PlannedPlacement(Placement(node.name, node.op_type, "device", operators), indices)
        self._placed.append(placed)
        self._open.append(placed)
        return placed

    def _place(self, node: OnnxNode, results: Outputs) -> None:
        """Record the placement of a node."""
        placed = self._note(node)
        if placed is not None:
            placed.late = any(value is not None and value.recipe is not None for value in results)
        elif all(value is None or value.array is not None for value in results):
            self._place_on_host(node, "constant: its inputs are known when the model is translated")
        else:
            why = "reshape only, no copy"
            self._placed.append(PlannedPlacement(Placement(node.name, node.op_type, "none", why=why)))

    # ---- values -----------------------------------------------------------------------------------------------------

    def load(self, value: OnnxValue) -> Tensor:
        """Return a value as an expression of the graph under construction."""
        if value.expression is not None:
            return value.expression
        loaded = self._loaded.get(id(value))
        if loaded is not None:
            return loaded[1]
        if value.codes is not None and value.slot is None:
            expression = codes.decoded(self.load, self.load(value.codes), value.codes.coded)
            self._loaded[id(value)] = value, expression
            return expression
        slot, key = value.slot, None
        if has_symbols(value.array) and slot is None:
            key = value.data_type, key_of((value.sizes, *value.array.numbers.flat))
            if key in self._sizes:  # equal layers read one tensor
                return self._sizes[key]
            slot = self.fill(value.array.of_numbers, value.array.numbers.reshape(-1).tolist())
        if value.array is not None and (value.is_weight or slot is None):
            expression = self._constant(value)
        else:
            desc = TensorDesc(value.data_type, value.sizes)
            expression = self._input(desc, f"slot {slot} {len(self._feeds)}", slot=slot)
        if key is not None:
            self._sizes[key] = expression
        self._loaded[id(value)] = value, expression
        return expression

    def fill(self, function: Callable[..., Any], numbers: Sequence[Any], node: OnnxNode | None = None) -> int:
        """Return a slot that the host fills in every run; see ``Fill``."""
        if node is None:
            slot, self._next_of_sizes = self._next_of_sizes, self._next_of_sizes + 1
        else:
            slot = self._new_slot()
        self._fills.append(Fill(slot, function, needed(numbers), None if node is None else node.name))
        return slot

    def _constant(self, value: OnnxValue) -> Tensor:
        assert value.array is not None
        if value.array.size * value.data_type.numpy.itemsize <= _CONSTANT_BYTES and value.data_type.bits >= 8:
            array = as_held(value.array, value.data_type)
            return self.builder.constant(array.reshape(value.sizes), value.data_type)
        key = self.weights.key_of(value.array, value.data_type)
        return self._input(TensorDesc(value.data_type, value.sizes), f"weight {len(self._feeds)}", weight=key)

    def _input(self, desc: TensorDesc, name: str, slot: int | None = None, weight: int | None = None) -> Tensor:
        """Return an input of the graph, fed by a slot or a weight."""
        self._feeds.append(slot)
        self._owned.append(weight)
        return self.builder.input(desc, name=name, owned=weight is not None)

    def _read(
        self, node: OnnxNode, values: Sequence[OnnxValue], computed: Sequence[OnnxValue] = ()
    ) -> Generator[RunStage, Outcome, list[Array]]:
        """Compute values and read the elements of some."""
        unknown = [value for value in values if value.array is None]
        if unknown or computed:
            segment, recipes = self._recipes(node, unknown, computed)
            read: Any = yield self._stage(segment, Read(recipes))
            for value, elements in zip(unknown, read, strict=True):
                value.array = _array_of(elements, value)
        return [value.host_array for value in values]

    def _decided(self, node: OnnxNode, request: NeedsDecision) -> Generator[RunStage, Outcome, Hashable]:
        """Return the result of a function of the elements of values."""
        if all(value.array is not None for value in request.values):
            return request.function(*(value.array for value in request.values), *request.numbers)
        segment, recipes = self._recipes(node, request.values)
        return (yield self._stage(segment, Decide(recipes, request.function, needed(request.numbers))))

    def _recipes(
        self, node: OnnxNode, values: Sequence[OnnxValue], computed: Sequence[OnnxValue] = ()
    ) -> tuple[Segment | None, list[Recipe]]:
        """Return the recipes of elements; elements that only the device can compute go to slots first."""
        if self.strict:
            raise node.rejection("the host would have to read elements for a decision (strict)")
        self._note(node)
        self._placed.append(PlannedPlacement(Placement(node.name, node.op_type, "read", why=_READ)))
        missing = [value for value in (*values, *computed) if host.recipe_of(value) is None]
        segment = self._flush([*self._live(), *missing]) if missing else None
        node.first = len(self.builder.nodes)
        recipes = [host.recipe_of(value) for value in values]
        return segment, [recipe for recipe in recipes if recipe is not None]

    def _live(self) -> list[OnnxValue]:
        """Return the values that later nodes read, in all scopes."""
        return [
            part
            for scope in self._scopes
            for name, value in scope.values.items()
            if value is not None and scope.last_use.get(name, -1) >= scope.at
            for part in value.parts
        ]

    def _names(self) -> dict[int, str]:
        """Return the names of values in all scopes, by identity."""
        return {
            id(part): name
            for scope in self._scopes
            for name, value in scope.values.items()
            if value is not None
            for part in value.parts
        }

    def _flush(self, values: Iterable[OnnxValue]) -> Segment | None:
        """End and return the segment, whose values get slots; None if it computes nothing."""
        outputs: dict[Origin, tuple[int, Tensor]] = {}
        written: dict[int, str] = {}
        names = self._names()
        for value in values:
            if value.codes is not None and value.slot is None:
                value.expression = self.load(value)
            if value.expression is None or value.slot is not None:
                continue
            expression, origin = value.expression, value.expression.origin
            fed = self._feeds[origin.number] if origin.kind == "input" else None
            if fed is not None and expression.desc.is_packed:
                value.slot, value.expression = fed, None
                continue
            if origin.kind != "operator" or not expression.desc.is_packed:
                expression = dml.identity(expression)
            slot, _ = outputs.setdefault(expression.origin, (self._new_slot(), expression))
            written.setdefault(slot, names.get(id(value), ""))
            value.slot, value.expression = slot, None
        self._written = tuple(written.items())
        segment = None
        if outputs:
            slots, expressions = zip(*outputs.values(), strict=True)
            segment = Segment(self.builder, list(expressions), self._feeds, self._owned, list(slots), self.weights)
            for placed in self._open:
                placed.segment = segment
        self._reset()
        return segment


def _array_of(outcome: Any, value: OnnxValue) -> Any:
    """Return the elements of a value that were read, from the outcome."""
    dtype = value.data_type.numpy
    if isinstance(outcome, bytes):
        return np.frombuffer(outcome, dtype).reshape(value.shape)
    if any(is_symbolic(number) for number in outcome):
        return SymbolicArray(np.array(outcome, object).reshape(value.shape), dtype)
    return np.array(outcome, dtype).reshape(value.shape)


def _with_node(error: DmlError, node: OnnxNode) -> DmlError:
    """Return an error that names the node."""
    text = str(error)
    if isinstance(error, ModelError) or repr(node.name) in text:
        return error
    return NotSupported(f"{node}: {text}")
