"""Operators on lists of tensors (``torch._foreach_*``), by which optimizers update all parameters at once.

Lists of several dtypes or devices, and overloads that are not among ``kernels``, are computed by PyTorch's own loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.calls import CallArguments, function_ids, repeated, wrapped
from dmlgpu.frontends.torch.dispatch import CALLERS, assign, recovered
from dmlgpu.frontends.torch.dtypes import number_as
from dmlgpu.frontends.torch.internals import loop_of
from dmlgpu.frontends.torch.operators.registry import installed, overload
from dmlgpu.frontends.torch.storage import NumberUploads, tensor_of
from dmlgpu.ops import directml

MAX_TENSORS = 64
_MAX_BYTES = 16 << 20
"""Maximum bytes of a list's tensors that are computed together; intermediate results take a multiple of it."""

_UNARY = frozenset({"abs", "exp", "neg", "reciprocal", "sqrt"})
_BINARY = {
    **{name: f"{name}.Tensor" for name in ("add", "sub", "mul", "div")},
    **{name: name for name in ("maximum", "minimum")},
}
_PRODUCTS = frozenset({"addcmul", "addcdiv"})
"""Operators with an additional number, ``value``."""


class ListKernel:
    """Kernel of an operator on lists.

    Args:
        name: Overload of the operator on lists.
        base: Overload that computes an element of the lists.
    """

    def __init__(self, name: str, base: str):
        packet, _, kind = name.partition(".")
        self.name, self._caller, self._function_id = name, CALLERS[base], next(function_ids)
        self._loop = loop_of(overload(name))
        self._uploads = NumberUploads(name)
        self._has_value = packet.removeprefix("_foreach_").removesuffix("_") in _PRODUCTS
        self._is_in_place, self._has_numbers = packet.endswith("_"), kind == "ScalarList"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute all elements."""
        numbers = args[-1] if self._has_numbers else None
        lists = [value for value in args if isinstance(value, list | tuple) and value is not numbers]
        if not _are_alike(lists, numbers):
            return self._loop(*args, **kwargs)
        results: list[Any] = []
        for part in _parts(lists[0]):
            sliced = [value[part] if isinstance(value, list | tuple) else value for value in args]
            try:
                results += self._compute(sliced, kwargs)
            except Exception as error:
                return recovered(error, self.name, args, kwargs)
        return None if self._is_in_place else results

    def _compute(self, args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Compute some elements."""
        targets: Sequence[torch.Tensor] = args[0]
        index = targets[0].device.index
        if self._has_numbers:
            args[-1] = self._uploads.upload(args[-1], index)
        arguments = CallArguments(self._function_id, args, kwargs)
        results, _ = repeated(arguments, self.name, lambda: self._each(args, kwargs))
        if not self._is_in_place:
            return list(wrapped(results, index))
        for target, result in zip(targets, results, strict=True):
            assign(target, result)
        return []

    def _each(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], int]:
        """Return the element for each position of the lists, and the index of the device."""
        first = args[0][0]
        keywords = {name: number_as(value, first.dtype) for name, value in kwargs.items()}
        numbers = tensor_of(args[-1]) if self._has_numbers else None
        results = []
        for position in range(len(args[0])):
            values = [_operand(value, position, first.dtype) for value in args[: len(args) - self._has_numbers]]
            number = None if numbers is None else numbers[position, 0]
            if self._has_value and number is not None:
                values[1] = directml.element_wise_multiply(values[1], number)
            elif self._has_value and len(values) > 3:
                keywords["value"] = values.pop()
            elif number is not None:
                values.append(number)
            results.append(self._caller.result(values, keywords))
        return tuple(results), first.device.index


def _operand(value: Any, position: int, dtype: torch.dtype) -> Any:
    value = value[position] if isinstance(value, list | tuple) else value
    return tensor_of(value) if isinstance(value, torch.Tensor) else number_as(value, dtype)


def _are_alike(lists: Sequence[Sequence[torch.Tensor]], numbers: Any) -> bool:
    """Return whether tensors are of one device, of one dtype of floats, and of equal shapes at each position."""
    if not lists[0] or any(len(tensors) != len(lists[0]) for tensors in lists):
        return False
    device, dtype = lists[0][0].device, lists[0][0].dtype
    dtypes = {torch.float32} if numbers is not None else {torch.float32, torch.float16, torch.bfloat16}
    if device.type != adapters.NAME or dtype not in dtypes:
        return False
    if numbers is not None and len(numbers) != len(lists[0]):
        return False
    return all(
        x.device == device and x.dtype is dtype and x.shape == first.shape and x.numel()
        for tensors in lists
        for first, x in zip(lists[0], tensors, strict=True)
    )


def _parts(tensors: Sequence[torch.Tensor]) -> Iterator[slice]:
    """Return ranges of a list that are computed together."""
    start = size = 0
    for stop, x in enumerate(tensors):
        if stop > start and (stop - start == MAX_TENSORS or size + x.nbytes > _MAX_BYTES):
            yield slice(start, stop)
            start, size = stop, 0
        size += x.nbytes
    yield slice(start, len(tensors))


def kernels() -> dict[str, ListKernel]:
    """Return the kernels by name; the table of operators must be registered."""
    bases = {name: name for name in (*_UNARY, *_PRODUCTS)} | _BINARY | {"lerp": "lerp.Scalar"}
    kinds = {
        **dict.fromkeys(_UNARY, ("",)),
        **dict.fromkeys(_BINARY, (".List", ".Scalar", ".ScalarList")),
        **dict.fromkeys(_PRODUCTS, (".Scalar", ".ScalarList")),
        "lerp": (".Scalar",),
    }
    names = {
        name: base
        for operator, base in bases.items()
        for kind in kinds[operator]
        for name in (f"_foreach_{operator}{kind}", f"_foreach_{operator}_{kind}")
    }
    computed = installed(dict.fromkeys(bases.values()))
    return {name: ListKernel(name, names[name]) for name in installed(names) if names[name] in computed}
