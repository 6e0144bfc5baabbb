"""Graphs under construction: inputs, constants and operators; then a description, a compiled operator, or results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dmlgpu.catalog import descs, validation
from dmlgpu.catalog.enums import DataType, ExecutionFlags, FeatureLevel, TensorFlags, as_elements
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import (
    DmlError,
    InvalidArgument,
    InvalidDescription,
    InvalidGraph,
    InvalidState,
    NotSupported,
    abridged,
    counted,
)
from dmlgpu.common.errors import shown as shown_value
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc, OperatorNode
from dmlgpu.compiler.sizes.arithmetic import hint_of, inside, is_symbolic
from dmlgpu.compiler.sizes.named import NamedSizes
from dmlgpu.compiler.sizes.networks import key_of
from dmlgpu.runtime.device import Device, as_device, default_device, other_device
from dmlgpu.runtime.evaluate import run_compiled
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.execution import BOOLEAN_TYPES, OperatorCall, call_op
from dmlgpu.tensors.graphs import picture
from dmlgpu.tensors.graphs.nodes import (
    Array,
    BuiltNode,
    InputNode,
    by_input,
    describe,
    encoded,
    in_order,
    shown,
    unread,
    used,
)
from dmlgpu.tensors.graphs.sized import SizedGraph, recorded
from dmlgpu.tensors.layout import Policy, as_policy, packed
from dmlgpu.tensors.memory import NOTHING, NodeMemory, Origin, Recorder, caller, current_caller, is_decided_inside
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
"""Semantics of Python operators on tensors of a graph; see ``Graph``."""


class Graph(Recorder):
    """A graph of operators under construction (DirectMLX: dml::Graph).

        graph = Graph()
        x = graph.input((2, 3), name="x")
        y = ops.relu(x * 2 + 1)
        (result,) = graph.evaluate([y], [np.ones((2, 3), np.float32)])

    Sizes of inputs may be names: ``graph.input(("n", 3))``. The graph is built once, and runs for all sizes.

    Args:
        device: Device to compile for, whose feature level applies: a Device, the name of an adapter, or None
            for ``default_device()``, opened when first needed, with the newest feature level.
        name: Name in messages and labels. Optional.
        policy: Memory layout of the tensors that operators write: ``"default"`` (packed), ``"interleaved_channel"``
            (NHWC) or a function (see ``dmlgpu.tensors.layout``). Can be changed between nodes.
        rules: Semantics of Python operators and of ``ops.directml`` on the graph's tensors. With ``"directmlx"``, only
            Python scalars broadcast, types are not promoted, a scalar operand of ``+ - * /`` becomes the scale and bias
            of an ELEMENT_WISE_IDENTITY, ``%`` has the sign of the dividend, and comparisons give UINT8. With
            ``"numpy"``, they behave as on device tensors. All other functions of ``ops`` always follow NumPy.

    Raises:
        InvalidArgument: If `device` is no device, or policy or rules are unknown.
        AdapterNotFound: If no adapter has this name.
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
        self._input_names: set[str] = set()
        self.nodes: list[BuiltNode] = []
        self._sizes: NamedSizes | None = None
        self._by_sizes: Cache[Hashable, Callable[[Sequence[int]], SizedGraph]] = Cache(CacheLimits(64, 64))
        self._descs: dict[Hashable, OperatorDesc] = {}
        self._valid: dict[int, OperatorDesc] = {}

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of sizes of the inputs."""
        return () if self._sizes is None else tuple(self._sizes.names)

    @property
    def device(self) -> Device:
        """Device for which the graph is compiled."""
        return self._device or default_device()

    @property
    def policy(self) -> Policy:
        """Memory layout of the tensors of later nodes."""
        return self._policy

    @policy.setter
    def policy(self, policy: str | Policy) -> None:
        self._policy = as_policy(policy)

    # ---- leaves -----------------------------------------------------------------------------------------------------

    def input(
        self,
        desc: TensorDesc | Sequence[int | str],
        dtype: TypeLike = DataType.FLOAT32,
        *,
        name: str | None = None,
        owned: bool = False,
    ) -> Tensor:
        """Add an input (DirectMLX: InputTensor).

        Args:
            desc: A TensorDesc, or a shape, whose layout the policy selects. A size of the shape may be a name, as in
                ``("n", 64)``: it is the same in all inputs, and known when the graph runs. Shapes of tensors that are
                computed have expressions of the names, which compute like integers.
            dtype: Dtype, if `desc` is a shape, as for ``Tensor``. Defaults to float32.
            name: Name in messages, pictures and ``evaluate``; None numbers the input.
            owned: Whether the data are constant and bound at initialization (OWNED_BY_DML). Defaults to False.

        Returns:
            A tensor of the graph.

        Raises:
            InvalidArgument: If another input has this name, or the name of a size is no identifier.
        """
        data_type = as_data_type("input", "dtype", dtype)
        name = coercion.argument("input", "name", _NAME, name)
        owned = coercion.argument("input", "owned", coercion.boolean, owned)
        flags = TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE
        if not isinstance(desc, TensorDesc):
            with inside():
                sizes = coercion.argument("input", "desc", _SIZES, self._with_names(desc))
            if not sizes:
                raise InvalidArgument(f"{self._label}: desc must be a TensorDesc or sizes, at least one, got none")
            desc = self._policy(data_type, flags, sizes)
        elif owned:
            strides, total = desc.strides, desc.total_tensor_size_in_bytes
            desc = TensorDesc(desc.data_type, desc.sizes, strides, flags, total, desc.guaranteed_base_offset_alignment)
        index = len(self.inputs)
        name = name or f"input {index}"
        if name in self._input_names:
            raise InvalidArgument(f"{self._label}: the name of an input must be new, got {name!r} again")
        self.inputs.append(InputNode(desc, name))
        self._input_names.add(name)
        return self._tensor(Origin("input", index), desc)

    def _with_names(self, shape: Any) -> Any:
        """Return a shape with sizes in place of names."""
        if not isinstance(shape, tuple | list) or not any(isinstance(size, str) for size in shape):
            return shape
        sizes = self._sizes = self._sizes or NamedSizes(self._label, caller, is_decided_inside)
        return [sizes.symbol("input", size) if isinstance(size, str) else size for size in shape]

    def constant(self, array: ArrayLike, dtype: TypeLike | None = None, *, name: str | None = None) -> Tensor:
        """Add an array as a constant, which is not bound (DirectMLX: ConstantData).

        Args:
            array: Array of rank 1 or more; copied.
            dtype: Dtype of the tensor, as for ``Tensor``; None takes the array's.
            name: Name in messages and pictures. Optional.

        Returns:
            A tensor of the graph.

        Raises:
            InvalidArgument: If DirectML lacks the dtype, or it cannot represent an element.
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
        """Add an operator. ``dmlgpu.ops.directml`` has a typed function for each operator.

        Args:
            kind: Class of its description, such as ``descs.Gemm``.
            values: Inputs (tensors) and attributes by field name; see ``operators.inference.complete`` for defaults,
                and for ``types``, ``sizes`` and ``absent``.
            name: Name in messages, labels and pictures. Optional.
            types: Data types of outputs by field, if several are allowed.
            sizes: Shapes of outputs by field, if they do not follow from the inputs.
            absent: Optional outputs to omit.

        Returns:
            One tensor per flat output, None for an absent one.

        Raises:
            InvalidDescription: If a rule of the operator is broken, or an input belongs to another graph. The message
                ends with the line of the caller.
            InvalidArgument: If an input is not a tensor, array or number.
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
        """Add an operator found by ``execution.call_op``.

        Raises:
            As ``add``.
        """
        strict = self.rules == "directmlx" and current_caller.get() is None
        try:
            with inside():
                call = NodeCall(self, label, kind, values)
                if device is not None and as_device(label, device) is not self.device:
                    self._reject_device(label, as_device(label, device))
                outputs = self._append(call, self._described(call, types, sizes, absent, strict), name)
        except EmptyOperand:
            raise
        except InvalidDescription as error:
            raise InvalidDescription(error.operator, error.field, f"{error.reason}{self._at()}") from None
        except InvalidArgument as error:
            located = type(error).__new__(type(error), f"{error}{self._at()}")
            raise located.about(error.operand, error.operand_name) from error.__cause__
        for output in outputs:
            if output is not None:
                output.is_boolean = boolean and not strict and output.data_type in BOOLEAN_TYPES
        if call.is_scalar and call.has_tensors:
            outputs = tuple([None if output is None else output._renamed(()) for output in outputs])
        return outputs

    def _described(
        self, call: NodeCall, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str], strict: bool
    ) -> OperatorDesc:
        """Return the description of a call: one for equal calls, as those of equal layers."""
        key = call.key(types, sizes, (*absent, strict, self._policy))
        desc = self._descs.get(key)
        if desc is None:
            desc = call.described(types, sizes, absent, broadcasts=not strict)
            if self._policy is not packed:
                desc = desc.replace(**{field: self._laid_out(getattr(desc, field)) for field in desc.output_fields})
            if key is not None:
                self._descs[key] = desc
        return desc

    def _append(self, call: NodeCall, desc: OperatorDesc, name: str | None) -> tuple[Tensor | None, ...]:
        """Add the operator of a call."""
        if id(desc) not in self._valid:
            self._validate(desc)
            self._valid[id(desc)] = desc
        return self._add_node(desc, call.places, name)

    def _at(self) -> str:
        """Return the end of messages about a call, which names the caller's line."""
        return f" ({caller()})"

    def _reject_device(self, label: str, device: Device) -> NoReturn:
        raise InvalidArgument(
            f"{label}: device must be that of the graph, '{self.device.adapter}', got "
            f"{other_device(self.device, device)}"
        )

    def _in_words(self, call: OperatorCall, error: DmlError) -> DmlError:
        """Translate an error of a node's description into the caller's terms."""
        is_users = current_caller.get() is None and isinstance(error, InvalidDescription)
        return error if is_users else OperatorCall.in_words(call, error)

    def _number(self, value: int | float, data_type: DataType) -> Tensor:
        """Return a number as a constant."""
        is_named = is_symbolic(value) and value.recording is self._sizes
        with np.errstate(over="ignore"):
            constant = self.constant(as_elements(data_type, [hint_of(value) if is_named else value]), data_type)
        if is_named:
            self.nodes[-1] = replace(self.nodes[-1], number=value)
        return constant

    def _operand_of(self, label: str, tensor: TensorBase) -> TensorBase:
        """Return an operand as a node reads it: a device tensor becomes a constant, and a view with an offset a SLICE1,
        which the compiler fuses into the node.

        Raises:
            InvalidArgument: If such a view has 8 dimensions or 4-bit elements.
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
        """Add a SLICE1 for a view with an offset."""
        sizes, strides, memory = tensor.sizes or (1,), tensor.strides or (1,), tensor.buffer.desc
        if tensor.data_type.bits < 8 or len(sizes) == MAX_DIMENSIONS:
            raise InvalidArgument(
                f"{label}: a view of {'4-bit integers' if tensor.data_type.bits < 8 else '8 dimensions'} must begin "
                f"where its memory does in {self._label}, got one that begins at element {tensor.offset}"
            )
        desc = descs.Slice1(
            input_tensor=TensorDesc(
                tensor.data_type,
                (2, *sizes),
                (tensor.offset, *strides),
                memory.flags,
                memory.total_tensor_size_in_bytes,
            ),
            output_tensor=TensorDesc(tensor.data_type, (1, *sizes)),
            input_window_offsets=(1, *(0 for _ in sizes)),
            input_window_sizes=(1, *sizes),
            input_window_strides=(1,) * (len(sizes) + 1),
        )
        (part,) = self._add_node(desc, [Tensor._of_node(tensor.buffer)], None)
        assert part is not None
        return part._packed(part.buffer, tensor.data_type, tensor.sizes, tensor.is_boolean)

    def _check_at_calls(self, tensor: Any, low: int, high: int, check: Callable[[Any, int, int], None]) -> None:
        """Check nothing: the inputs of a graph are bound as tensors."""

    def _reject_reading(self) -> NoReturn:
        """Raise InvalidState: the tensor has no elements before the graph runs."""
        raise InvalidState(
            f"Tensor.numpy: a tensor of {self._label} has no elements before the graph runs; Graph.evaluate computes "
            f"them ({caller()})"
        )

    def append(
        self, desc: OperatorDesc, inputs: Sequence[Tensor | None], *, name: str | None = None
    ) -> tuple[Tensor | None, ...]:
        """Add an operator by its complete description.

        Args:
            desc: The description, including the layouts of inputs and outputs.
            inputs: One tensor per flat input, with as many bytes as the description takes; None if the description has
                no tensor there.
            name: As for ``add``.

        Returns:
            As ``add``.

        Raises:
            InvalidDescription: If a rule of the operator is broken; the message ends with the line of the caller.
            InvalidArgument: If the number of inputs is wrong, or one belongs to another graph.
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
        for index, tensor in enumerate(tensors):
            if tensor is not None and tensor.graph is not self:
                other = "a device" if tensor.graph is None else tensor.graph._label
                raise InvalidArgument(f"append: inputs[{index}] belongs to {other} ({caller()})")
        return self._add_node(desc, tensors, name)

    def _validate(self, desc: OperatorDesc) -> None:
        level = self._device.feature_level if self._device else max(FeatureLevel)
        validation.validate(desc, level)
        operators.check(desc, level)

    def _add_node(
        self, desc: OperatorDesc, inputs: Sequence[TensorBase | None], name: str | None
    ) -> tuple[Tensor | None, ...]:
        """Append an operator to the nodes."""
        name = coercion.argument("append", "name", _NAME, name)
        index = len(self.nodes)
        origins = tuple(None if tensor is None else tensor.origin for tensor in inputs)
        self.nodes.append(BuiltNode(desc, origins, self._full_name(name), caller()))
        return tuple(
            [
                None if slot.tensor is None else self._tensor(Origin("operator", index, output), slot.tensor)
                for output, slot in enumerate(desc.outputs)
            ]
        )

    def _laid_out(self, desc: Any) -> Any:
        """Return output tensors with the layout of the policy."""
        if isinstance(desc, tuple):
            return tuple(map(self._laid_out, desc))
        return None if desc is None else self._policy(desc.data_type, TensorFlags.NONE, desc.sizes)

    # ---- names ------------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Prefix the names of nodes added in this context (DirectMLX: CreateNameScope).

        Args:
            name: The prefix; ``_`` joins it to the names. Scopes can be nested.

        Returns:
            A context manager.
        """
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
        """Return the origin of a tensor for messages: ``CONVOLUTION 'stem_conv' (model.py:12)``.

        Args:
            origin: The ``origin`` of a tensor of this graph.
        """
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
        nodes = f"{counted(operators, 'operator')}, {counted(len(self.nodes) - operators, 'constant')}"
        return f"<Graph{named}: inputs ({inputs}), {nodes}>"

    # ---- results ----------------------------------------------------------------------------------------------------

    def desc(self, outputs: Sequence[Tensor], *, sizes: Mapping[str, int] | None = None) -> GraphDesc:
        """Return the description of the subgraph that computes the outputs. Unused optional outputs are omitted.

        Args:
            outputs: Tensors of this graph.
            sizes: Values of the sizes that have names; None if none has.

        Returns:
            A GraphDesc.

        Raises:
            InvalidArgument: If there is no output, or an output is not computed by an operator of this graph; if a size
                is missing, or a condition of the graph does not hold for the sizes.
            InvalidGraph: If a required output of a node is neither used nor among the outputs.
        """
        outputs = self._check_outputs(outputs)
        if self._sizes is not None or sizes is not None:
            return self._sized(outputs, sizes).desc
        return self._desc(outputs)

    def _desc(self, outputs: Sequence[Tensor]) -> GraphDesc:
        """Return the description with the current sizes, which may have names."""
        forgotten = self._unread(outputs)
        if forgotten:
            what = self.describe(forgotten[0].origin)
            raise InvalidGraph(f"{self._label}: {what} is required but unused; add it to the outputs")
        return describe(
            self.nodes, [source.name for source in self.inputs], [output.origin for output in outputs], self.name
        )

    def _sized(self, outputs: Sequence[Tensor], sizes: Mapping[str, int] | None) -> SizedGraph:
        """Return the subgraph of outputs for values of the sizes that have names."""
        if self._sizes is None:
            raise InvalidArgument(
                f"{self._label}: sizes must be None, since no size of an input has a name, got {shown_value(sizes)}"
            )
        names, values = self._sizes, self._sizes.values_of(self._label, sizes)
        origins = tuple((output.origin, id(output)) for output in outputs)
        key = origins, len(self.inputs), len(self.nodes), len(names.names)  # the graph may have grown
        by_sizes = self._by_sizes.get_or_make(
            key, lambda: recorded(names, outputs, self.inputs, self.nodes, self._desc(outputs)), lambda _: 1
        )
        return by_sizes(values)

    def _check_outputs(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs, validated."""
        outputs = coercion.argument(self._label, "outputs", _OUTPUTS, values)
        if not outputs:
            raise InvalidArgument(f"{self._label}: outputs must be a sequence of at least one Tensor, got none")
        for index, output in enumerate(outputs):
            if output.graph is not self:
                other = "a device" if output.graph is None else output.graph._label
                raise InvalidArgument(f"{self._label}: outputs[{index}] belongs to {other}")
            if output.origin.kind != "operator":
                raise InvalidArgument(
                    f"{self._label}: outputs[{index}] must be computed by an operator, got {output!r}; "
                    "put an element_wise_identity between"
                )
        return outputs

    def _unread(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the required outputs of needed nodes that are unused."""
        origins = unread(self.nodes, [output.origin for output in outputs])
        return [self._tensor(origin, desc) for origin, desc in origins]

    def compile(
        self,
        outputs: Sequence[Tensor],
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        sizes: Mapping[str, int] | None = None,
        disabled_passes: Collection[str] = (),
    ) -> CompiledOperator:
        """Compile the subgraph that computes the outputs (DirectMLX: Compile); see ``Device.compile_graph``.

        Its inputs are numbered in the order in which they were added; unused ones are not bound.

        Args:
            outputs: Tensors to compute.
            flags: Execution flags of all operators.
            sizes: As for ``desc``. Compiling for further sizes only evaluates expressions of them.
            disabled_passes: Names of passes of the graph compiler to disable.

        Returns:
            A CompiledOperator.

        Raises:
            InvalidArgument, InvalidGraph: As ``desc``.
            DmlError: As ``Device.compile_graph``. If an operator is the cause, the message has its line.
        """
        outputs = self._check_outputs(outputs)
        if self._sizes is not None or sizes is not None:
            return self._compile_sized(outputs, self._sized(outputs, sizes), flags, disabled_passes)
        return self._compile(outputs, self._desc(outputs), flags, disabled_passes)

    def _compile(
        self, outputs: Sequence[Tensor], graph: GraphDesc, flags: ExecutionFlags, disabled_passes: Collection[str]
    ) -> CompiledOperator:
        try:
            return self.device.compile_graph(graph, flags, disabled_passes=disabled_passes)
        except NotSupported as error:
            self._blame(outputs, graph, error)

    def _compile_sized(
        self, outputs: Sequence[Tensor], sized: SizedGraph, flags: ExecutionFlags, disabled_passes: Collection[str]
    ) -> CompiledOperator:
        """Compile a subgraph for sizes, by the plan for others if no flag, pass or constant makes it another."""
        compiled = None
        if flags == ExecutionFlags.NONE and not disabled_passes and not sized.constants:
            with suppress(NotSupported):  # the code below names the node
                compiled = self.device._compile_sized(sized.network)
        compiled = compiled or self._compile(outputs, sized.desc, flags, disabled_passes)
        compiled.name = f"{self.name or 'graph'} of {sized.values}"
        return compiled

    def _blame(self, outputs: Sequence[Tensor], graph: GraphDesc, error: NotSupported) -> NoReturn:
        """Raise the error again with the line of the node that the device rejects."""
        numbers = used(self.nodes, [output.origin for output in outputs])  # in the order of the description
        for index, described in zip(numbers, graph.nodes, strict=True):
            node = self.nodes[index]
            if isinstance(described, OperatorNode):
                try:
                    self.device.create_operator(described.desc)
                except NotSupported as reason:
                    raise NotSupported(f"{node} ({node.location}): {reason}") from None
        raise error

    def evaluate(
        self,
        outputs: Sequence[Tensor],
        inputs: Mapping[str, Array] | Sequence[Array | None] = (),
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        disabled_passes: Collection[str] = (),
    ) -> tuple[Array, ...]:
        """Compile, initialize and execute the graph on NumPy arrays.

        Sizes that have names are those of the arrays.

        Args:
            outputs: Tensors to compute.
            inputs: Arrays with the shapes and dtypes of the inputs, by name or in order.
            flags: Execution flags, as for ``compile``.
            disabled_passes: As for ``compile``.

        Returns:
            One array per output.

        Raises:
            InvalidArgument: If an array is missing, superfluous, or has another dtype or shape; if arrays disagree
                about a size, or a condition of the graph does not hold for the sizes.
            DmlError: As ``compile``.

        Example:
            >>> graph = dmlgpu.Graph("numpy")
            >>> x = graph.input((3,), name="x")
            >>> graph.evaluate([ops.relu(x - 1)], {"x": np.array([0, 1, 3], np.float32)})[0].tolist()
            [0.0, 0.0, 2.0]
        """
        outputs = self._check_outputs(outputs)
        every = [*outputs, *self._unread(outputs)]
        descs: Sequence[TensorDesc] = [source.desc for source in self.inputs]
        results: Sequence[Tensor] = outputs
        if self._sizes is None:
            compiled = self.compile(every, flags, disabled_passes=disabled_passes)
        else:
            arrays = by_input(self._label, self.inputs, inputs)
            shapes = [None if array is None else np.shape(array) for array in arrays]
            bound = self._sizes.bound({source.name: source.desc.sizes for source in self.inputs}, shapes)
            sized = self._sized(every, bound)
            compiled = self._compile_sized(every, sized, flags, disabled_passes)
            descs, results = sized.inputs, sized.outputs[: len(outputs)]
        needed = [port.desc is not None for port in compiled.inputs]
        arrays = in_order(self._label, self.inputs, needed, inputs)
        tensors = [desc if is_needed else None for desc, is_needed in zip(descs, needed, strict=True)]
        raw = run_compiled(compiled, arrays, tensors, self._label)
        # Required outputs that the caller did not request follow the others.
        return tuple(
            output._decoded(data, output.offset) for output, data in zip(results, raw, strict=False) if data is not None
        )

    # ---- pictures ---------------------------------------------------------------------------------------------------

    def to_dot(self) -> str:
        """Return a picture of all nodes in the language of Graphviz."""
        return picture.to_dot(self.name, self.inputs, self.nodes)

    def save(self, path: str | Path) -> None:
        """Write a picture of all nodes.

        Args:
            path: Output file with the suffix ``.dot``, ``.html``, or ``.svg`` (needs the Graphviz program ``dot``).

        Raises:
            InvalidArgument: If the path has another suffix.
            NotSupported: If the suffix is ``.svg`` and ``dot`` is not installed.
        """
        picture.save(Path(path), self.name, self.inputs, self.nodes)


class NodeCall(OperatorCall):
    """A call that becomes a node of a graph."""

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

    def key(self, types: Mapping[str, Any], sizes: Mapping[str, Any], options: Sequence[Any]) -> Hashable | None:
        """Return a key of the description; None if an attribute cannot be hashed."""
        try:
            parts = (self.layouts, self.attributes, types, sizes)
            return (self._kind, key_of(tuple([tuple(part.items()) for part in parts])), *options)
        except TypeError:  # the checks of operators name the expected attribute
            return None

    def in_words(self, error: DmlError) -> DmlError:
        return self._graph._in_words(self, error)
