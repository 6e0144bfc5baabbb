"""One function on its way to a graph: its calls of operators become nodes, its tensors what nodes read and write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, span
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, InvalidState, NotSupported
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.execution import OperatorCall
from dmlgpu.tensors.graphs.graph import Graph, NodeCall
from dmlgpu.tensors.location import caller as line_of_caller
from dmlgpu.tensors.location import in_package
from dmlgpu.tensors.memory import NodeMemory, recorder
from dmlgpu.tensors.session import KEEPING, Place
from dmlgpu.tensors.strided import Strided, behind_binding
from dmlgpu.tensors.tensor import Tensor

_CALLS = {
    "__init__": "Tensor(x)",
    "__bool__": "a truth value such as `if x`",
    "__int__": "int(x)",
    "__float__": "float(x)",
    "__index__": "an index",
    "__array__": "np.asarray(x)",
    "__dlpack__": "x.__dlpack__()",
    "__reduce__": "a copy by pickle",
    "__getitem__": "x[mask]",
}
"""What asks for elements, by the method that Python calls."""


class Trace(Graph):
    """A function that is being traced: a graph whose tensors follow NumPy's rules.

    Args:
        name: the function's, for messages.
        device: where it runs.

    Attributes:
        feeds: what is bound to each input of the graph: an argument, by number, or a tensor from outside.
        keeping: what operators write whose outputs must be zeros before (``session.KEEPING``).
    """

    is_traced = True
    name: str

    def __init__(self, name: str, device: Device):
        super().__init__(device, name, rules="numpy")
        self.feeds: list[int | Strided] = []
        self.keeping: list[Tensor] = []
        self._outside: dict[Any, NodeMemory] = {}  # by identity of buffers, which `feeds` keeps alive
        self._slices: dict[Any, Strided] = {}
        self._numbers: dict[Any, Tensor] = {}
        self._foreign: list[tuple[Strided, Any]] = []

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def argument(self, number: int, tensor: Tensor, path: str) -> Tensor:
        """Return what stands for an argument."""
        stand_in = tensor._moved(self._input(number, tensor, path), behind_binding(tensor) - tensor.offset)
        self.watch([stand_in])
        return stand_in

    def _input(self, feed: int | Strided, tensor: Strided, path: str | None = None) -> NodeMemory:
        """Add an input of the graph, for what is bound where a tensor begins or up to 15 bytes before."""
        self.feeds.append(feed)
        before = behind_binding(tensor)
        if before or not tensor.size:
            desc = TensorDesc(tensor.data_type, (max(1, before + span(tensor.sizes, tensor.strides)),))
        else:
            desc = TensorDesc(*tensor.signature)
        node = self.input(desc, name=path)
        return NodeMemory(self, node.origin, desc, feed if isinstance(feed, int) else None)

    def resolved(self, label: str, tensor: Strided) -> Strided:
        """Return a tensor of the function as one of the graph: what comes from outside becomes an input.

        Raises:
            InvalidState: it was made while another function was traced.
            InvalidArgument: it lies on another device.
        """
        memory = tensor.buffer
        if isinstance(memory, NodeMemory):
            if memory.graph is not self:
                raise InvalidState(
                    f"{self.name}: a Tensor, {tensor.data_type.name} {list(tensor.sizes)}, was made while another call "
                    f"was traced, and has no elements ({line_of_caller()})"
                )
            return tensor
        if memory.device is not self.device:
            self._refuse_device(label, memory.device)
        self.watch([tensor])
        key = id(memory), tensor.offset, tensor.signature
        outside = self._outside.get(key)
        if outside is None:
            outside = self._outside[key] = self._input(tensor, tensor)
        return tensor._moved(outside, behind_binding(tensor) - tensor.offset)

    def _refuse_device(self, label: str, device: Device) -> NoReturn:
        raise InvalidArgument(
            f"{label}: the device must be that of `{self.name}`, '{self.device.adapter}', while it is traced, got "
            f"another, '{device.adapter}'"
        )

    def _describe_foreign(self, tensor: Strided, is_first: bool) -> str | None:
        if isinstance(tensor.buffer, NodeMemory) or is_first or tensor.device is self.device:
            return None
        return (
            f"must be on the device of the other operands, '{self.device.adapter}', got one on another, "
            f"'{tensor.device.adapter}'; x.to(device) copies it"
        )

    def _operand_of(self, label: str, tensor: Strided) -> Strided:
        tensor = self.resolved(label, tensor)
        if not tensor.offset:
            return tensor
        key = tensor.origin, tensor.offset, tensor.signature
        if key not in self._slices:
            self._slices[key] = self._sliced(label, tensor)
        return self._slices[key]

    def _number(self, value: int | float, data_type: DataType) -> Tensor:
        key = data_type, value.hex() if isinstance(value, float) else value
        if key not in self._numbers:
            self._numbers[key] = super()._number(value, data_type)
        return self._numbers[key]

    # ---- operators --------------------------------------------------------------------------------------------------

    def _append(self, call: NodeCall, desc: OperatorDesc, name: str | None) -> tuple[Tensor | None, ...]:
        try:
            self.device.create_operator(desc)
            outputs = super()._append(call, desc, name)
        except (InvalidDescription, NotSupported) as error:
            raise call.in_words(error) from error
        if desc.operator in KEEPING:
            self.keeping += [output for output in outputs if output is not None]
        return outputs

    def _in_words(self, call: OperatorCall, error: DmlError) -> DmlError:
        return OperatorCall.in_words(call, error)

    def _at(self) -> str:
        return ""

    def restore(self) -> InvalidArgument | None:
        """Give tensors that the function did not make, and assigned to, the memory back that they had; return what to
        raise where there is one."""
        changed = [(tensor, memory) for tensor, memory in self._foreign if tensor.buffer is not memory]
        for tensor, memory in changed:
            tensor.buffer = memory
        if not changed:
            return None
        tensor, _ = changed[0]
        return InvalidArgument(
            f"{self.name}: a Tensor that the function did not make, {tensor.data_type.name} {list(tensor.sizes)}, must "
            "not be assigned to, since that would happen once, when it is traced; x.copy() makes another"
        )

    def watch(self, tensors: Sequence[Strided]) -> None:
        """Take note of tensors that the function must not assign to."""
        self._foreign += [(tensor, tensor.buffer) for tensor in tensors]

    def _refuse_reading(self) -> NoReturn:
        if recorder() is not self:
            raise InvalidState(
                "Tensor: it was made while a function was traced, and has no elements; a compiled function must return "
                "what is used outside"
            )
        frame = sys._getframe(1)
        method = frame.f_code.co_name
        while frame.f_back is not None and in_package(frame):
            method, frame = frame.f_code.co_name, frame.f_back
        raise InvalidState(
            f"{self.name}: {_CALLS.get(method, f'x.{method}()')} must not ask for the elements of a Tensor while the "
            f"function is traced, since they are not computed yet ({line_of_caller()}, in {frame.f_code.co_name})"
        )


def place(tensor: Strided) -> Place:
    """Return where a tensor is bound."""
    return tensor.buffer._memory, (tensor.offset - behind_binding(tensor)) * tensor.data_type.bits // 8
