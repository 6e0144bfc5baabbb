"""Graphs under construction: inputs, constants, operators; then a description, a compiled operator, or arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import ArrayLike

from dmlgpu.catalog import validation
from dmlgpu.catalog.enums import DataType, ExecutionFlags, FeatureLevel, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument, InvalidDescription, InvalidGraph, NotSupported, abridged
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.operators.inference import complete
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import run_compiled
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.runtime.shared import default_device
from dmlgpu.tensors.graphs import picture
from dmlgpu.tensors.graphs.arrays import Array, encoded, in_order
from dmlgpu.tensors.graphs.description import describe
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.location import caller
from dmlgpu.tensors.graphs.nodes import BuiltNode, GraphInput, Origin, shown, unread, used
from dmlgpu.tensors.graphs.policy import Policy, as_policy

_NAME = kinds.optional(kinds.text)
_SIZES = kinds.tuple_of(kinds.integer, "integers")
_OUTPUTS = kinds.tuple_of(kinds.instance_of(Expression, "an Expression"), "Expressions")
_INPUTS = kinds.tuple_of(kinds.optional(kinds.instance_of(Expression, "an Expression")), "Expressions or None")
_DESC = kinds.instance_of(OperatorDesc, "an OperatorDesc")


class Graph:
    """A graph of operators under construction (DirectMLX: dml::Graph).

        graph = Graph()
        x = graph.input((2, 3), name="x")
        y = functions.activation_relu(x * 2 + 1)
        (result,) = graph.evaluate([y], [np.ones((2, 3), np.float32)])

    Args:
        device: where it is compiled, whose feature level holds; None takes ``default_device()`` when one is needed, and
            the newest level.
        name: for messages and labels.
        policy: how tensors that operators write lie in memory: ``"default"``, ``"interleaved_channel"`` or a function
            (see ``dmlgpu.tensors.graphs.policy``). It may be changed between nodes.

    Raises:
        InvalidArgument: no device, or an unknown policy.
    """

    def __init__(self, device: Device | None = None, name: str | None = None, policy: str | Policy = "default"):
        if device is not None and not isinstance(device, Device):
            raise InvalidArgument(f"Graph: device must be a Device or None, got {type(device).__name__}")
        self._device, self.name = device, kinds.argument("Graph", "name", _NAME, name)
        self._policy = as_policy(policy)
        self._scopes: list[str] = []
        self.inputs: list[GraphInput] = []
        self.nodes: list[BuiltNode] = []

    @property
    def device(self) -> Device:
        """Where the graph is compiled."""
        return self._device or default_device()

    @property
    def policy(self) -> Policy:
        """How the tensors of the nodes to come lie in memory."""
        return self._policy

    @policy.setter
    def policy(self, policy: str | Policy) -> None:
        self._policy = as_policy(policy)

    # ---- leaves -----------------------------------------------------------------------------------------------------

    def input(
        self,
        desc: TensorDesc | Sequence[int],
        data_type: DataType = DataType.FLOAT32,
        *,
        name: str | None = None,
        owned: bool = False,
    ) -> Expression:
        """Add the next input (DirectMLX: InputTensor).

        Args:
            desc: the tensor, or its sizes.
            data_type: the type where ``desc`` is sizes; the layout is then the policy's.
            name: for messages, pictures and ``evaluate``; None numbers it.
            owned: whether the data are constant and handed over at initialisation (OWNED_BY_DML).

        Raises:
            InvalidArgument: another input has the name.
        """
        data_type = kinds.argument("input", "data_type", kinds.member_of(DataType), data_type)
        name = kinds.argument("input", "name", _NAME, name)
        owned = kinds.argument("input", "owned", kinds.boolean, owned)
        flags = TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE
        if not isinstance(desc, TensorDesc):
            sizes = kinds.argument("input", "desc", _SIZES, desc)
            if not sizes:
                raise InvalidArgument(f"{self._label}: desc must be a TensorDesc or sizes, at least one, got none")
            desc = self._policy(data_type, flags, sizes)
        elif owned:
            strides, total = desc.strides, desc.total_tensor_size_in_bytes
            desc = TensorDesc(desc.data_type, desc.sizes, strides, flags, total, desc.guaranteed_base_offset_alignment)
        number = len(self.inputs)
        name = name or f"input {number}"
        if any(other.name == name for other in self.inputs):
            raise InvalidArgument(f"{self._label}: the name of an input must be new, got {name!r} again")
        self.inputs.append(GraphInput(desc, name))
        return Expression(self, Origin("input", number), desc)

    def constant(self, array: ArrayLike, data_type: DataType | None = None, *, name: str | None = None) -> Expression:
        """Add data that are known now (DirectMLX: ConstantData); nobody binds them.

        Args:
            array: at least one dimension; copied.
            data_type: the tensor's type; None takes the array's.
            name: for messages and pictures.

        Raises:
            InvalidArgument: the array is of no type of DirectML's, or holds what the type cannot.
        """
        name = kinds.argument("constant", "name", _NAME, name)
        desc, data = encoded("constant", array, data_type)
        self.nodes.append(BuiltNode(desc, (), self._full_name(name), caller(), data))
        return Expression(self, Origin("constant", len(self.nodes) - 1), desc)

    # ---- operators --------------------------------------------------------------------------------------------------

    def add(
        self,
        kind: type[OperatorDesc],
        values: Mapping[str, Any],
        *,
        name: str | None = None,
        types: Mapping[str, DataType] | None = None,
        sizes: Mapping[str, Any] | None = None,
        absent: Sequence[str] = (),
    ) -> tuple[Expression | None, ...]:
        """Add an operator; ``dmlgpu.tensors.graphs.functions`` has a typed function for each.

        Args:
            kind: its description's class.
            values: by field: expressions for inputs, attributes as they are; see ``operators.inference.complete`` for
                what may be left out, and for ``types``, ``sizes`` and ``absent``.
            name: for messages, labels and pictures.
            types: data types of outputs, by field, where several are allowed.
            sizes: sizes of outputs, by field, where they do not follow from the inputs.
            absent: optional outputs that are not wanted.

        Returns:
            One expression per flat output, None for an absent one.

        Raises:
            InvalidDescription: the operator's rules are broken; the message ends with the caller's line.
            InvalidArgument: an input is no expression, or one of another graph.
        """
        location = caller()
        feeding = {field: values[field] for field in kind.input_fields if values.get(field) is not None}
        tensors = {field: self._tensors(kind, field, given, location) for field, given in feeding.items()}
        try:
            desc = complete(kind, {**values, **tensors}, types=types, sizes=sizes, absent=absent)
            desc = desc.replace(**{field: self._laid_out(getattr(desc, field)) for field in desc.output_fields})
        except InvalidDescription as error:
            raise InvalidDescription(error.operator, error.field, f"{error.reason} ({location})") from None
        fed: list[Any] = []
        for field in kind.input_fields:
            given = feeding.get(field)
            fed += given if isinstance(getattr(desc, field), tuple) else [given]  # type: ignore[arg-type]
        return self.append(desc, fed, name=name)

    def append(
        self, desc: OperatorDesc, inputs: Sequence[Expression | None], *, name: str | None = None
    ) -> tuple[Expression | None, ...]:
        """Add an operator by its whole description.

        Args:
            desc: it says how the operator reads its inputs and lays out its outputs.
            inputs: what feeds each flat input, of the bytes that the description takes; None where it has no tensor.
            name: as for ``add``.

        Returns:
            As ``add``.

        Raises:
            InvalidDescription: the operator's rules are broken; the message ends with the caller's line.
            InvalidArgument: another number of inputs, or one of another graph.
        """
        location = caller()
        name = kinds.argument("append", "name", _NAME, name)
        fed = kinds.argument("append", "inputs", _INPUTS, inputs)
        desc = kinds.argument("append", "desc", _DESC, desc)
        try:
            level = self._device.feature_level if self._device else max(FeatureLevel)
            validation.validate(desc, level)
            operators.check(desc, level)
        except InvalidDescription as error:
            raise InvalidDescription(error.operator, error.field, f"{error.reason} ({location})") from None
        if [one is None for one in fed] != [slot.tensor is None for slot in desc.inputs]:
            raise InvalidArgument(
                f"append: inputs must be an Expression for each of the {len(desc.inputs)} inputs of {desc.operator}, "
                f"None for absent ones, got {len(fed)} ({location})"
            )
        for number, one in enumerate(fed):
            if one is not None and one.graph is not self:
                raise InvalidArgument(f"append: inputs[{number}] belongs to {one.graph._label} ({location})")
        number = len(self.nodes)
        origins = tuple(None if one is None else one.origin for one in fed)
        self.nodes.append(BuiltNode(desc, origins, self._full_name(name), location))
        return tuple(
            None if slot.tensor is None else Expression(self, Origin("operator", number, output), slot.tensor)
            for output, slot in enumerate(desc.outputs)
        )

    def _tensors(self, kind: type[OperatorDesc], field: str, given: Any, location: str) -> Any:
        """Return the descriptions of the expressions for a field."""
        if not isinstance(given, Expression) and isinstance(given, Sequence):
            return tuple(self._tensors(kind, f"{field}[{number}]", one, location) for number, one in enumerate(given))
        if not isinstance(given, Expression):
            raise InvalidDescription(
                kind.operator, field, f"must be an Expression, got {type(given).__name__} ({location})"
            )
        if given.graph is not self:
            other = "another graph" if given.graph.name in (None, self.name) else given.graph._label
            theirs = given.graph._device
            where = f" on {theirs.description}" if theirs is not None and theirs is not self._device else ""
            raise InvalidDescription(
                kind.operator, field, f"must be an expression of {self._label}, got one of {other}{where} ({location})"
            )
        return given.desc

    def _laid_out(self, given: Any) -> Any:
        """Return output tensors as the policy lays them out."""
        if isinstance(given, tuple):
            return tuple(map(self._laid_out, given))
        return None if given is None else self._policy(given.data_type, TensorFlags.NONE, given.sizes)

    # ---- names ------------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Put a name before those of the nodes that are added inside (DirectMLX: CreateNameScope), joined by ``_``."""
        return self._within(kinds.argument("scope", "name", kinds.text, name))

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def _full_name(self, name: str | None) -> str | None:
        return "_".join([*self._scopes, *([name] if name else [])]) or None

    @property
    def _label(self) -> str:
        return f"graph {abridged(self.name)!r}" if self.name else "a graph without a name"

    def describe(self, origin: Origin) -> str:
        """Return what computes a value, as messages call it: ``CONVOLUTION 'stem_conv' (model.py:12)``."""
        if origin.kind == "input":
            return f"{self.inputs[origin.number].name!r}"
        node = self.nodes[origin.number]
        output = ""
        if isinstance(node.desc, OperatorDesc) and len(node.desc.outputs) > 1:
            output = f" {node.desc.outputs[origin.output].label}"
        return f"{node}{output} ({node.location})"

    def __repr__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        inputs = ", ".join(f"{one.name!r} {shown(one.desc)}" for one in self.inputs)
        operators = sum(isinstance(node.desc, OperatorDesc) for node in self.nodes)
        constants = len(self.nodes) - operators
        return f"<Graph{named}: inputs ({inputs}), {operators} operators, {constants} constants>"

    # ---- results ----------------------------------------------------------------------------------------------------

    def desc(self, outputs: Sequence[Expression]) -> GraphDesc:
        """Return the description of what the outputs need; optional outputs of nodes that nothing reads are left out.

        Raises:
            InvalidArgument: no output, one that is no expression of this graph, or one that no operator computes.
            InvalidGraph: an output of a node is required, and neither read nor among the outputs.
        """
        outputs = self._check_outputs(outputs)
        forgotten = self._unread(outputs)
        if forgotten:
            what = self.describe(forgotten[0].origin)
            raise InvalidGraph(f"{self._label}: {what} is required and not read; name it among the outputs, too")
        return describe(self.nodes, [one.name for one in self.inputs], [output.origin for output in outputs], self.name)

    def _check_outputs(self, given: Sequence[Expression]) -> tuple[Expression, ...]:
        """Return the outputs, checked."""
        outputs = kinds.argument(self._label, "outputs", _OUTPUTS, given)
        if not outputs:
            raise InvalidArgument(f"{self._label}: outputs must be a sequence of at least one Expression, got none")
        for number, output in enumerate(outputs):
            if output.graph is not self:
                raise InvalidArgument(f"{self._label}: outputs[{number}] belongs to {output.graph._label}")
            if output.origin.kind != "operator":
                raise InvalidArgument(
                    f"{self._label}: outputs[{number}] must be computed by an operator, got {output!r}; "
                    "put an element_wise_identity between"
                )
        return outputs

    def _unread(self, outputs: Sequence[Expression]) -> list[Expression]:
        """Return the required outputs of the nodes in use that nothing reads."""
        found = unread(self.nodes, [output.origin for output in outputs])
        return [Expression(self, origin, tensor) for origin, tensor in found]

    def compile(
        self,
        outputs: Sequence[Expression],
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        disabled_passes: Collection[str] = (),
    ) -> CompiledOperator:
        """Compile what the outputs need (DirectMLX: Compile); see ``Device.compile_graph``.

        Its inputs are numbered as they were added; one that no output needs is not bound.

        Raises:
            InvalidArgument, InvalidGraph: as ``desc``.
            DmlError: as ``Device.compile_graph``; where an operator is at fault, the message has its line.
        """
        graph = self.desc(outputs)
        try:
            return self.device.compile_graph(graph, flags, disabled_passes=disabled_passes)
        except NotSupported as error:
            self._blame(outputs, error)

    def _blame(self, outputs: Sequence[Expression], error: NotSupported) -> NoReturn:
        """Raise the error with the line of the node that the device refuses."""
        for number in used(self.nodes, [output.origin for output in outputs]):
            node = self.nodes[number]
            if isinstance(node.desc, OperatorDesc):
                try:
                    self.device.create_operator(node.desc)
                except NotSupported as refused:
                    raise NotSupported(f"{node} ({node.location}): {refused}") from None
        raise error

    def evaluate(
        self,
        outputs: Sequence[Expression],
        inputs: Mapping[str, Array] | Sequence[Array | None] = (),
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        disabled_passes: Collection[str] = (),
    ) -> tuple[Array, ...]:
        """Compile, initialise and execute the graph on NumPy arrays.

        Args:
            outputs: what is computed.
            inputs: arrays of the inputs' sizes and types, by name or in the order of the inputs.
            flags: as for ``compile``.
            disabled_passes: as for ``compile``.

        Returns:
            One array per output, of its sizes and type.

        Raises:
            InvalidArgument: an array is missing, superfluous, or of another type or sizes.
            DmlError: as ``compile``.
        """
        outputs = self._check_outputs(outputs)
        compiled = self.compile([*outputs, *self._unread(outputs)], flags, disabled_passes=disabled_passes)
        needed = [port.desc is not None for port in compiled.inputs]
        arrays = in_order(self._label, self.inputs, needed, inputs)
        tensors = [one.desc if is_needed else None for one, is_needed in zip(self.inputs, needed, strict=True)]
        raw = run_compiled(compiled, arrays, tensors, self._label)
        found = zip(outputs, raw, strict=False)  # behind the outputs come those that are required and not wanted
        return tuple(output.desc.decode(data) for output, data in found if data is not None)

    # ---- pictures ---------------------------------------------------------------------------------------------------

    def to_dot(self) -> str:
        """Return a picture of all nodes in Graphviz' language."""
        return picture.to_dot(self.name, self.inputs, self.nodes)

    def save(self, path: str | Path) -> None:
        """Write a picture of all nodes: ``.dot`` text, an ``.html`` page, or ``.svg`` by Graphviz' program ``dot``.

        Raises:
            InvalidArgument: another ending.
            NotSupported: ``.svg`` where there is no ``dot``.
        """
        picture.save(Path(path), self.name, self.inputs, self.nodes)
