"""NumPy's functions and ufuncs of tensors: computed on the device, answered from shapes and dtypes, or rejected.

A function is computed by the function of ``dmlgpu.ops``, or else ``dmlgpu.array``, of the same name, which is looked up
at each call. Its arguments are bound by NumPy's signature. Functions whose purpose is to copy elements to the host do
so, such as ``np.save``. Nothing else runs on the host.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from dmlgpu.common.errors import NotSupported
from dmlgpu.tensors.numpy_composed import COMPOSED, as_tensors
from dmlgpu.tensors.strided import TensorBase


class UnsupportedByDevice(NotSupported, TypeError):
    """A function of NumPy is not computed on devices, or not with these arguments: a TypeError in NumPy's protocols."""


OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "divmod": ("__divmod__", "__rdivmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}
"""Python's operators by NumPy's names of their functions, and those of swapped operands."""

_NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "expit": "sigmoid",
    "fabs": "abs",
    "fix": "trunc",
    "invert": "bitwise_not",
    "linalg.matmul": "matmul",
    "linalg.matrix_transpose": "matrix_transpose",
    "linalg.norm": "norm",
    "linalg.tensordot": "tensordot",
    "linalg.vecdot": "vecdot",
    "permute_dims": "transpose",
    "rint": "round",
}
"""Functions of ``dmlgpu.ops`` and ``dmlgpu.array`` by the names of NumPy, and of SciPy's ufuncs, that they lack."""

_REDUCTIONS = {
    "add": "sum",
    "logical_and": "all",
    "logical_or": "any",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
}
"""Functions that compute the method ``reduce`` of a ufunc."""

_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}
"""Functions that compute the method ``accumulate`` of a ufunc."""

_OTHER_MEANING = frozenset({"imag", "linspace", "resize"})
"""Names that NumPy gives to other functions than ``dmlgpu.ops`` and ``dmlgpu.array``."""

_PARAMETERS = {"a_max": "max", "a_min": "min", "ddof": "correction", "constant_values": "value"}
"""Parameters of ``dmlgpu.ops`` by NumPy's names that differ, other than those of operands."""

_WITHOUT_EFFECT = frozenset({"kind", "stable", "optimize", "overwrite_input"})
"""Parameters that change how NumPy computes, but not the result."""

_CONVERSIONS = frozenset(
    {
        *("allclose", "array_equal", "array_equiv", "array2string", "array_repr", "array_str"),
        *("save", "savetxt", "savez", "savez_compressed"),
    }
)
"""Functions whose purpose is to bring elements to the host: as a Python bool, as text, or in a file."""

_OF_LAYOUT = frozenset(
    {
        *("can_cast", "common_type", "iscomplexobj", "isrealobj", "min_scalar_type", "result_type"),
        *("diag_indices_from", "einsum_path", "ndim", "shape", "size", "tril_indices_from", "triu_indices_from"),
    }
)
"""Functions of shapes and dtypes, which read no elements."""


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Compute a ufunc of which an input is a tensor, for ``__array_ufunc__``.

    Raises:
        UnsupportedByDevice: If devices do not compute it, or it takes an option.
    """
    name = ufunc.__name__
    if method != "__call__":
        return _apply_method(ufunc, method, inputs, options)
    if name in OPERATORS and not options:
        inputs = [x[()] if isinstance(x, np.ndarray) else x for x in inputs]  # numbers of arrays of rank 0
        forward, reverse = OPERATORS[name]
        if isinstance(inputs[0], TensorBase):
            method_name, operand, other = forward, *inputs
        else:
            method_name, other, operand = reverse, *inputs
        if hasattr(operand, method_name):
            return getattr(operand, method_name)(other)
    function = _target("", name)
    if function is None or options:
        _reject(name, function, *options)
    return function(*_operands(function, inputs))


def _apply_method(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Compute a method of a ufunc, such as ``np.add.reduce``, along axis 0 by default."""
    name = f"{ufunc.__name__}.{method}"
    if method == "outer":
        if options:
            _reject(name, None, *options)
        a, b = as_tensors(*inputs)
        return ufunc(a[(..., *[None] * b.ndim)], b)
    functions = {"reduce": _REDUCTIONS, "accumulate": _ACCUMULATIONS}.get(method, {})
    function = _target("", functions[ufunc.__name__]) if ufunc.__name__ in functions else None
    if function is None:
        _reject(name)
    unsupported = options.keys() - _signature(function).parameters.keys()
    if unsupported:
        _reject(name, function, *sorted(unsupported))
    return function(*inputs, **{"axis": 0, **options})


def apply_function(function: Any, types: Sequence[type], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Compute a function of NumPy of which an argument is a tensor, for ``__array_function__``.

    Raises:
        UnsupportedByDevice: If devices do not compute it, or not with these arguments.
    """
    if not all(issubclass(kind, TensorBase | np.ndarray) for kind in types):
        return NotImplemented  # such as Dask's arrays, which hold tensors
    name, package = function.__name__, function.__module__.removeprefix("numpy").removeprefix(".")
    if name in _CONVERSIONS or (name == "copyto" and not isinstance(args[0], TensorBase)):
        return function(*_mapped(_on_host, args), **{key: _mapped(_on_host, value) for key, value in options.items()})
    if name in _OF_MEMORY:
        return _OF_MEMORY[name](*args, **options)
    if name in _OF_LAYOUT:
        return function(*_mapped(_layout, args), **{key: _mapped(_layout, value) for key, value in options.items()})
    qualified = f"{package}.{name}" if package else name
    target = _target(package, name)
    if target is None or package == "fft":  # whose results are complex
        return _reject(qualified, target)
    positional, keywords = _arguments(qualified, function, target, args, options)
    return target(*_operands(target, positional), **keywords)


def _target(package: str, name: str) -> Any:
    """Return the function that computes NumPy's of this name and package, such as ``linalg``; None if none does."""
    qualified = f"{package}.{name}" if package else name
    if qualified in COMPOSED:
        return COMPOSED[qualified]
    ops, array = importlib.import_module("dmlgpu.ops"), importlib.import_module("dmlgpu.array")
    if package:
        function = getattr(getattr(ops, package, None), name, None)
        if function is not None or qualified not in _NAMES:
            return function
    name = _NAMES.get(qualified, name)
    if name in _OTHER_MEANING:
        return None
    return next((getattr(module, name) for module in (ops, array) if name in module.__all__), None)


def _arguments(
    name: str, function: Any, target: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call of NumPy's function as those of the function that computes it.

    Operands are required by NumPy, and go by position. Others go by name, with NumPy's defaults, except None, for which
    the target has its own. Without such a parameter the argument must be NumPy's default.
    """
    parameters = _signature(target).parameters
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter, value in _bound(function, args, options):
        key = _PARAMETERS.get(parameter.name, parameter.name)
        is_default_none = value is None and parameter.default is None
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.default is parameter.empty or (
            parameter.kind is parameter.POSITIONAL_ONLY and value is not None
        ):
            positional.append(value)
        elif value is np._NoValue or parameter.name in _WITHOUT_EFFECT or (is_default_none and key != "axis"):
            continue
        elif key in parameters:
            keywords[key] = value
        elif not _is_default(value, parameter.default):
            _reject(name, target, parameter.name)
    return positional, keywords


def _bound(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> list[tuple[inspect.Parameter, Any]]:
    """Return the parameters of NumPy's function with their arguments or defaults."""
    try:
        signature = _signature(function)
    except ValueError:  # functions written in C have none before NumPy 2.4: the arguments as they were passed
        kinds = inspect.Parameter
        return [(kinds("args", kinds.VAR_POSITIONAL), args)] + [
            (kinds(name, kinds.KEYWORD_ONLY, default=None), value) for name, value in options.items()
        ]
    bound = signature.bind(*args, **options)
    bound.apply_defaults()
    pairs = []
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            pairs += [
                (parameter.replace(name=key, kind=parameter.KEYWORD_ONLY, default=None), option)
                for key, option in value.items()
            ]
        else:
            pairs.append((parameter, value))
    return pairs


@functools.cache  # bounded by NumPy's functions and ours
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str | int | float) and value == default)


def _reject(name: str, target: Any = None, *parameters: str) -> NoReturn:
    """Raise the error for a function that devices do not compute, or not with these parameters."""
    problem = f"takes no {' and no '.join(map(repr, parameters))}" if parameters else "is not computed on the device"
    is_public = target is not None and not target.__module__.startswith("dmlgpu.tensors")
    cure = f"use {_public_name(target)}, or pass x.numpy()" if is_public else "pass x.numpy()"
    qualified = f"numpy.{name}" if hasattr(np, name.partition(".")[0]) else name  # SciPy's ufuncs
    raise UnsupportedByDevice(f"{qualified} of a Tensor {problem}; {cure}, which copies the elements to the host")


def _public_name(function: Any) -> str:
    """Return the name by which users call a function of ``dmlgpu.ops`` or ``dmlgpu.array``."""
    package, _, rest = function.__module__.removeprefix("dmlgpu.").partition(".")
    below = f".{rest.partition('.')[0]}" if rest.startswith(("linalg", "fft")) else ""
    return f"dmlgpu.{package}{below}.{function.__name__}"


def _mapped(convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert a value, and the elements of lists and tuples."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_mapped(convert, part) for part in value)
    return convert(value)


def _on_host(value: Any) -> Any:
    return value.numpy() if isinstance(value, TensorBase) else value


def _layout(value: Any) -> Any:
    """Return an array of the host with the shape and dtype of a tensor, of one element."""
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if isinstance(value, TensorBase) else value


def _operands(target: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """Return operands as a function takes them: those of ``dmlgpu.ops`` take arrays and lists, others only tensors."""
    first: Any = next(_tensors(values), None)
    if target.__module__.startswith("dmlgpu.ops") or first is None:
        return list(values)

    def beside(value: Any) -> Any:
        if isinstance(value, list | tuple) and next(_tensors(value), None) is not None:
            return [beside(part) for part in value]
        return first._beside(value) if isinstance(value, np.ndarray | list | tuple) else value

    return [beside(value) for value in values]


def _tensors(values: Any) -> Iterator[TensorBase]:
    """Yield the tensors in nested lists and tuples."""
    for value in values:
        if isinstance(value, TensorBase):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _broadcast_arrays(*args: Any, subok: bool = False) -> list[Any]:
    """Return views of one shape: tensors of tensors, arrays of the host of other values, such as Matplotlib's None."""
    sizes = np.broadcast_shapes(*map(np.shape, args))
    return [x.broadcast_to(sizes) if isinstance(x, TensorBase) else np.broadcast_to(x, sizes) for x in args]


def _shares_memory(a: Any, b: Any, max_work: int | None = None) -> bool:
    """Return whether two operands are tensors of one buffer; no array of the host shares memory with a tensor."""
    return isinstance(a, TensorBase) and isinstance(b, TensorBase) and a.buffer is b.buffer


_OF_MEMORY: dict[str, Callable[..., Any]] = {
    "broadcast_arrays": _broadcast_arrays,
    "may_share_memory": _shares_memory,
    "shares_memory": _shares_memory,
}
"""Functions of tensors and host arrays that read no elements."""
