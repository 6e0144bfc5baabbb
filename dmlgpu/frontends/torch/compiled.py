"""``torch.compile(model, backend="dmlgpu")``: graphs of AOTAutograd as fused graphs of dmlgpu, forward and backward.

Dynamo captures a model's Python code, AOTAutograd writes its forward and backward computation as graphs of functional
ATen operators, and the functions of ``operators/`` compute these on traced tensors. Tensors of the CPU,
including parameters, are copied to the default adapter for each call, and results are copied back.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import optimization_hint, statically_known_true
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn.attention import SDPBackend, sdpa_kernel

from dmlgpu import ops
from dmlgpu.frontends.torch import adapters, indices
from dmlgpu.frontends.torch.calls import CallArguments, function_ids, repeated
from dmlgpu.frontends.torch.compiler_internals import (
    HigherOrderOperator,
    OpOverload,
    TracingContext,
    aot_autograd,
    core_aten_decompositions,
    count_steps_on,
    leave_untraced,
    make_boxed_func,
    min_cut_rematerialization_partition,
    skip_packages,
    unset_fake_temporarily,
)
from dmlgpu.frontends.torch.complex_numbers import Complex, ComplexPairs
from dmlgpu.frontends.torch.dispatch import CALLERS, DROPPED
from dmlgpu.frontends.torch.dtypes import DATA_TYPES, PARTS, cast, data_type_of, dtype_of
from dmlgpu.frontends.torch.float64 import DTYPES as HOST_DTYPES
from dmlgpu.frontends.torch.float64 import MOVES as MOVING
from dmlgpu.frontends.torch.generators import Generator
from dmlgpu.frontends.torch.internals import LOOP_KEY, has_kernel, loop_of, operator_names, pytree, schema_of
from dmlgpu.frontends.torch.operators.registry import (
    COMPLEX,
    DECOMPOSED,
    ENTRIES,
    Entry,
    installed,
    overload,
    overloads,
)
from dmlgpu.frontends.torch.storage import Memory, memory_of, operand_of, torch_of, unowned, write
from dmlgpu.frontends.torch.symbolic_views import VIEWS, has_symbols, reinterpreted
from dmlgpu.runtime.device import device as default_of_block
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.compiled import CACHED, CompiledFunction
from dmlgpu.tensors.tracing.trace import CallSize

_DEVICE = "dml"

_SKIPPED = "common", "compiler", "frontends", "ops", "runtime", "tensors"
skip_packages((*(f"dmlgpu.{room}" for room in _SKIPPED), "wgpu", "cffi"))  # of kernels; models of demos are traced
count_steps_on(_DEVICE)
leave_untraced(Generator)


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, with its backward graph where inputs require gradients.

    The entry point of ``torch.compile(backend="dmlgpu")``.

    Args:
        module: The graph.
        inputs: Fake tensors and symbolic integers of its inputs.
        mode: Rejected, like `options`: both are for PyTorch's own compiler.
        options: Rejected.

    Returns:
        Function of the graph's inputs.

    Raises:
        ValueError: If a mode or options were passed.
        NotImplementedError: If the device lacks the dtype of an operator; names it.
    """
    if mode is not None or options is not None:
        argument = f"mode={mode!r}" if options is None else f"options={options!r}"
        raise ValueError(f'torch.compile(backend="dmlgpu") takes no mode and no options, got {argument}: leave it out')
    compiler = aot_autograd(
        fw_compiler=_compile,
        bw_compiler=_compile,
        inference_compiler=_compile_inference,
        partition_fn=_partition,
        decompositions=_decompositions(),
        keep_inference_input_mutations=True,
    )
    is_on_host = any(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in inputs)
    with sdpa_kernel(SDPBackend.MATH) if is_on_host else nullcontext():  # no kernels that only the CPU has
        return compiler(module, inputs)


def _partition(module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph into forward and backward computation, which recomputes what is cheaper to compute than to
    store."""
    for node in module.graph.nodes:
        if node.target in _COMPUTES_INDICES:
            node.args = (*node.args[:-1], node.args[1])
        elif _name(node.target) == "native_batch_norm_backward" and node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])
        elif _name(node.target) == "_scaled_dot_product_fused_attention_overrideable_backward":
            node.args = (*node.args[:6], *[None] * 4, *node.args[10:14], None, None)  # it computes the weights again
    return min_cut_rematerialization_partition(module, inputs, **options)


_COMPUTES_INDICES = overloads("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
"""Operators whose functions compute their last argument, the indices, from the input: these need not be stored."""


def _decompositions() -> Mapping[Any, Any]:
    """Return PyTorch's decompositions of operators that are not in the table."""
    ours = {overload(name): function for name, function in DECOMPOSED.items()}
    return {
        target: function
        for target, function in (core_aten_decompositions() | ours | _foreach_decompositions()).items()
        if _name(target) not in ENTRIES and target not in _MOVES and target not in _FILLS
    } | _REPAIRED


def _mse_loss_backward_of_nothing(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    return NotImplemented if x.numel() else torch.zeros_like(x)


_REPAIRED: dict[Any, Any] = dict.fromkeys(overloads("mse_loss_backward"), _mse_loss_backward_of_nothing)
"""Functions for arguments for which PyTorch's meta kernels fail although they are valid; NotImplemented for others."""


@functools.cache  # a single value
def _foreach_decompositions() -> dict[Any, Any]:
    """Return PyTorch's loops over tensors for operators on lists, by operator."""
    names = [name for name in operator_names() if name.startswith("aten::_foreach_")]
    targets = [overload(name.removeprefix("aten::")) for name in names]
    return {
        target: loop_of(target)
        for target in targets
        if not schema_of(target).is_mutable and has_kernel(target.name(), LOOP_KEY)
    }


def _compile_inference(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph whose parameters stay as they are: they are laid out for its kernels once."""
    context = TracingContext.try_get()
    static = () if context is None or context.fw_metadata is None else context.fw_metadata.static_input_indices
    return _compile(module, inputs, static)


def _compile(module: fx.GraphModule, inputs: Sequence[Any], weights: Sequence[int] = ()) -> Callable[..., Any]:
    """Compile a functional graph; operators that are not in the table run one by one between compiled parts.

    Args:
        module: The graph.
        inputs: Example inputs; passed by AOTAutograd.
        weights: Indices of inputs that are the same tensors in each call, and rarely change.
    """
    if indices.checks_all:
        return make_boxed_func(module)  # operator by operator, as eager calls
    mutations = _take_mutations(module)
    support = _Support(module)
    operators = [node for node in module.graph.nodes if node.op == "call_function"]
    outside = [node for node in operators if not support.is_node_supported({}, node)]
    if not outside:
        return make_boxed_func(CompiledAtenGraph(module, weights, mutations))
    if not support.is_mixed:
        _check_on_device(outside)
    parts = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).partition_and_fuse()
    for name, child in list(parts.named_children()):
        if isinstance(child, fx.GraphModule):
            setattr(parts, name, _CompiledPart(CompiledAtenGraph(child)))
    return make_boxed_func(_mutating(parts, mutations) if mutations else parts)


def _take_mutations(module: fx.GraphModule) -> tuple[int, ...]:
    """Replace the writes into inputs, with which a graph ends, by results after its own.

    Returns:
        Index of the input that each of these results is written to.
    """
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    output = next(iter(reversed(module.graph.nodes)))
    numbers: list[int] = []
    values: list[fx.Node] = []
    for node in list(module.graph.nodes):
        if _name(node.target) == "copy_":
            target, value = node.args[:2]
            numbers.append(inputs.index(target))
            values.append(value)
            node.replace_all_uses_with(target)
            module.graph.erase_node(node)
    if numbers:
        output.args = ((*output.args[0], *values),)
        module.recompile()
    return tuple(numbers)


def _mutating(function: Callable[..., Any], mutations: Sequence[int]) -> Callable[..., Any]:
    """Return a function that writes the last results of another into its arguments."""

    def call(*args: Any) -> Any:
        results = function(*args)
        for index, value in zip(mutations, results[-len(mutations) :], strict=True):
            args[index].copy_(value)
        return results[: -len(mutations)]

    return call


def _check_on_device(nodes: Sequence[fx.Node]) -> None:
    """Reject operators on the CPU outside of compiled graphs, since the device would not compute them. Those of float64
    run on the CPU for tensors of the device, too.

    Raises:
        NotImplementedError: If a result or an operand is on the CPU; names the operator.
    """
    for node in nodes:
        values = pytree.tree_leaves([operand.meta.get("val") for operand in (node, *node.all_input_nodes)])
        tensors = [x for x in values if isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.dim()]
        if any(x.dtype in HOST_DTYPES for x in tensors):
            continue
        if not all(statically_known_true(x.numel() == 0) for x in tensors):  # tokens of effects have no elements
            raise NotImplementedError(
                f"aten::{_name(node.target)} is not supported in graphs on the CPU: "
                "move the model and its inputs to 'dml', where it runs between compiled graphs"
            )


class CompiledAtenGraph:
    """A functional graph of ATen operators, traced and compiled for each kind of inputs.

    Args:
        module: The graph, of operators that ``is_supported`` accepts.
        weights: Indices of inputs that rarely change.
        mutations: Indices of the inputs into which the last results are written, instead of returning them.

    Attributes:
        nodes: Nodes of the graph.
        outputs: Nodes that the device computes; none if all results are views or numbers.
    """

    def __init__(self, module: fx.GraphModule, weights: Sequence[int] = (), mutations: Sequence[int] = ()):
        self.nodes = tuple(module.graph.nodes)
        self._inputs = tuple(node for node in self.nodes if node.op == "placeholder")
        returned = self.nodes[-1].args[0]
        values: Sequence[fx.Node] = ()
        self._result = returned
        if mutations:
            self._result, values = returned[: -len(mutations)], returned[-len(mutations) :]
        self._mutations = tuple(zip(mutations, values, strict=True))
        self._attributes = {node: _attribute(module, node) for node in self.nodes if node.op == "get_attr"}
        self._host, self._scalars = _host_scalars(self.nodes)
        needed = _leaves(returned)
        self._views = [node for node in self.nodes if node in _views_in(needed)]
        bases = (source for node in (*needed, *self._views) for source in _leaves(node.args) if node in self._views)
        self.outputs = tuple(
            node
            for node in dict.fromkeys((*needed, *bases))
            if not (node in self._views or node in self._inputs or node in self._host)
        )
        tensors = [node for node in self._inputs if isinstance(node.meta.get("val"), torch.Tensor)]
        device_types = {node: node.meta["val"].device.type for node in tensors}
        read = {*_leaves(self._result), *(leaf for node in self._views for leaf in _leaves(node.args))}
        self._written = {
            node
            for index, node in self._mutations
            if node in self.outputs and node not in read and device_types[self._inputs[index]] == _DEVICE
        }
        self._weights = [
            index for index in weights if device_types.get(self._inputs[index]) == _DEVICE and index not in mutations
        ]
        places = [tensors.index(self._inputs[index]) for index in self._weights]
        self._function = CompiledFunction(self._compute, None, CACHED, places)
        self._checks = [check for node in self.nodes for check in _index_checks(node)]
        self._layouts = {node: _layout(node) for node in self.outputs}
        self._others = [index for index in range(len(self._inputs)) if index not in self._weights]
        self._states: list[tuple[Memory, int, int]] = []
        self._known = CallArguments(next(function_ids), (), {})

    def __call__(self, *args: Any) -> Any:
        """Return the graph's results for torch tensors and integers.

        Raises:
            IndexOutOfRange: If the host knows that an index is out of range.
        """
        environment: dict[fx.Node, Any] = dict(zip(self._inputs, args, strict=True))
        for check in self._checks:
            check(environment)
        written: dict[fx.Node, Tensor] = {}
        for node in self._host:
            environment[node] = _evaluated(node, environment)
        if self.outputs:
            self._follow_weights(args)
            added = (*self._attributes.values(), *(environment[node] for node in self._scalars))
            results, index = self._run(args, added)
            for node, result in zip(self.outputs, results, strict=True):
                if node in self._written:
                    written[node] = unowned(result)
                else:
                    environment[node] = self._returned(node, result, index)
        for node in self._views:  # results that share memory with inputs or with each other
            environment[node] = _evaluated(node, environment)
        values = _mapped(self._result, environment)
        for i, node in self._mutations:
            if node in written:
                write(args[i], written[node])
            else:
                args[i].copy_(environment[node])
        return values

    def _run(self, args: Sequence[Any], added: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Return the results for inputs, constants and scalars, and the index of the device; repeat an earlier call if
        possible."""
        others = [args[index] for index in self._others]
        arguments = self._known.followed_by((*others, *added))
        index = adapters.current_index() if arguments.index is None else arguments.index
        return repeated(arguments, "torch.compile", lambda: (self._called((*args, *added), index), index))

    def _called(self, values: Sequence[Any], index: int) -> tuple[Any, ...]:
        operands = [_operand(value, index) for value in values]
        with default_of_block(adapters.device_of(index)):  # there may be no tensor among the operands
            results = self._function(index, *operands)
        return tuple([_owned(result) if isinstance(result, Tensor) else result for result in results])

    def _returned(self, node: fx.Node, result: Any, index: int) -> Any:
        """Return a result as a torch tensor with the strides and on the device that PyTorch expects."""
        if not isinstance(result, Tensor):
            return result
        order, is_on_host = self._layouts[node]
        if _is_complex(node):
            x = torch_of(ComplexPairs.of(result), index)
            return x.cpu() if is_on_host else x
        if order is None:
            x = torch_of(result, index)
        else:
            inverse = [order.index(axis) for axis in range(len(order))]
            x = torch_of(_owned(result.transpose(order)), index).permute(inverse)
        return x.cpu() if is_on_host else x

    def _follow_weights(self, args: Sequence[Any]) -> None:
        """Drop the compiled graph if a weight was replaced, moved or written. Dynamo creates another graph for other
        dtypes, shapes and strides."""
        weights = [args[i] for i in self._weights]
        states = [(memory, memory.writes, x.storage_offset()) for x in weights for memory in (memory_of(x),)]
        if states != self._states:
            self._function.cache_clear()
            self._states, self._known = states, CallArguments(next(function_ids), weights, {})

    def _compute(self, index: int, *operands: Any) -> tuple[Any, ...]:
        """Compute the results that are not views of inputs, on tensors of a device or of a trace."""
        values = dict(zip((*self._inputs, *self._attributes, *self._scalars), operands, strict=True))
        for node, value in values.items():
            if _is_complex(node):
                values[node] = Complex.of_pairs(value)
        for node in self.nodes:
            if node.op == "call_function" and not (node in self._host and _is_host_scalar(node)):
                values[node] = _call(node, values, index)
        results = [values[node] for node in self.outputs]
        return tuple([result.pairs() if isinstance(result, Complex) else result for result in results])


class _IndexCheck:
    """A check of indices that are an input of a graph, or a view or a copy of one.

    Args:
        node: Operator that takes the indices.
        check: The check; its indices are a node.
        moves: Nodes that compute the indices from the input, in order.
        source: The input.
    """

    def __init__(self, node: fx.Node, check: indices.Check, moves: Sequence[fx.Node], source: fx.Node):
        self._name, self._check, self._moves, self._source = _name(node.target), check, moves, source
        trace = str(node.meta.get("stack_trace") or "").strip()
        self._where = f", in\n{trace}" if trace else ""

    def __call__(self, environment: Mapping[fx.Node, Any]) -> None:
        """Check the indices in the inputs of a call, if the host knows them.

        Raises:
            IndexOutOfRange: If one is out of range.
        """
        x = environment[self._source]
        known = indices.known_indices(x)
        if known is not None and known.are_within(*self._check.range):
            return
        elements = indices.elements_of(x) if x.device.type == _DEVICE else x.detach().numpy()
        if elements is None:
            return
        values = {**environment, self._source: torch.from_numpy(elements.copy())}
        for node in self._moves:
            values[node] = _evaluated(node, values)
        self._check.verify(self._name, values[self._check.indices].numpy(), self._where)


def _index_checks(node: fx.Node) -> list[_IndexCheck]:
    """Return the checks of the indices of a node that are known before a call."""
    indexed = indices.INDEXED.get(_name(node.target)) if isinstance(node.target, OpOverload) else None
    if indexed is None:
        return []
    values = {operand: operand.meta.get("val") for operand in node.all_input_nodes}
    nodes = {id(value): operand for operand, value in values.items()}
    checks: list[_IndexCheck] = []
    for check in indexed.checks(_mapped(node.args, values)):
        source, moves = nodes.get(id(check.indices)), list[fx.Node]()
        if source is None or type(check.size) is not int:
            continue
        named = check._replace(indices=source)
        while source.op == "call_function" and len(source.all_input_nodes) == 1 and _moves_integers(source):
            moves.insert(0, source)
            (source,) = source.all_input_nodes
        if source.op == "placeholder":
            checks.append(_IndexCheck(node, named, moves, source))
    return checks


def _moves_integers(node: fx.Node) -> bool:
    """Return whether a node is a view of integers, or copies them."""
    values = [operand.meta.get("val") for operand in (node, *node.all_input_nodes)]
    is_integer = all(isinstance(x, torch.Tensor) and x.dtype in {torch.int32, torch.int64} for x in values)
    return (
        is_integer and (getattr(node.target, "is_view", False) or node.target in _MOVES) and "device" not in node.kwargs
    )


class _CompiledPart(torch.nn.Module):
    """A compiled graph in place of a module of an ``fx.GraphModule``."""

    def __init__(self, graph: CompiledAtenGraph):
        super().__init__()
        self._graph = graph

    def forward(self, *args: Any) -> Any:
        return self._graph(*args)


class _Support(OperatorSupportBase):
    """Tells which nodes are part of compiled graphs.

    Attributes:
        is_mixed: Whether the graph has tensors of the device. The CPU then computes tensors of the CPU that depend on
            inputs, are random or of float64. If all tensors are on the CPU, the device computes them all.
    """

    def __init__(self, module: fx.GraphModule):
        self.is_mixed = any(x.device.type == _DEVICE for node in module.graph.nodes for x in _tensors(node))
        self._on_host: set[fx.Node] = set()
        for node in module.graph.nodes if self.is_mixed else ():
            if self._is_on_host(node):
                self._on_host.add(node)

    def _is_on_host(self, node: fx.Node) -> bool:
        tensors = _tensors(node)
        if not tensors or any(x.device.type == _DEVICE for x in tensors) or _is_host_scalar(node):
            return False
        if node.op != "call_function":
            return node.op == "placeholder"
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        is_computed = all(x.dtype in DATA_TYPES and x.dtype is not torch.float64 for x in tensors)
        return (
            is_random
            or not is_computed
            or any(
                source in self._on_host or any(x.device.type == _DEVICE for x in _tensors(source))
                for source in node.all_input_nodes
            )
        )

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node.op == "get_attr" or (
            node.op == "call_function" and node not in self._on_host and is_supported(node)
        )


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    """Return the tensors that a node returns."""
    return [x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]


# ---- operators ------------------------------------------------------------------------------------------------------


def is_supported(node: fx.Node) -> bool:
    """Return whether a node of a graph can be computed as part of a compiled graph."""
    target: Any = node.target
    if not isinstance(target, OpOverload):
        return not isinstance(target, HigherOrderOperator)  # getitem, and arithmetic with sizes
    entry = ENTRIES.get(_name(target))
    if entry is None and not (target.is_view or target in _SIZES or target in _MOVES or target in _FILLS):
        return False
    if node.kwargs.get("generator") is not None:
        return False
    if node.meta.get("unbacked_bindings") or (entry is not None and (entry.reads or _reads_mask(node))):
        return False
    values = [operand.meta.get("val") for operand in (node, *node.all_input_nodes)]
    dtypes = {x.dtype for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)}
    return dtypes <= DATA_TYPES.keys() | PARTS.keys() and _takes_dtypes(target, entry, dtypes)


def _takes_dtypes(target: Any, entry: Entry | None, dtypes: set[torch.dtype]) -> bool:
    """Return whether an operator is computed if float64 or complex numbers are among the dtypes."""
    if dtypes & HOST_DTYPES and (target in _FILLS if entry is None else entry.name not in MOVING):
        return False
    if not dtypes & PARTS.keys():
        return True
    if entry is None:
        return _name(target) != "view.dtype"
    return entry.name in COMPLEX or entry.name in _MAKES_COMPLEX


_MAKES_COMPLEX = frozenset({"_fft_r2c", "complex", "polar"})
"""Operators of the table that make complex numbers of real ones."""


def _reads_mask(node: fx.Node) -> bool:
    """Return whether a node indexes by a mask, whose elements determine the size of the result."""
    masks = [
        item
        for argument in node.args
        if isinstance(argument, list | tuple)
        for item in argument
        if isinstance(item, fx.Node) and getattr(item.meta.get("val"), "dtype", None) in {torch.bool, torch.uint8}
    ]
    is_joining = _name(node.target) in {"cat", "stack"}
    return bool(masks) and not is_joining


_SIZES: Mapping[Any, Callable[..., Any]] = {
    **dict.fromkeys(overloads("sym_size.int"), lambda x, dim: x.sizes[dim]),
    **dict.fromkeys(overloads("sym_numel"), lambda x: x.size),
}
"""Functions of operators that return sizes."""


def _sizes_like(x: Tensor, *_: Any) -> tuple[int, ...]:
    return x.sizes


def _sizes_given(sizes: Sequence[int], *_: Any) -> tuple[int, ...]:
    return tuple(sizes)


def _sizes_new(_: Tensor, sizes: Sequence[int], *__: Any) -> tuple[int, ...]:
    return tuple(sizes)


_FILLS: Mapping[Any, tuple[Callable[..., tuple[int, ...]], Callable[..., Any]]] = {
    overload(name): (sizes, value)
    for sizes, value, names in (
        (_sizes_like, lambda *_: 0, ("zeros_like", "empty_like")),
        (_sizes_like, lambda *_: 1, ("ones_like",)),
        (_sizes_like, lambda _, number: number, ("full_like",)),
        (_sizes_given, lambda *_: 0, ("zeros", "empty.memory_format")),
        (_sizes_given, lambda *_: 1, ("ones",)),
        (_sizes_given, lambda _, number: number, ("full",)),
        (_sizes_new, lambda *_: 0, ("new_zeros", "new_empty")),
        (_sizes_new, lambda *_: 1, ("new_ones",)),
        (_sizes_new, lambda *args: args[2], ("new_full",)),
        (lambda _: (), lambda number: number, ("scalar_tensor",)),
    )
    for name in installed(names)
}
"""Operators that fill a tensor: functions of their arguments that return its sizes, and the number."""

_COPIES = overloads("clone", "lift_fresh_copy", "_to_copy")
_MOVES = _COPIES | overloads("_unsafe_view")
"""Operators that copy: in a graph, whose tensors never change, they are views, or casts."""


def _name(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")


def _call(node: fx.Node, values: Mapping[fx.Node, Any], index: int) -> Any:
    """Compute one node."""
    target: Any = node.target
    args, keywords = _mapped(node.args, values), _mapped(node.kwargs, values)
    if not isinstance(target, OpOverload):
        return target(*args, **keywords)
    if target in _SIZES:
        return _SIZES[target](*args, **keywords)
    name = _name(target)
    if name not in ENTRIES and target in _FILLS:
        sizes_of, value_of = _FILLS[target]
        data_type, is_boolean = data_type_of(node.meta["val"].dtype)
        dtype = "bool" if is_boolean else data_type
        sizes, value, device = sizes_of(*args), value_of(*args), adapters.device_of(index)
        if node.meta["val"].dtype in PARTS:
            return Complex(*(ops.full(sizes, part, dtype=dtype, device=device) for part in (value.real, value.imag)))
        return ops.full(sizes, value, dtype=dtype, device=device)
    if name not in ENTRIES:
        return _view(node, args, keywords)
    caller = CALLERS[name]
    keywords = {key: value for key, value in keywords.items() if key not in DROPPED}
    if caller.takes_device:
        keywords["device"] = adapters.device_of(index)
    metas = {operand: operand.meta.get("val") for operand in node.all_input_nodes}
    return caller.apply(list(args), keywords, _mapped(node.args, metas), _mapped(node.kwargs, metas))


def _view(node: fx.Node, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Compute a view or a copy, which is one in a graph; both parts of complex numbers."""
    target: Any = node.target
    x, *rest = args
    if target in _COPIES:
        return cast(x, node.meta["val"].dtype)
    if target in _COMPLEX_VIEWS:
        return _COMPLEX_VIEWS[target](x)
    if isinstance(x, Complex):
        real, imag = (_strided_view(target, part, rest, keywords) for part in (x.real, x.imag))
        return list(map(Complex, real, imag)) if isinstance(real, list) else Complex(real, imag)
    return _strided_view(target, x, rest, keywords)


def _strided_view(target: Any, x: Tensor, rest: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Compute a view; PyTorch's meta kernel gives its strides and offset if sizes are plain numbers."""
    if _name(target) == "view.dtype":
        return reinterpreted(x, *rest, **keywords)
    if has_symbols(x, rest) and _name(target) in VIEWS:
        return VIEWS[_name(target)](x, *rest, **keywords)
    try:
        views = target(_meta(x), *rest, **keywords)
    except RuntimeError:  # a reshape that PyTorch's strides allow but those of this tensor do not
        x = x.copy()
        views = target(_meta(x), *rest, **keywords)
    if isinstance(views, tuple | list):
        return [x._view(tuple(view.shape), view.stride(), view.storage_offset()) for view in views]
    return x._view(tuple(views.shape), views.stride(), views.storage_offset())


_COMPLEX_VIEWS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.view_as_real.default: Complex.pairs,
    torch.ops.aten.view_as_complex.default: Complex.of_pairs,
    torch.ops.aten._conj.default: lambda x: Complex(x.real, -x.imag),
    torch.ops.aten._neg_view.default: lambda x: -x,
}
"""Functions of views that no strides describe."""


def _meta(x: Tensor) -> torch.Tensor:
    return torch.empty_strided(x.sizes, x.strides, dtype=dtype_of(x), device="meta")


# ---- inputs and outputs ---------------------------------------------------------------------------------------------


def _attribute(module: fx.GraphModule, node: fx.Node) -> Any:
    """Return the constant that a node reads."""
    value = operator.attrgetter(str(node.target))(module)
    with unset_fake_temporarily():  # constants have elements
        return value.detach() if isinstance(value, torch.Tensor) else value


def _is_host_scalar(node: fx.Node) -> bool:
    """Return whether a value is a float64 scalar of the CPU, which PyTorch computes there for tensors of any device."""
    x = node.meta.get("val")
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.device.type == "cpu" and not x.dim()


def _host_scalars(nodes: Sequence[fx.Node]) -> tuple[tuple[fx.Node, ...], tuple[fx.Node, ...]]:
    """Return the nodes that compute float64 scalars of the CPU from inputs, and the scalars that other nodes read.

    Dynamo turns a model's floats into these if they may change, as with ``dynamic=True``.
    """
    host: dict[fx.Node, None] = {}
    for node in nodes:
        is_number = not isinstance(node.meta.get("val"), torch.Tensor | tuple | list)
        reads_inputs = all(operand in host or operand.op == "placeholder" for operand in node.all_input_nodes)
        if node.op == "call_function" and reads_inputs and (is_number or _is_host_scalar(node)):
            host[node] = None
    scalars = [node for node in host if _is_host_scalar(node)]
    read = tuple(node for node in scalars if any(user not in host and user.op != "output" for user in node.users))
    return (tuple(host), read) if scalars else ((), ())


def _evaluated(node: fx.Node, environment: Mapping[fx.Node, Any]) -> Any:
    """Return the result of PyTorch's own operator."""
    target: Any = node.target
    return target(*_mapped(node.args, environment), **_mapped(node.kwargs, environment))


def _leaves(structure: Any) -> list[fx.Node]:
    """Return the nodes in the arguments of a node."""
    leaves: list[fx.Node] = []
    fx.map_arg(structure, leaves.append)
    return leaves


def _views_in(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the views among some nodes, and the views that they are views of."""
    views: set[fx.Node] = set()
    nodes = list(nodes)
    while nodes:
        node = nodes.pop()
        if _is_view(node) and node not in views:
            views.add(node)
            nodes += node.all_input_nodes
    return views


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])  # type: ignore[arg-type]
    return node.op == "call_function" and getattr(node.target, "is_view", False)


def _mapped(structure: Any, values: Mapping[fx.Node, Any]) -> Any:
    """Return the arguments of a node with values in place of nodes."""
    return fx.map_arg(structure, values.__getitem__)


def _is_complex(node: fx.Node) -> bool:
    """Return whether a node is a tensor of complex numbers."""
    return getattr(node.meta.get("val"), "dtype", None) in PARTS


def _operand(value: Any, index: int) -> Any:
    """Convert an input for the traced function."""
    if type(value) is int:
        return CallSize(value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.float64 and value.device.type == "cpu" and not value.dim():
        value = value.float()
    operand = operand_of(value if value.device.type == _DEVICE else value.to(adapters.torch_device(index)))
    return operand.pairs() if isinstance(operand, Complex) else operand


def _layout(node: fx.Node) -> tuple[list[int] | None, bool]:
    """Return the order of a result's axes in memory, None if it is packed, and whether it is on the CPU."""
    expected: Any = node.meta.get("val")
    if not isinstance(expected, torch.Tensor):
        return None, False
    sizes, strides = ([optimization_hint(size) for size in each] for each in (expected.shape, expected.stride()))
    order = sorted(range(expected.dim()), key=lambda axis: -strides[axis])
    long = [axis for axis in range(expected.dim()) if sizes[axis] != 1]
    is_packed = long == [axis for axis in order if sizes[axis] != 1]
    return None if is_packed else order, expected.device.type == "cpu"


def _owned(result: Tensor) -> Tensor:
    """Return a result of a compiled function, not marked as a view if it covers its memory."""
    if result.offset or result.signature[2] is not None:
        return result
    return Tensor._packed(result.buffer, result.data_type, result.sizes, result.is_boolean)
