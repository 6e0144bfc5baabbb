"""``load``: programs of ``torch.export``, which run like ONNX models."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.compiled import backend
from dmlgpu.frontends.torch.compiler_internals import TorchRuntimeError
from dmlgpu.frontends.torch.dtypes import array_of_torch, torch_of_array
from dmlgpu.frontends.torch.internals import pytree


class LoadedProgram:
    """A program of ``torch.export`` on a device; ``load`` returns it.

    Attributes:
        program: The program, with its parameters on the device.
    """

    def __init__(self, program: ExportedProgram, device: torch.device):
        index = adapters.current_index() if device.index is None else device.index
        self.program = move_to_device_pass(program, adapters.torch_device(index))  # asserted where the program casts
        self._device = device
        self._function = torch.compile(self.program.module(), backend=backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Args:
            *args: Positional arguments of the exported model: NumPy arrays, torch tensors of any device, numbers, and
                tuples, lists and dicts of them.
            **kwargs: Its keyword arguments.

        Returns:
            What the model returns. Tensors are NumPy arrays if all arguments are arrays, else torch tensors on the
            device of the first tensor.

        Raises:
            RuntimeError, TypeError, ValueError: As the exported program, about arguments of other shapes or dtypes.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        args, kwargs = pytree.tree_map(self._moved, (args, kwargs))
        with torch.no_grad():
            try:
                results = self._function(*args, **kwargs)
            except TorchRuntimeError as error:  # Dynamo's words around those of the program
                raise (error.__cause__ or error) from None
        device = tensors[0].device if tensors else torch.device("cpu")
        results = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), results)
        return results if tensors else pytree.tree_map_only(torch.Tensor, array_of_torch, results)

    def _moved(self, leaf: Any) -> Any:
        leaf = torch_of_array(np.ascontiguousarray(leaf)) if isinstance(leaf, np.ndarray) else leaf
        return leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf

    def __repr__(self) -> str:
        names = ", ".join(self.program.graph_signature.user_inputs)
        return f"<program of torch.export on {self._device}: inputs {names}>"


def load(program: ExportedProgram | str | PathLike[str], device: torch.device | str | None = None) -> LoadedProgram:
    """Load a program of ``torch.export``, to run it as fused graphs. Dynamic dimensions stay dynamic.

        torch.export.save(torch.export.export(model, (x,)), "model.pt2")
        run = dmlgpu.torch.load("model.pt2")
        y = run(x)

    Args:
        program: The program, or the path of a file that ``torch.export.save`` wrote.
        device: Device of PyTorch, such as ``"dml:1"``; defaults to None, ``"dml"``.

    Returns:
        `LoadedProgram`, a function of the model's arguments.

    Raises:
        InvalidArgument: If `program` is neither a program nor a path, or `device` is not a dml device.
        FileNotFoundError, RuntimeError: As ``torch.export.load``.
    """
    target = torch.device("dml" if device is None else device)
    if target.type != adapters.NAME:
        raise InvalidArgument(f"load: device must be a dml device such as 'dml' or 'dml:1', got {shown(str(device))}")
    if isinstance(program, str | PathLike):
        program = torch.export.load(program)
    if not isinstance(program, ExportedProgram):
        raise InvalidArgument(
            "load: program must be what torch.export.export returns, or the path of a file that torch.export.save "
            f"wrote, got {shown(program, typed=True)}"
        )
    return LoadedProgram(program, target)
