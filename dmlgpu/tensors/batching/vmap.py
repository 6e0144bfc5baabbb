"""``vmap``: a function of one element, called on a batch.

The function runs once, on stand-ins that have the shape of one element. Their memory is a `_BatchTrace`, which takes
the calls of operators and makes each with the axis of the batch. Views of a stand-in are views of the whole batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc, packed_strides
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors import layout
from dmlgpu.tensors.array_like import parts_of
from dmlgpu.tensors.batching.rules import FOLDED, rule_of
from dmlgpu.tensors.calls import passed
from dmlgpu.tensors.execution import BOOLEAN_TYPES, OperatorCall, call_op
from dmlgpu.tensors.memory import NodeMemory, Origin, Recorder, recorded_by, recorder, tapes
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.trace import as_tensor, mapped, reject_reading
from dmlgpu.tensors.types import is_number


class _BatchTrace(Recorder):
    """The elements of one call of a vectorized function.

    Args:
        name: The function's, for messages.
        device: Device to run on.
        size: Number of elements.

    Attributes:
        rules: NumPy's, as of traced functions.
    """

    is_traced = True
    rules = "numpy"

    def __init__(self, name: str, device: Device, size: int):
        self.name, self.device, self.size = name, device, size
        self._outer, self._tapes = recorder(), tapes.get()
        self._wholes: dict[Origin, Tensor] = {}

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Run or record operators as the caller of the vectorized function would."""
        token = tapes.set(self._tapes)
        try:
            with recorded_by(self._outer):
                yield
        finally:
            tapes.reset(token)

    def stand_in(self, batched: Tensor) -> Tensor:
        """Return the stand-in for one element of a tensor, whose first axis is that of the batch."""
        sizes = batched.sizes[1:]
        if batched.strides[1:] != packed_strides(sizes):
            batched = batched.copy()
        origin = Origin("operator", len(self._wholes))
        self._wholes[origin] = batched
        has_elements = 0 not in sizes
        memory = NodeMemory(self, origin, TensorDesc(batched.data_type, (sizes or (1,)) if has_elements else (1,)))
        return Tensor._packed(memory, batched.data_type, sizes, batched.is_boolean)

    def holds(self, value: Any) -> bool:
        """Return whether a tensor differs between elements of the batch."""
        return isinstance(value, TensorBase) and value.graph is self

    def whole(self, tensor: Any, rank: int | None = None) -> Any:
        """Return a view of all elements by the stand-in for one, or a tensor or number that they share, repeated."""
        if not isinstance(tensor, TensorBase):
            return tensor
        sizes, strides = tensor.sizes, tensor.strides
        missing = 0 if rank is None else rank - len(sizes)
        sizes, strides = (1,) * missing + sizes, (0,) * missing + strides
        if not self.holds(tensor):
            return tensor._view((self.size, *sizes), (0, *strides))
        memory = self._wholes[tensor.origin]
        view = memory._view((self.size, *sizes), (memory.strides[0], *strides), tensor.offset)
        return view._same(tensor.data_type, tensor.is_boolean)

    # ---- operators --------------------------------------------------------------------------------------------------

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
    ) -> tuple[Any, ...]:
        """Call an operator on the batch, or once if the elements share its inputs."""
        requested = dict.fromkeys(absent, False)
        options: dict[str, Any] = {"types": types, "requested": requested, "name": name, "caller": label}
        if not any(self.holds(part) for field in kind.input_fields for part in parts_of(values.get(field))):
            with self.outside():
                return call_op(kind, values, sizes=sizes, device=device, **options)
        call = _ElementCall(self, label, kind, values)
        call.desc = call.described(types, sizes, absent)
        if not self.size:
            return tuple(
                [None if part is None else self._empty_output(part, size, boolean) for part, size in call.outputs()]
            )
        with self.outside():
            rule = rule_of(kind.operator)
            changed = None if rule is None else rule(call)
            if changed is None:
                outputs = self._one_by_one(kind, values, sizes=sizes, **options)
            else:
                is_folded = kind.operator in FOLDED
                wide = {field: _widened(size, self.size, is_folded) for field, size in sizes.items()}
                outputs = call_op(kind, {**values, **changed}, sizes=wide, **options)
            results = [
                None if output is None else output.reshape(self.size, *size)
                for output, (_, size) in zip(outputs, call.outputs(), strict=True)
            ]
        return tuple([None if result is None else self.stand_in(result) for result in results])

    def _empty_output(self, desc: TensorDesc, sizes: Sequence[int], boolean: bool) -> Tensor:
        """Return the stand-in for an output of an empty batch."""
        dtype = bool if boolean and desc.data_type in BOOLEAN_TYPES else desc.data_type
        return self.stand_in(Tensor(np.empty((0, *sizes), np.uint8), dtype, device=self.device))

    def _one_by_one(self, kind: type[OperatorDesc], values: Mapping[str, Any], **options: Any) -> tuple[Any, ...]:
        """Call an operator for each element, and stack its outputs."""

        def element(value: Any, index: int) -> Any:
            if isinstance(value, list | tuple):
                return [element(part, index) for part in value]
            if not self.holds(value):
                return value
            batched = self.whole(value)
            return batched._view(batched.sizes[1:], batched.strides[1:], index * batched.strides[0])

        inputs = [field for field in kind.input_fields if field in values]
        calls = [
            call_op(kind, {**values, **{field: element(values[field], index) for field in inputs}}, **options)
            for index in range(self.size)
        ]
        return tuple(
            None if outputs[0] is None else _stacked([output.reshape(-1) for output in outputs])
            for outputs in zip(*calls, strict=True)
        )

    def _call_input(self, source: Any, count: int, data_type: Any, sizes: Any, device: Any) -> Any:
        raise NotSupported(
            f"vmap: `{self.name}` must not draw random numbers, of which each element would get the same; pass them as "
            "an argument"
        )

    def _check_at_calls(self, tensor: Any, low: int, high: int, check: Callable[[Any, int, int], None]) -> None:
        batched = self.whole(tensor)
        if batched.graph is not None:
            batched.graph._check_at_calls(batched, low, high, check)

    def _number(self, value: int | float, data_type: Any) -> Any:
        assert self._outer is not None  # numbers that depend on sizes are those of a trace
        return self._outer._number(value, data_type)

    def _reject_reading(self) -> NoReturn:
        reject_reading(self, self.name)


class _ElementCall(OperatorCall):
    """A call on one element of a batch, with the interface of `rules.BatchedCall`."""

    desc: Any

    def __init__(self, batch: _BatchTrace, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any]):
        self._batch, self.size = batch, batch.size
        super().__init__(caller, kind, values)
        self.inputs = {field: values[field] for field in kind.input_fields if values.get(field) is not None}

    def is_batched(self, field: str) -> bool:
        return any(self._batch.holds(part) for part in parts_of(self.inputs[field]))

    def whole(self, field: str, rank: int | None = None) -> Any:
        value = self.inputs[field]

        def whole(part: Any) -> Any:
            # A scalar has one axis to operators that have axes.
            return self._batch.whole(part, max(1, part.ndim) if rank is None else rank)

        return [whole(part) for part in value] if isinstance(value, list | tuple) else whole(value)

    def outputs(self) -> list[tuple[Any, Any]]:
        """Return the output descriptions for one element (None for absent outputs) and their sizes."""
        described = [part for field in self._kind.output_fields for part in parts_of(getattr(self.desc, field))]
        return [
            (part, () if part is None or (self.is_scalar and part.sizes == (1,)) else part.sizes) for part in described
        ]

    def _tensor_of(self, array: Any) -> TensorBase:
        return Tensor(array, device=self._batch.device)

    def _bind_number(self, value: int | float, data_type: Any) -> Any:
        return data_type, (1,), None

    def _bind(self, field: str, name: str, tensor: TensorBase) -> Any:
        if tensor.ndim == MAX_DIMENSIONS and self._batch.holds(tensor):
            raise InvalidArgument(
                f"{self._caller}: {name} must have at most {MAX_DIMENSIONS - 1} axes in a function of vmap, which adds "
                f"one, got {tensor.ndim}"
            )
        return tensor.signature


def _widened(sizes: Any, count: int, is_folded: bool) -> Any:
    """Return the sizes of an output, or of the outputs of SPLIT, for all elements."""
    if sizes is None:
        return None
    if sizes and isinstance(sizes[0], list | tuple):
        return tuple([_widened(size, count, is_folded) for size in sizes])
    return (count * sizes[0], *sizes[1:]) if is_folded else (count, *sizes)


def _stacked(rows: Sequence[Any]) -> Any:
    if len(rows) == 1:
        return rows[0]
    return call_op(descs.Join, {"input_tensors": [row.expand_dims(0) for row in rows], "axis": 0})[0]


# ---- the function ----------------------------------------------------------------------------------------------------


def vmap(
    function: Callable[..., Any],
    in_axes: int | Sequence[int | None] | None = 0,
    out_axes: int = 0,
) -> Callable[..., Any]:
    """Return a function that calls a function of one element on a batch of them, all at once.

        distances = dmlgpu.vmap(lambda a, b: ops.sqrt(ops.sum((a - b) ** 2)), in_axes=(0, None))
        distances(points, center)  # of each row of `points`

    The function runs once, on tensors with the shape of one element. Each operator that it calls gets an axis for the
    batch; the few that cannot take one are called for each element. Use it in `compile` and `grad`, around them, and
    in itself. Tensors from outside are shared by all elements.

    Args:
        function: Function of tensors, lists, tuples and dicts of tensors, and other values, which are passed on.
        in_axes: Axis of the batch in the tensors of each argument, or one for each positional argument; None shares an
            argument. Negative axes count from the end. Defaults to 0. Keyword arguments have the batch first.
        out_axes: Axis of the batch in the results; defaults to 0.

    Returns:
        Function that returns the results of `function`, with the axis of the batch in each tensor. Results that do not
        depend on the batch are repeated. If all arguments are arrays, the results are arrays. A call raises
        the exceptions of `function`, InvalidArgument (no argument has the batch, arguments differ in its size, or a
        tensor lacks the axis), InvalidState (elements are read) and NotSupported (random numbers are drawn).

    Raises:
        InvalidArgument: If `function` is not callable, or axes are not integers.

    Examples:
        >>> dmlgpu.vmap(lambda row: row / ops.sum(row))(Tensor([[1.0, 1.0], [1.0, 3.0]])).tolist()
        [[0.5, 0.5], [0.25, 0.75]]

    See also:
        `dmlgpu.compile`, `dmlgpu.grad`.
    """
    if not callable(function):
        raise InvalidArgument(f"vmap: function must be callable, got {shown(function, typed=True)}")
    has_several = isinstance(in_axes, list | tuple)
    axes = [_checked_axis("in_axes", axis) for axis in (in_axes if has_several else [in_axes])]  # type: ignore[union-attr]
    out_axis = coercion.argument("vmap", "out_axes", coercion.integer, out_axes)
    name = str(getattr(function, "__name__", type(function).__name__))

    @functools.wraps(function)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        if has_several and len(axes) != len(args):
            raise InvalidArgument(f"vmap: in_axes must have an entry per argument, {len(args)}, got {len(axes)}")
        places = {f"argument {index}": (value, axes[index if has_several else 0]) for index, value in enumerate(args)}
        places |= {key: (value, 0) for key, value in kwargs.items()}
        tensors = _tensors(name, places)
        batch = _BatchTrace(name, *_device_and_size(name, tensors))
        stand_ins = iter([tensor if axis is None else batch.stand_in(tensor) for tensor, axis in tensors.values()])

        copies: list[tuple[Any, Any]] = []

        def stand_in(value: Any) -> Any:
            if not isinstance(value, TensorBase | np.ndarray):
                return value
            element = next(stand_ins)
            if isinstance(value, np.ndarray):
                copies.append((element, value))
            return element

        changed = {place: mapped(value, stand_in) for place, (value, _) in places.items()}
        token = tapes.set(())
        try:
            with recorded_by(batch), passed(copies):
                result = function(*list(changed.values())[: len(args)], **{key: changed[key] for key in kwargs})
        finally:
            tapes.reset(token)
        is_host = not any(isinstance(leaf, TensorBase) for leaf in _leaves(places)) and recorder() is None
        return mapped(result, lambda value: _result(batch, value, out_axis, is_host))

    return vectorized


def _checked_axis(name: str, axis: Any) -> int | None:
    return None if axis is None else coercion.argument("vmap", name, coercion.integer, axis)


def _leaves(places: Mapping[str, tuple[Any, int | None]]) -> list[Any]:
    leaves: list[Any] = []
    for value, _ in places.values():
        mapped(value, leaves.append)
    return leaves


def _tensors(name: str, places: Mapping[str, tuple[Any, int | None]]) -> dict[tuple[str, int], tuple[Any, int | None]]:
    """Return arguments with the batch axis of their tensors and arrays moved to the front."""
    device = next((leaf.device for leaf in _leaves(places) if isinstance(leaf, TensorBase)), None)
    trace: Any = recorder()
    if device is None:
        device = as_device("vmap", None) if trace is None else trace.device
    tensors: dict[tuple[str, int], tuple[Any, int | None]] = {}
    for place, (value, axis) in places.items():

        def add(leaf: Any, place: str = place, axis: int | None = axis) -> None:
            if not isinstance(leaf, TensorBase | np.ndarray):
                return
            tensor = as_tensor("vmap", f"{place} of `{name}`", leaf, device)
            if axis is not None:
                if not tensor.sizes:
                    raise InvalidArgument(
                        f"vmap: {place} of `{name}` must have an axis for the batch, got a scalar; None in in_axes "
                        "shares it"
                    )
                first = layout.checked_axis("vmap", f"in_axes of {place}", axis, tensor.ndim)
                tensor = tensor.transpose(first, *(other for other in range(tensor.ndim) if other != first))
            tensors[place, len(tensors)] = tensor, axis

        mapped(value, add)
    return tensors


def _device_and_size(name: str, tensors: Mapping[tuple[str, int], tuple[Any, int | None]]) -> tuple[Device, int]:
    """Return the device of arguments, and the size that the axis of the batch has in all of them."""
    sizes = {place: tensor.sizes[0] for (place, _), (tensor, axis) in tensors.items() if axis is not None}
    if not sizes:
        raise InvalidArgument(f"vmap: an argument of `{name}` must have the batch, but no tensor has an axis for it")
    if len(set(sizes.values())) > 1:
        listing = " and ".join(f"{size} in {place}" for place, size in sizes.items())
        raise InvalidArgument(f"vmap: arguments of `{name}` must have equal sizes along the batch, got {listing}")
    return next(tensor.device for tensor, _ in tensors.values()), next(iter(sizes.values()))


def _result(batch: _BatchTrace, value: Any, out_axis: int, is_host: bool) -> Any:
    """Return a result of the function for all elements."""
    if is_number(value):
        value = Tensor(value, device=batch.device)
    if not isinstance(value, Tensor):
        return value
    batched = batch.whole(value)
    axis = layout.checked_axis("vmap", "out_axes", out_axis, batched.ndim)
    order = [*range(1, axis + 1), 0, *range(axis + 1, batched.ndim)]
    result = batched.transpose(*order)
    return result.numpy() if is_host else result
