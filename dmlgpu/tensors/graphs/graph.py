"""Graphs under construction: inputs, constants, operators; then a description, a compiled operator, or arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dmlgpu.catalog import descs, validation
from dmlgpu.catalog.enums import DataType, ExecutionFlags, FeatureLevel, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import (
    DmlError,
    InvalidArgument,
    InvalidDescription,
    InvalidGraph,
    InvalidState,
    NotSupported,
    abridged,
)
from dmlgpu.common.errors import shown as shown_value
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.runtime.device import Device, as_device, default_device
from dmlgpu.runtime.evaluate import run_compiled
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.execution import BOOLEAN_TYPES, OperatorCall, call_op
from dmlgpu.tensors.graphs import picture
from dmlgpu.tensors.graphs.nodes import Array, BuiltNode, InputNode, describe, encoded, in_order, shown, unread, used
from dmlgpu.tensors.layout import Policy, as_policy, packed
from dmlgpu.tensors.memory import NOTHING, NodeMemory, Origin, Recorder, caller, current_caller
from dmlgpu.tensors.preparation import EmptyOperand, short
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_data_type

_NAME = coercion.optional(coercion.text)
_SIZES = coercion.tuple_of(coercion.integer, "integers")
_OUTPUTS = coercion.tuple_of(coercion.instance_of(Tensor, "a Tensor"), "Tensors")
_INPUTS = coercion.tuple_of(coercion.optional(coercion.instance_of(Tensor, "a Tensor")), "Tensors or None")
_DESC = coercion.instance_of(OperatorDesc, "an OperatorDesc")


Expression = Tensor
"""DirectMLX's name of a tensor of a graph."""

RULES = ("directmlx", "numpy")
"""What Python's operators do with tensors of a graph; see ``Graph``."""


class Graph(Recorder):
    """A graph of operators under construction (DirectMLX: dml::Graph).

        graph = Graph()
        x = graph.input((2, 3), name="x")
        y = ops.relu(x * 2 + 1)
        (result,) = graph.evaluate([y], [np.ones((2, 3), np.float32)])

    Args:
        device: where it is compiled, whose feature level holds: a device, the name of an adapter, or None, which takes
            ``default_device()`` when one is needed, and the newest level.
        name: for messages and labels.
        policy: how tensors that operators write lie in memory: ``"default"``, ``"interleaved_channel"`` or a function
            (see ``dmlgpu.tensors.layout``). It may be changed between nodes.
        rules: what Python's operators and the functions of ``ops.directml`` do with the graph's tensors.
            ``"directmlx"``: nothing broadcasts but numbers, types are not promoted, a number beside ``+ - * /`` becomes
            scale and bias of an ELEMENT_WISE_IDENTITY, ``%`` has the sign of the dividend, comparisons give UINT8.
            ``"numpy"``: as for tensors on devices. The other functions of ``ops`` always follow NumPy.

    Raises:
        InvalidArgument: no device, an unknown policy or unknown rules.
        AdapterNotFound: no adapter of the name.
    """

    def __init__(
        self,
        device: Device | str | None = None,
        name: str | None = None,
        policy: str | Policy = "default",
        rules: str = "directmlx",
    ):
        self._device = None if device is None else as_device("Graph", device)
        self.name = coercion.argument("Graph", "name", _NAME, name)
        self._policy = as_policy(policy)
        if not isinstance(rules, str) or rules not in RULES:
            raise InvalidArgument(f"Graph: rules must be one of {', '.join(RULES)}, got {shown_value(rules)}")
        self.rules = rules
        self._scopes: list[str] = []
        self.inputs: list[InputNode] = []
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
        dtype: TypeLike = DataType.FLOAT32,
        *,
        name: str | None = None,
        owned: bool = False,
    ) -> Tensor:
        """Add the next input (DirectMLX: InputTensor).

        Args:
            desc: the tensor, or its sizes.
            dtype: the type where ``desc`` is sizes, as for ``Tensor``; the layout is then the policy's.
            name: for messages, pictures and ``evaluate``; None numbers it.
            owned: whether the data are constant and handed over at initialisation (OWNED_BY_DML).

        Raises:
            InvalidArgument: another input has the name.
        """
        data_type = as_data_type("input", "dtype", dtype)
        name = coercion.argument("input", "name", _NAME, name)
        owned = coercion.argument("input", "owned", coercion.boolean, owned)
        flags = TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE
        if not isinstance(desc, TensorDesc):
            sizes = coercion.argument("input", "desc", _SIZES, desc)
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
        self.inputs.append(InputNode(desc, name))
        return self._tensor(Origin("input", number), desc)

    def constant(self, array: ArrayLike, dtype: TypeLike | None = None, *, name: str | None = None) -> Tensor:
        """Add data that are known now (DirectMLX: ConstantData); nobody binds them.

        Args:
            array: at least one dimension; copied.
            dtype: the tensor's type, as for ``Tensor``; None takes the array's.
            name: for messages and pictures.

        Raises:
            InvalidArgument: the array is of no type of DirectML's, or holds what the type cannot.
        """
        name = coercion.argument("constant", "name", _NAME, name)
        desc, data, is_boolean = encoded("constant", array, dtype)
        self.nodes.append(BuiltNode(desc, (), self._full_name(name), caller(), data))
        return self._tensor(Origin("constant", len(self.nodes) - 1), desc, is_boolean)

    def _tensor(self, origin: Origin, desc: TensorDesc, boolean: bool = False) -> Tensor:
        return Tensor._of_node(NodeMemory(self, origin, desc), boolean)

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
    ) -> tuple[Tensor | None, ...]:
        """Add an operator; ``dmlgpu.ops.directml`` has a typed function for each.

        Args:
            kind: its description's class.
            values: by field: tensors for inputs, attributes as they are; see ``operators.inference.complete`` for
                what may be left out, and for ``types``, ``sizes`` and ``absent``.
            name: for messages, labels and pictures.
            types: data types of outputs, by field, where several are allowed.
            sizes: sizes of outputs, by field, where they do not follow from the inputs.
            absent: optional outputs that are not wanted.

        Returns:
            One tensor per flat output, None for an absent one.

        Raises:
            InvalidDescription: the operator's rules are broken, or an input is one of another graph; the message ends
                with the caller's line.
            InvalidArgument: an input is no tensor, array or number.
        """
        return call_op(
            kind,
            values,
            types=types or NOTHING,
            sizes=sizes or NOTHING,
            requested=dict.fromkeys(absent, False),
            graph=self,
            name=name,
        )

    def _call(
        self,
        label: str,
        kind: type[OperatorDesc],
        values: Mapping[str, Any],
        *,
        types: Mapping[str, Any],
        sizes: Mapping[str, Any],
        absent: Sequence[str],
        boolean: bool,
        name: str | None,
        device: Any,
    ) -> tuple[Tensor | None, ...]:
        """Add an operator, as ``execution.call_op`` finds it.

        Raises:
            As ``add``.
        """
        strict = self.rules == "directmlx" and current_caller.get() is None
        try:
            call = NodeCall(self, label, kind, values)
            if device is not None and as_device(label, device) is not self.device:
                self._refuse_device(label, as_device(label, device))
            desc = call.described(types, sizes, absent, broadcasts=not strict)
            if self._policy is not packed:
                desc = desc.replace(**{field: self._laid_out(getattr(desc, field)) for field in desc.output_fields})
            outputs = self._append(call, desc, name)
        except EmptyOperand:
            raise
        except InvalidDescription as error:
            raise InvalidDescription(error.operator, error.field, f"{error.reason}{self._at()}") from None
        except InvalidArgument as error:
            raise type(error).__new__(type(error), f"{error}{self._at()}") from error.__cause__
        for output in outputs:
            if output is not None:
                output.is_boolean = boolean and not strict and output.data_type in BOOLEAN_TYPES
        if call.is_scalar and call.has_tensors:
            outputs = tuple([None if output is None else output._renamed(()) for output in outputs])
        return outputs

    def _append(self, call: NodeCall, desc: OperatorDesc, name: str | None) -> tuple[Tensor | None, ...]:
        """Add the operator of a call."""
        self._validate(desc)
        return self._add_node(desc, call.places, name)

    def _at(self) -> str:
        """Return what messages about a call end with: the caller's line."""
        return f" ({caller()})"

    def _refuse_device(self, label: str, device: Device) -> NoReturn:
        raise InvalidArgument(
            f"{label}: device must be that of the graph, '{self.device.adapter}', got another, '{device.adapter}'"
        )

    def _in_words(self, call: OperatorCall, error: DmlError) -> DmlError:
        """Return an error of a node's description as the caller reads it."""
        is_users = current_caller.get() is None and isinstance(error, InvalidDescription)
        return error if is_users else OperatorCall.in_words(call, error)

    def _number(self, value: int | float, data_type: DataType) -> Tensor:
        """Return a number as a constant."""
        with np.errstate(over="ignore"):
            return self.constant(np.array([value], data_type.numpy), data_type)

    def _operand_of(self, label: str, tensor: TensorBase) -> TensorBase:
        """Return an operand as a node reads it: one that lies on a device becomes a constant, and a view that begins
        behind the first element a SLICE1, which the compiler makes part of the node.

        Raises:
            InvalidArgument: such a view of 8 dimensions or elements of 4 bits.
        """
        memory = tensor.buffer
        if not isinstance(memory, NodeMemory):
            return self.constant(tensor.numpy().astype(tensor.data_type.numpy).reshape(tensor.sizes), tensor.data_type)
        return self._sliced(label, tensor) if tensor.offset else tensor

    def _describe_foreign(self, tensor: TensorBase, is_first: bool) -> str | None:
        """Return why a tensor cannot be an operand; None if it can."""
        if not isinstance(tensor.buffer, NodeMemory) or tensor.buffer.graph is self:
            return None
        graph = tensor.buffer.graph
        other = "another graph" if graph.name in (None, self.name) else graph._label
        device = graph._device
        where = f" on {device.description}" if device is not None and device is not self._device else ""
        return f"must be a tensor of {self._label}, got one of {other}{where}"

    def _sliced(self, label: str, tensor: TensorBase) -> TensorBase:
        """Add a SLICE1 for a view that begins behind the first element of its memory."""
        sizes, strides, whole = tensor.sizes or (1,), tensor.strides or (1,), tensor.buffer.desc
        if tensor.data_type.bits < 8 or len(sizes) == MAX_DIMENSIONS:
            raise InvalidArgument(
                f"{label}: a view of {'4-bit integers' if tensor.data_type.bits < 8 else '8 dimensions'} must begin "
                f"where its memory does in {self._label}, got one that begins at element {tensor.offset}"
            )
        desc = descs.Slice1(
            input_tensor=TensorDesc(
                tensor.data_type, (2, *sizes), (tensor.offset, *strides), whole.flags, whole.total_tensor_size_in_bytes
            ),
            output_tensor=TensorDesc(tensor.data_type, (1, *sizes)),
            input_window_offsets=(1, *(0 for _ in sizes)),
            input_window_sizes=(1, *sizes),
            input_window_strides=(1,) * (len(sizes) + 1),
        )
        (part,) = self._add_node(desc, [Tensor._of_node(tensor.buffer)], None)
        assert part is not None
        return part._packed(part.buffer, tensor.data_type, tensor.sizes, tensor.is_boolean)

    def _refuse_reading(self) -> NoReturn:
        """Raise an InvalidState that says that nothing is computed yet."""
        raise InvalidState(
            f"Tensor.numpy: a tensor of {self._label} has no elements before the graph runs; Graph.evaluate computes "
            f"them ({caller()})"
        )

    def append(
        self, desc: OperatorDesc, inputs: Sequence[Tensor | None], *, name: str | None = None
    ) -> tuple[Tensor | None, ...]:
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
        tensors = coercion.argument("append", "inputs", _INPUTS, inputs)
        desc = coercion.argument("append", "desc", _DESC, desc)
        try:
            self._validate(desc)
        except InvalidDescription as error:
            raise InvalidDescription(error.operator, error.field, f"{error.reason} ({caller()})") from None
        if [tensor is None for tensor in tensors] != [slot.tensor is None for slot in desc.inputs]:
            raise InvalidArgument(
                f"append: inputs must be a Tensor for each of the {len(desc.inputs)} inputs of {desc.operator}, "
                f"None for absent ones, got {len(tensors)} ({caller()})"
            )
        for number, tensor in enumerate(tensors):
            if tensor is not None and tensor.graph is not self:
                other = "a device" if tensor.graph is None else tensor.graph._label
                raise InvalidArgument(f"append: inputs[{number}] belongs to {other} ({caller()})")
        return self._add_node(desc, tensors, name)

    def _validate(self, desc: OperatorDesc) -> None:
        level = self._device.feature_level if self._device else max(FeatureLevel)
        validation.validate(desc, level)
        operators.check(desc, level)

    def _add_node(
        self, desc: OperatorDesc, inputs: Sequence[TensorBase | None], name: str | None
    ) -> tuple[Tensor | None, ...]:
        """Add an operator as the next node."""
        name = coercion.argument("append", "name", _NAME, name)
        number = len(self.nodes)
        origins = tuple(None if tensor is None else tensor.origin for tensor in inputs)
        self.nodes.append(BuiltNode(desc, origins, self._full_name(name), caller()))
        return tuple(
            [
                None if slot.tensor is None else self._tensor(Origin("operator", number, output), slot.tensor)
                for output, slot in enumerate(desc.outputs)
            ]
        )

    def _laid_out(self, desc: Any) -> Any:
        """Return output tensors as the policy lays them out."""
        if isinstance(desc, tuple):
            return tuple(map(self._laid_out, desc))
        return None if desc is None else self._policy(desc.data_type, TensorFlags.NONE, desc.sizes)

    # ---- names ------------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Put a name before those of the nodes that are added inside (DirectMLX: CreateNameScope), joined by ``_``."""
        return self._within(coercion.argument("scope", "name", coercion.text, name))

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
        inputs = ", ".join(f"{source.name!r} {shown(source.desc)}" for source in self.inputs)
        operators = sum(isinstance(node.desc, OperatorDesc) for node in self.nodes)
        constants = len(self.nodes) - operators
        return f"<Graph{named}: inputs ({inputs}), {operators} operators, {constants} constants>"

    # ---- results ----------------------------------------------------------------------------------------------------

    def desc(self, outputs: Sequence[Tensor]) -> GraphDesc:
        """Return the description of what the outputs need; optional outputs of nodes that nothing reads are left out.

        Raises:
            InvalidArgument: no output, one that is no tensor of this graph, or one that no operator computes.
            InvalidGraph: an output of a node is required, and neither read nor among the outputs.
        """
        outputs = self._check_outputs(outputs)
        forgotten = self._unread(outputs)
        if forgotten:
            what = self.describe(forgotten[0].origin)
            raise InvalidGraph(f"{self._label}: {what} is required and not read; name it among the outputs, too")
        return describe(
            self.nodes, [source.name for source in self.inputs], [output.origin for output in outputs], self.name
        )

    def _check_outputs(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs, checked."""
        outputs = coercion.argument(self._label, "outputs", _OUTPUTS, values)
        if not outputs:
            raise InvalidArgument(f"{self._label}: outputs must be a sequence of at least one Tensor, got none")
        for number, output in enumerate(outputs):
            if output.graph is not self:
                other = "a device" if output.graph is None else output.graph._label
                raise InvalidArgument(f"{self._label}: outputs[{number}] belongs to {other}")
            if output.origin.kind != "operator":
                raise InvalidArgument(
                    f"{self._label}: outputs[{number}] must be computed by an operator, got {output!r}; "
                    "put an element_wise_identity between"
                )
        return outputs

    def _unread(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the required outputs of the nodes in use that nothing reads."""
        origins = unread(self.nodes, [output.origin for output in outputs])
        return [self._tensor(origin, desc) for origin, desc in origins]

    def compile(
        self,
        outputs: Sequence[Tensor],
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

    def _blame(self, outputs: Sequence[Tensor], error: NotSupported) -> NoReturn:
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
        outputs: Sequence[Tensor],
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
        tensors = [source.desc if is_needed else None for source, is_needed in zip(self.inputs, needed, strict=True)]
        raw = run_compiled(compiled, arrays, tensors, self._label)
        results = zip(outputs, raw, strict=False)  # behind the outputs come those that are required and not wanted
        return tuple(output._decoded(data, output.offset) for output, data in results if data is not None)

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


class NodeCall(OperatorCall):
    """A call of an operator that becomes a node of a graph."""

    def __init__(self, graph: Graph, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any]):
        self._graph, self.has_tensors = graph, False
        super().__init__(caller, kind, values)

    def _tensor_of(self, array: Any) -> TensorBase:
        return self._graph.constant(array)

    def _bind_number(self, value: int | float, data_type: DataType) -> Any:
        self.places.append(self._graph._number(value, data_type))
        return self.places[-1].desc

    def _bind(self, field: str, name: str, tensor: TensorBase) -> Any:
        foreign = self._graph._describe_foreign(tensor, not self.has_tensors)
        if foreign is not None:
            entry = name.removeprefix(short(field))
            raise self.in_words(InvalidDescription(self._kind.operator, f"{field}{entry}", foreign))
        self.has_tensors = True
        self.places.append(self._graph._operand_of(self._caller, tensor))
        return self.places[-1].desc

    def in_words(self, error: DmlError) -> DmlError:
        return self._graph._in_words(self, error)
