"""tinygrad through Dawn, which chooses its preferred adapter: on a machine with one GPU, the same as ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
import pydawn

from dmlgpu.bench.peers.worker import Array, NotOffered, PeerCall, PeerNode

SUFFIX = "dylib" if sys.platform == "darwin" else "so"
(_library,) = (Path(pydawn.__file__).parent / "lib").glob(f"*_{machine()}.{SUFFIX}")
os.environ |= {"DEV": "WEBGPU", "WEBGPU_PATH": str(_library)}  # tinygrad reads them when it is imported

import tinygrad  # noqa: E402

WARM_UP = 3
"""Runs after which tinygrad replays the captured kernels."""


def versions() -> dict[str, str]:
    """Return the versions of tinygrad and of Dawn's package."""
    return {"tinygrad": version("tinygrad"), "dawn-python": version("dawn-python")}


def prepare(call: PeerCall) -> Captured:
    """Prepare a call.

    Raises:
        NotOffered: tinygrad has no such operator.
    """
    return Captured(call)


class Captured:
    """A call that is captured once and replayed."""

    def __init__(self, call: PeerCall):
        fixed = {name: _upload(call.arrays[name]) for name in call.fixed}
        names = list(call.inputs)

        def compute(*tensors: Any) -> list[Any]:
            values = {**fixed, **dict(zip(names, tensors, strict=True))}
            for node in call.nodes:
                outputs = _compute(call, node, values)
                values.update(zip(node.outputs, outputs, strict=True))
            return [values[name].contiguous().realize() for name in call.outputs]

        self._device = tinygrad.Device["WEBGPU"]
        self._call = tinygrad.TinyJit(compute)
        self._sets = [[_upload(array) for array in call.inputs.values()] for _ in range(call.sets)]
        for index in range(WARM_UP):
            self.run(index)

    def run(self, index: int) -> Any:
        """Run once and wait."""
        outputs = self._call(*self._sets[index % len(self._sets)])
        self._device.synchronize()
        return outputs

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        return [output.numpy() for output in self.run(0)]


def _upload(array: Array) -> Any:
    """Copy an array to the device, 64-bit integers as int32, because WGSL has none."""
    return tinygrad.Tensor(array.astype(np.int32) if array.dtype == np.int64 else array).realize()


def _compute(call: PeerCall, node: PeerNode, values: Mapping[str, Any]) -> tuple[Any, ...]:
    if node.op not in OPERATORS:
        raise NotOffered(f"tinygrad has no {node.op}")
    result = OPERATORS[node.op](call, node, *(values[name] for name in node.inputs))
    return result if isinstance(result, tuple) else (result,)


def _gelu(call: PeerCall, node: PeerNode, x: Any) -> Any:
    return x * 0.5 * ((x * 0.5**0.5).erf() + 1)


def _convolution(call: PeerCall, node: PeerNode, x: Any, taps: Any) -> Any:
    before = node.attributes["pads"]
    return x.conv2d(taps, groups=node.attributes.get("group", 1), padding=tuple(before[:2]))


def _layer_normalization(call: PeerCall, node: PeerNode, x: Any, scale: Any, bias: Any) -> Any:
    return x.layernorm(node.attributes["axis"], eps=node.attributes.get("epsilon", 1e-5)) * scale + bias


def _slice(call: PeerCall, node: PeerNode, x: Any, *_: Any) -> Any:
    starts, ends, _axes, steps = (call.integers(node, index) or [] for index in range(1, 5))
    return x[tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))]


def _scatter_elements(call: PeerCall, node: PeerNode, table: Any, indices: Any, updates: Any) -> Any:
    return table.scatter(node.attributes["axis"], indices, updates)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": lambda call, node, a, b: a + b,
    "Mul": lambda call, node, a, b: a * b,
    "MatMul": lambda call, node, a, b: a @ b,
    "Relu": lambda call, node, x: x.relu(),
    "Gelu": _gelu,
    "Tanh": lambda call, node, x: x.tanh(),
    "Transpose": lambda call, node, x: x.permute(*node.attributes["perm"]),
    "ReduceSum": lambda call, node, x, _: x.sum(tuple(call.integers(node, 1) or ()), keepdim=True),
    "ArgMin": lambda call, node, x: x.argmin(node.attributes["axis"], keepdim=True),
    "Softmax": lambda call, node, x: x.softmax(node.attributes["axis"]),
    "LayerNormalization": _layer_normalization,
    "Gather": lambda call, node, table, indices: table[indices],
    "ScatterElements": _scatter_elements,
    "Slice": _slice,
    "TopK": lambda call, node, x, _: x.topk((call.integers(node, 1) or [1])[0], node.attributes["axis"]),
    "Conv": _convolution,
    "MaxPool": lambda call, node, x: x.max_pool2d(tuple(node.attributes["kernel_shape"])),
}
"""ONNX operators as methods of tinygrad."""
