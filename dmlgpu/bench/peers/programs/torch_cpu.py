"""PyTorch in eager mode: on the CPU, or by ``torch_cuda`` on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from dmlgpu.bench.peers.worker import Array, NotOffered, PeerCall, PeerNode


def versions() -> dict[str, str]:
    """Return PyTorch's version."""
    return {"torch": torch.__version__}


def prepare(call: PeerCall) -> TorchProgram:
    """Prepare a call on the CPU.

    Raises:
        NotOffered: If there is no such operator here.
    """
    return TorchProgram(call, "cpu", lambda: None)


class TorchProgram:
    """A call as PyTorch's functions.

    Args:
        call: The computation.
        device: where.
        wait: Waits for it.
    """

    def __init__(self, call: PeerCall, device: str, wait: Callable[[], None]):
        for node in call.nodes:
            if node.op not in OPERATORS:
                raise NotOffered(f"{node.op} is not known here as a function of torch")
        self._call, self._wait = call, wait
        self._fixed = {name: torch.from_numpy(call.arrays[name].copy()).to(device) for name in call.fixed}
        self._sets = [
            {name: torch.from_numpy(array.copy()).to(device) for name, array in call.inputs.items()}
            for _ in range(call.sets)
        ]

    @torch.inference_mode()
    def run(self, index: int) -> list[Any]:
        """Run once and wait."""
        values = {**self._fixed, **self._sets[index % len(self._sets)]}
        for node in self._call.nodes:
            result = OPERATORS[node.op](self._call, node, *(values[name] for name in node.inputs))
            values.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
        outputs = [values[name].contiguous() for name in self._call.outputs]
        self._wait()
        return outputs

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        return [output.cpu().numpy() for output in self.run(0)]


def _convolution(call: PeerCall, node: PeerNode, x: Any, taps: Any) -> Any:
    pads = node.attributes["pads"]
    return functional.conv2d(x, taps, padding=tuple(pads[:2]), groups=node.attributes.get("group", 1))


def _pooling(call: PeerCall, node: PeerNode, x: Any) -> Any:
    return functional.max_pool2d(x, node.attributes["kernel_shape"], node.attributes["strides"])


def _layer_normalization(call: PeerCall, node: PeerNode, x: Any, scale: Any, bias: Any) -> Any:
    return functional.layer_norm(x, scale.shape, scale, bias, node.attributes.get("epsilon", 1e-5))


def _scatter_nd(call: PeerCall, node: PeerNode, table: Any, indices: Any, updates: Any) -> Any:
    return table.index_put(tuple(indices.unbind(-1)), updates)


def _slice(call: PeerCall, node: PeerNode, x: Any, *_: Any) -> Any:
    starts, ends, _axes, steps = (call.integers(node, index) or [] for index in range(1, 5))
    return x[tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))]


def _top_k(call: PeerCall, node: PeerNode, x: Any, _: Any) -> tuple[Any, Any]:
    top = torch.topk(x, (call.integers(node, 1) or [1])[0], node.attributes["axis"])
    return top.values, top.indices


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": lambda call, node, a, b: a + b,
    "Mul": lambda call, node, a, b: a * b,
    "MatMul": lambda call, node, a, b: a @ b,
    "Relu": lambda call, node, x: functional.relu(x),
    "Gelu": lambda call, node, x: functional.gelu(x),
    "Tanh": lambda call, node, x: torch.tanh(x),
    "Transpose": lambda call, node, x: x.permute(node.attributes["perm"]),
    "ReduceSum": lambda call, node, x, _: x.sum(call.integers(node, 1), keepdim=True),
    "ArgMin": lambda call, node, x: x.argmin(node.attributes["axis"], keepdim=True),
    "Softmax": lambda call, node, x: torch.softmax(x, node.attributes["axis"]),
    "LayerNormalization": _layer_normalization,
    "Gather": lambda call, node, table, indices: torch.index_select(table, node.attributes["axis"], indices),
    "ScatterElements": lambda call, node, table, at, new: table.scatter(node.attributes["axis"], at, new),
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "TopK": _top_k,
    "Conv": _convolution,
    "MaxPool": _pooling,
}
"""ONNX operators as functions of PyTorch."""
