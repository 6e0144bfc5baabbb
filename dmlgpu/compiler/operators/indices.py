"""What operators with index tensors share: checks of their sizes, and the views on which they are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dmlgpu.compiler.operators.lowering import check_sizes, invalid
from dmlgpu.compiler.plan import Tensor
from dmlgpu.compiler.rewrites.collapse import merge_dimensions

# ---- checks


def check_axis(desc: Any, field: str) -> None:
    """Raise InvalidDescription unless the axis is one of a tensor's dimensions."""
    rank = getattr(desc, field).dimension_count
    if desc.axis >= rank:
        raise invalid(desc, "axis", f"must be below {field}'s dimension count ({rank}), got {desc.axis}")


def check_sizes_beside_axis(desc: Any, field: str, like: str) -> None:
    """Raise InvalidDescription unless two tensors have the same sizes in all dimensions but the axis."""
    sizes = getattr(desc, field).sizes
    for dimension, size in enumerate(getattr(desc, like).sizes):
        if dimension != desc.axis and sizes[dimension] != size:
            raise invalid(
                desc,
                f"{field}.sizes[{dimension}]",
                f"must be {like}.sizes[{dimension}] ({size}), got {sizes[dimension]}",
            )


def check_single_along_axis(desc: Any, field: str, like: str) -> None:
    """Raise InvalidDescription unless a tensor has another one's sizes, but 1 along the axis."""
    sizes = getattr(desc, like).sizes
    expected = (*sizes[: desc.axis], 1, *sizes[desc.axis + 1 :])
    check_sizes(desc, field, expected, f"{like}.sizes with 1 on axis {desc.axis}")


def check_dimension_count(desc: Any, name: str) -> None:
    """Raise InvalidDescription unless a dimension count lies within the tensor's, and what it leaves out has size 1."""
    tensor, count = getattr(desc, f"{name}_tensor"), getattr(desc, f"{name}_dimension_count")
    if not 1 <= count <= tensor.dimension_count:
        raise invalid(
            desc,
            f"{name}_dimension_count",
            f"must be between 1 and {name}_tensor's dimension count ({tensor.dimension_count}), got {count}",
        )
    check_left_out(desc, f"{name}_tensor", f"{name}_dimension_count")


def check_left_out(desc: Any, field: str, count_field: str) -> None:
    """Raise InvalidDescription unless the leading dimensions that a count leaves out have size 1."""
    tensor, count = getattr(desc, field), getattr(desc, count_field)
    left_out = tensor.sizes[: tensor.dimension_count - count]
    if any(size != 1 for size in left_out):
        raise invalid(
            desc,
            f"{field}.sizes",
            f"must be 1 in the leading dimensions that {count_field} ({count}) leaves out, got {list(left_out)}",
        )


def check_tuples(desc: Any, field: str, batch: int = 0) -> None:
    """Raise InvalidDescription unless the tuples are no longer than the dimensions they index, and a tensor has the
    dimensions that tuples and windows take."""
    counted = desc.input_dimension_count
    length, longest = desc.indices_tensor.sizes[-1], counted - batch
    if length > longest:
        limit = "input_dimension_count - batch_dimension_count" if batch else "input_dimension_count"
        worked = f"{counted} - {batch} = {longest}" if batch else f"{longest}"
        raise invalid(desc, "indices_tensor.sizes[-1]", f"must be at most {limit} ({worked}), got {length}")
    check_rank(desc, field, desc.indices_dimension_count - 1 + longest - length, "tuple and window dimensions")


def check_rank(desc: Any, field: str, needed: int, what: str) -> None:
    """Raise InvalidDescription unless a tensor has so many dimensions."""
    rank = getattr(desc, field).dimension_count
    if needed > rank:
        raise invalid(desc, f"{field}.sizes", f"must have at least {needed} dimensions to hold the {what}, got {rank}")


# ---- views


def viewed(tensor: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """View the same memory with other sizes and strides."""
    return replace(tensor, sizes=sizes, strides=strides)


def last_dimensions(tensor: Tensor, count: int) -> Tensor:
    """View a tensor with so many dimensions: leading ones, of size 1, are left out or added."""
    extra = max(count - tensor.rank, 0)
    first = max(tensor.rank - count, 0)
    return viewed(tensor, (1,) * extra + tensor.sizes[first:], (0,) * extra + tensor.strides[first:])


def merged_around_axis(axis: int, *tensors: Tensor) -> tuple[int, list[Tensor]]:
    """Return the axis and the tensors, equal in all other sizes, with the dimensions before and after it merged among
    themselves."""
    sizes = tensors[0].sizes
    before, outer = merge_dimensions(sizes[:axis], *(tensor.strides[:axis] for tensor in tensors))
    after, inner = merge_dimensions(sizes[axis + 1 :], *(tensor.strides[axis + 1 :] for tensor in tensors))
    merged = [
        viewed(tensor, (*before, tensor.sizes[axis], *after), (*outer[i], tensor.strides[axis], *inner[i]))
        for i, tensor in enumerate(tensors)
    ]
    return len(before), merged


def shared_lookups(indices: Tensor, dimensions: range, axis: int | None = None) -> tuple[int | None, ...]:
    """Which of some dimensions may be packed: neighbours along those in which the index tensor is broadcast look up one
    index. None for the others, and for the axis that the indices go into."""
    return tuple(d if indices.strides[d] == 0 and d != axis else None for d in dimensions)
