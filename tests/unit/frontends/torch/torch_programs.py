"""Random programs of views and in-place writes, run on two devices of PyTorch alike."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

DTYPES = [torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8, torch.bool]


@st.composite
def shapes(draw: Any, most: int = 5, rank: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, most), min_size=1, max_size=rank)))


@st.composite
def view_steps(draw: Any) -> list[tuple[Any, ...]]:
    """A list of views, whose axes and numbers are reduced to those that a tensor has."""
    kinds = ["slice", "select", "transpose", "unsqueeze", "expand", "flatten", "diagonal", "unfold", "narrow"]
    step = st.tuples(st.sampled_from(kinds), *[st.integers(0, 7)] * 4)
    return draw(st.lists(step, max_size=4))


def view(x: torch.Tensor, step: tuple[Any, ...]) -> torch.Tensor:  # noqa: PLR0911 - a case per view
    """Apply a view if the tensor allows it, else return the tensor."""
    kind, a, b, c, d = step
    if not x.dim():
        return x.unsqueeze(0) if kind == "unsqueeze" else x
    axis = a % x.dim()
    size = x.shape[axis]
    if kind == "slice":
        return x[(slice(None),) * axis + (slice(b % size, None, c % 3 + 1),)]
    if kind == "select" and x.dim() > 1:
        return x.select(axis, b % size)
    if kind == "transpose":
        return x.transpose(axis, b % x.dim())
    if kind == "unsqueeze" and x.dim() < 5:
        return x.unsqueeze(axis)
    if kind == "expand" and size == 1:
        return x.expand(*x.shape[:axis], 3, *x.shape[axis + 1 :])
    if kind == "flatten" and x.is_contiguous():
        return x.view(-1)
    if kind == "diagonal" and x.dim() > 1:
        return x.diagonal(dim1=0, dim2=1)
    if kind == "unfold" and x.dim() < 5:
        return x.unfold(axis, b % size + 1, c % 2 + 1)
    if kind == "narrow":
        start = b % size
        return x.narrow(axis, start, d % (size - start) + 1)
    return x


def views(x: torch.Tensor, steps: list[tuple[Any, ...]]) -> torch.Tensor:
    for step in steps:
        x = view(x, step)
    return x


def may_overlap(x: torch.Tensor) -> bool:
    """Whether elements share places, so that the order of writes counts."""
    places = torch.zeros(x.shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        places += (torch.arange(size) * stride).reshape(-1, *(1,) * (x.dim() - axis - 1))
    return places.unique().numel() < places.numel()


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape, generator=generator).to(dtype)
