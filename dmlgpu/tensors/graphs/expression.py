"""Former name of tensors of graphs."""

from __future__ import annotations

from dmlgpu.tensors.tensor import Tensor

Expression = Tensor
"""A tensor of a graph is a ``Tensor``."""

Number = int | float
