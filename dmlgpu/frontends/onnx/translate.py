"""Walks the nodes of a graph for inputs of known shapes, and builds the segments that compute it."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from onnx import NodeProto

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.cache import Cache
from dmlgpu.common.errors import DmlError, ModelError, NotSupported
from dmlgpu.frontends.onnx import control, doubles, empty, expansion, host, registry
from dmlgpu.frontends.onnx.elements import as_held
from dmlgpu.frontends.onnx.inlining import MOST_NESTED
from dmlgpu.frontends.onnx.names import last_uses
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.placement import Placed, Placement, Placing
from dmlgpu.frontends.onnx.registry import Versions
from dmlgpu.frontends.onnx.segments import (
    Action,
    Check,
    Decide,
    Fill,
    Go,
    Outcome,
    Output,
    Part,
    Read,
    Segment,
    Weights,
)
from dmlgpu.frontends.onnx.signatures import check_inputs, typed_outputs
from dmlgpu.frontends.onnx.values import DecisionNeeded, FillNeeded, FinishNeeded, ReadNeeded, Recipe, Value
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.memory import Origin

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.runner import Runner

Steps: TypeAlias = Generator[Part, Outcome, None]

_CONSTANT_BYTES = 256
"""Weights up to this size are constants of the graph, which passes may look into; larger ones are owned inputs."""

_READ = "the host reads elements of its inputs, to decide about it"


@dataclass(eq=False)
class Scope:
    """The names of one graph, or of the body of a function, while its nodes are walked.

    Attributes:
        nodes: in order.
        values: what names stand for.
        last_use: by name, the number of the last node that reads it; the count of nodes for an output.
        outer: the scope whose names are visible; None where there is none.
        at: the number of the node that is walked.
    """

    nodes: Sequence[NodeProto]
    values: dict[str, Value | None]
    last_use: Mapping[str, int]
    outer: Scope | None = None
    at: int = 0

    def find(self, name: str) -> Value | None:
        """Return what a name stands for.

        Raises:
            ModelError: nothing computes it.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise ModelError("graph", f"a node reads {name!r}, which nothing before it computes")


@dataclass(eq=False)
class Translation:
    """One walk.

    Args:
        device: what segments are compiled for.
        versions: of the model's operator sets.
        weights: where the model's constants are.
        first_slot: number of the first slot that no input has.
        runner: what runs the bodies of loops.
        is_body: whether it is the body of a loop: outputs that are arithmetic on few integers, the condition among
            them, are computed by the host then, which waits for nothing.
        bodies: those that other walks of the graph have made, and where this one leaves its own.
        strict: whether nodes that the host must decide about are refused.
    """

    device: Device
    versions: Versions
    weights: Weights
    first_slot: int
    runner: type[Runner]
    is_body: bool
    bodies: Cache[Hashable, tuple[Any, object]]
    strict: bool = False
    placed: list[Placed | tuple[str, Placing]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = self.first_slot
        self._scopes: list[Scope] = []
        self._checks: list[Check] = []
        self._checked: dict[Hashable, Value] = {}
        self._reset()

    def part(self, segment: Segment | None, action: Action | None = None, outputs: tuple[Output, ...] = ()) -> Part:
        """Return a part with the nodes that were placed since the last one, and what they check."""
        placed, self.placed = tuple(self.placed), []
        checks, self._checks = tuple(self._checks), []
        return Part(segment, action, outputs, placed, checks)

    def _reset(self) -> None:
        """Begin a new segment."""
        self._open: list[Placed] = []
        self.builder = Graph(self.device)
        self._feeds: list[int | None] = []
        self._owned: list[int | None] = []
        self._loaded: dict[int, tuple[Value, Expression]] = {}

    def new_slot(self) -> int:
        """Return the number of a slot that nothing fills yet."""
        self._next += 1
        return self._next - 1

    # ---- graphs -----------------------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[NodeProto], values: dict[str, Value | None], outputs: Sequence[str]) -> Steps:
        """Yield the parts that compute outputs from values; each is sent what its action came to."""
        found = yield from self.walk(nodes, values, outputs, None)
        ends = [value for value in found if value is not None]
        recipes = [one.recipe if self.is_body and one.array is None else None for one in ends]
        segment = self.flush([one for one, recipe in zip(ends, recipes, strict=True) if recipe is None])
        yield self.part(
            segment,
            outputs=tuple(
                Output(name, one.shape, one.data_type, one.is_bool, one.slot, one.array, recipe)
                for name, one, recipe in zip(outputs, ends, recipes, strict=True)
            ),
        )

    def walk(
        self,
        nodes: Sequence[NodeProto],
        values: dict[str, Value | None],
        outputs: Sequence[str],
        outer: Scope | None,
    ) -> Generator[Part, Outcome, list[Value | None]]:
        """Translate nodes in order, and return what output names stand for."""
        if len(self._scopes) >= MOST_NESTED:
            raise ModelError("graph", f"bodies and functions must be nested at most {MOST_NESTED} deep")
        scope = Scope(nodes, values, last_uses(nodes, outputs), outer)
        self._scopes.append(scope)
        for number, proto in enumerate(nodes):
            scope.at = number
            found = yield from self._node(proto, scope)
            names = zip(proto.output, found, strict=False)
            scope.values.update({name: value for name, value in names if name and value is not None})
        scope.at = len(nodes)
        ends = [scope.find(name) for name in outputs]
        self._scopes.pop()
        return ends

    def _node(self, proto: NodeProto, scope: Scope) -> Generator[Part, Outcome, Sequence[Value | None]]:
        """Translate one node; where it must know elements, compute and read them, and begin again."""
        name = proto.name or (proto.output[0] if proto.output else str(scope.at))
        version = self.versions.of(proto)
        finished: list[list[Value]] = []
        decided: list[Hashable] = []
        while True:
            inputs = [scope.find(one) if one else None for one in proto.input]
            node = Node(
                proto,
                name=name,
                version=version,
                inputs=inputs,
                load=self.load,
                builder=self.builder,
                finished=finished,
                decided=decided,
            )
            before = len(self.builder.nodes)
            try:
                if control.is_control(node):
                    return (yield from control.translate(self, node, scope))
                found = self._outputs(node)
                self._add_checks(node)
                if found is None:
                    return (yield from self._expand(node, scope))
                self._place(node, found, before)
                return found
            except ReadNeeded as needed:
                self._refuse_reading(node)
                self.placed.append(Placed(Placement(node.name, node.op_type, "read", why=_READ)))
                yield from self.read(needed.value)
            except DecisionNeeded as needed:
                self._refuse_reading(node)
                self.placed.append(Placed(Placement(node.name, node.op_type, "read", why=_READ)))
                decided.append((yield from self.decide(needed)))
            except FinishNeeded as needed:
                self._refuse_reading(node)
                self._note(node, before)
                segment = self.flush([*self._live(), *needed.values])
                finished.append(needed.values)
                yield self.part(segment, Go())
            except FillNeeded as needed:
                needed.value.slot = self.new_slot()
                finished.append([needed.value])
                yield self.part(None, Fill(needed.value.slot, needed.make))
            except DmlError as error:
                raise _with_node(error, node) from None

    def _outputs(self, node: Node) -> Sequence[Value | None] | None:
        """Return the outputs of a node that is one step; None for one that stands for the nodes of a function."""
        check_inputs(node)
        known = host.compute(node)
        if known is None and any(one is not None and one.is_empty for one in node.inputs):
            known = empty.compute(node)
        if known is not None:
            return known
        node = empty.filled(node)
        function = registry.find(node.proto.domain, node.op_type, node.version)
        if function is None:
            return None
        doubles.check_inputs(node)
        with self.builder.scope(node.name):
            found = function(node)
        if found is registry.AS_FUNCTION:
            return None
        values = typed_outputs(node, found)
        doubles.check_outputs(node, values)
        host.give_recipes(node, values)
        return values

    def _add_checks(self, node: Node) -> None:
        """Add the checks of a node; equal ones of a value, of a cache's lengths in every layer, once."""
        for value, bounds in node.bounds:
            key = id(value), bounds.low, bounds.high, bounds.besides
            recipe = host.recipe_of(value)
            if recipe is not None and key not in self._checked:
                self._checked[key] = value
                self._checks.append(Check(recipe, bounds))

    def _expand(self, node: Node, scope: Scope) -> Generator[Part, Outcome, Sequence[Value | None]]:
        body = expansion.body_of(node)
        if body is None:
            raise NotSupported(f"{node}: operator {node.op_type} is not supported")
        outer, self.versions = self.versions, body.versions
        wanted = [name for number, name in enumerate(body.outputs) if node.wants(number)]
        # Only bodies in the node's attributes, which became part of the function's, read names around it.
        found = yield from self.walk(body.nodes, body.bind(node.inputs), wanted, scope)
        self.versions = outer
        by_name = dict(zip(wanted, found, strict=True))
        return [by_name.get(name) for name in body.outputs]

    def place(self, node: Node, why: str) -> None:
        """Note that the host computes a node, and why."""
        self.placed.append(Placed(Placement(node.name, node.op_type, "host", why=why)))

    def place_body(self, node: Node, body: Placing) -> None:
        """Note that the nodes of a body are computed by what runs it."""
        self.placed.append((node.name, body))

    def _note(self, node: Node, before: int) -> Placed | None:
        """Note what a node added to the graph under construction, and return it; None for nothing."""
        numbers = range(before, len(self.builder.nodes))
        descs = [self.builder.nodes[number].desc for number in numbers]
        added = tuple(one.operator for one in descs if isinstance(one, OperatorDesc))
        if not added:
            return None
        placed = Placed(Placement(node.name, node.op_type, "device", added), numbers)
        self.placed.append(placed)
        self._open.append(placed)
        return placed

    def _place(self, node: Node, found: Sequence[Value | None], before: int) -> None:
        placed = self._note(node, before)
        if placed is not None:
            placed.late = any(one is not None and one.recipe is not None for one in found)
            return
        if all(one is None or one.array is not None for one in found):
            self.place(node, "its inputs are known when the model is translated")
        else:
            why = "the same elements seen otherwise"
            self.placed.append(Placed(Placement(node.name, node.op_type, "none", why=why)))

    def _refuse_reading(self, node: Node) -> None:
        """Raise where the host may not decide."""
        if self.strict:
            raise node.refusal("the host would read elements, to decide about it (strict)")

    # ---- values -----------------------------------------------------------------------------------------------------

    def load(self, value: Value) -> Expression:
        """Return a value as an expression of the graph under construction."""
        if value.expression is not None:
            return value.expression
        known = self._loaded.get(id(value))
        if known is not None:
            return known[1]
        if value.array is not None and (value.is_weight or value.slot is None):
            found = self._constant(value)
        else:
            desc = TensorDesc(value.data_type, value.sizes)
            found = self.builder.input(desc, name=f"slot {value.slot} {len(self._feeds)}")
            self._feeds.append(value.slot)
            self._owned.append(None)
        self._loaded[id(value)] = value, found
        return found

    def _constant(self, value: Value) -> Expression:
        assert value.array is not None
        array = as_held(value.array, value.data_type)
        if array.nbytes <= _CONSTANT_BYTES and value.data_type.bits >= 8:
            return self.builder.constant(array.reshape(value.sizes), value.data_type)
        number = self.weights.number_of(value.array, value.data_type)
        desc = TensorDesc(value.data_type, value.sizes)
        found = self.builder.input(desc, name=f"weight {len(self._feeds)}", owned=True)
        self._feeds.append(None)
        self._owned.append(number)
        return found

    def read(self, value: Value) -> Generator[Part, Outcome, None]:
        """Compute a value's elements and know them from now on."""
        segment, (recipe,) = self._recipes([value])
        found = yield self.part(segment, Read(recipe))
        assert isinstance(found, bytes)
        value.array = np.frombuffer(found, value.data_type.numpy).reshape(value.shape)

    def decide(self, needed: DecisionNeeded) -> Generator[Part, Outcome, Outcome]:
        """Compute elements of values, and return what a function makes of them."""
        segment, recipes = self._recipes(needed.values)
        return (yield self.part(segment, Decide(recipes, needed.function)))

    def _recipes(self, values: Sequence[Value]) -> tuple[Segment | None, list[Recipe]]:
        """Return how the host comes by elements; those that only the device computes come into slots before."""
        missing = [one for one in values if host.recipe_of(one) is None]
        segment = self.flush([*self._live(), *missing]) if missing else None
        found = [host.recipe_of(one) for one in values]
        return segment, [one for one in found if one is not None]

    def stop(self, action: Action, values: Sequence[Value]) -> Generator[Part, Outcome, Outcome]:
        """Compute values into slots, let an action run, and return what it came to."""
        segment = self.flush([*self._live(), *values])
        return (yield self.part(segment, action))

    def _live(self) -> list[Value]:
        """Return the values that nodes to come read, of all scopes."""
        return [
            value
            for scope in self._scopes
            for name, value in scope.values.items()
            if value is not None and scope.last_use.get(name, -1) >= scope.at
        ]

    def flush(self, values: Iterable[Value]) -> Segment | None:
        """End the segment: the values that it computes get slots. Return it, None where nothing is computed."""
        outputs: dict[Origin, tuple[int, Expression]] = {}
        for value in values:
            if value.expression is None or value.slot is not None:
                continue
            expression, origin = value.expression, value.expression.origin
            fed = self._feeds[origin.number] if origin.kind == "input" else None
            if fed is not None and expression.desc.is_packed:
                value.slot, value.expression = fed, None
                continue
            if origin.kind != "operator" or not expression.desc.is_packed:
                expression = dml.identity(expression)
            slot, _ = outputs.setdefault(expression.origin, (self.new_slot(), expression))
            value.slot, value.expression = slot, None
        segment = None
        if outputs:
            slots, expressions = zip(*outputs.values(), strict=True)
            segment = Segment(self.builder, list(expressions), self._feeds, self._owned, list(slots), self.weights)
            for placed in self._open:
                placed.segment = segment
        self._reset()
        return segment


def _with_node(error: DmlError, node: Node) -> DmlError:
    """Return an error that names the node."""
    text = str(error)
    if isinstance(error, ModelError) or repr(node.name) in text:
        return error
    return NotSupported(f"{node}: {text}")
