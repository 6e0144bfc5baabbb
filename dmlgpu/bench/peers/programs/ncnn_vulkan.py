"""ncnn on its first Vulkan device, in float32: layers in its own text format. Arrays of the host go in and come out."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ncnn
import numpy as np

from dmlgpu.bench.peers.worker import Array, NotOffered, PeerCall, PeerNode

Layer = tuple[str, str, list[Array]]
"""A layer's type, parameters, and weights in the format of the file of weights."""


def versions() -> dict[str, str]:
    """Return ncnn's version."""
    return {"ncnn": ncnn.__version__}


def prepare(call: PeerCall) -> NcnnNetwork:
    """Prepare a call.

    Raises:
        NotOffered: ncnn has no such layer, or not for such tensors.
    """
    return NcnnNetwork(call)


class NcnnNetwork:
    """A call as a network."""

    def __init__(self, call: PeerCall):
        if any(array.dtype != np.float32 for array in call.inputs.values()):
            raise NotOffered("ncnn takes float32 here")
        lines, blobs, weights = layers(call)
        self._net = ncnn.Net()
        options = self._net.opt
        options.use_vulkan_compute = True
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        with tempfile.TemporaryDirectory() as folder:
            param, model = Path(folder, "net.param"), Path(folder, "net.bin")
            param.write_text("\n".join(["7767517", f"{len(lines)} {blobs}", *lines, ""]), encoding="utf-8")
            model.write_bytes(b"".join(np.ascontiguousarray(weight).tobytes() for weight in weights))
            if self._net.load_param(str(param)) or self._net.load_model(str(model)):
                raise RuntimeError("ncnn does not take the network")
        self._outputs = call.outputs
        # A batch of 1 is none.
        self._sets = [
            {name: (array[0] if array.ndim == 4 else array).copy() for name, array in call.inputs.items()}
            for _ in range(call.sets)
        ]

    def run(self, index: int) -> list[Array]:
        """Run once and wait."""
        extractor = self._net.create_extractor()
        for name, array in self._sets[index % len(self._sets)].items():
            extractor.input(name, ncnn.Mat(array).clone())
        outputs = []
        for name in self._outputs:
            status, result = extractor.extract(name)
            if status:
                raise RuntimeError(f"ncnn fails with {status}")
            outputs.append(np.array(result))
        return outputs

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        return self.run(0)


def layers(call: PeerCall) -> tuple[list[str], int, list[Array]]:
    """Return a call as lines of layers, the number of blobs, and the weights in order."""
    uses = Counter(name for node in call.nodes for name in node.inputs if name not in call.fixed)
    lines: list[str] = []
    weights: list[Array] = []
    blobs = 0
    readers: dict[str, list[str]] = {}

    def add_blob(name: str) -> None:
        """Add a blob; one that several layers read is split first."""
        nonlocal blobs
        blobs += 1
        readers[name] = [name]
        if uses[name] > 1:
            parts = [f"{name}_{part}" for part in range(uses[name])]
            lines.append(f"Split split_{name} 1 {len(parts)} {name} {' '.join(parts)}")
            readers[name] = parts
            blobs += len(parts)

    for name in call.inputs:
        lines.append(f"Input {name} 0 1 {name}")
        add_blob(name)
    for index, node in enumerate(call.nodes):
        if node.op not in LAYERS:
            raise NotOffered(f"ncnn has no layer for {node.op}")
        kind, parameters, fixed = LAYERS[node.op](call, node)
        if not ncnn.create_layer(kind).support_vulkan:
            raise NotOffered(f"ncnn computes {kind} on the CPU")
        bottoms = [readers[name].pop(0) for name in node.inputs if name not in call.fixed]
        counts = f"{len(bottoms)} {len(node.outputs)}"
        lines.append(f"{kind} layer{index} {counts} {' '.join((*bottoms, *node.outputs))} {parameters}")
        weights += fixed
        for name in node.outputs:
            add_blob(name)
    return lines, blobs, weights


def _convolution(call: PeerCall, node: PeerNode) -> Layer:
    taps = call.arrays[node.inputs[1]]
    groups, pads = node.attributes.get("group", 1), node.attributes["pads"]
    parameters = f"0={taps.shape[0]} 1={taps.shape[3]} 11={taps.shape[2]} 4={pads[1]} 14={pads[0]} 6={taps.size}"
    raw = np.zeros(1, np.uint32)  # the data after it is float32
    if groups > 1:
        return "ConvolutionDepthWise", f"{parameters} 7={groups}", [raw, taps]
    return "Convolution", parameters, [raw, taps]


def _product(call: PeerCall, node: PeerNode) -> Layer:
    if any(call.arrays[name].ndim != 2 for name in node.inputs if name in call.arrays):
        raise NotOffered("ncnn multiplies matrices on the GPU, not batches of them")
    return "Gemm", "", []


def _binary(operation: int) -> Callable[[PeerCall, PeerNode], Layer]:
    def layer(call: PeerCall, node: PeerNode) -> Layer:
        scalar = node.inputs[1] in call.fixed
        more = f" 1=1 2={float(call.arrays[node.inputs[1]].item())!r}" if scalar else ""
        return "BinaryOp", f"0={operation}{more}", []

    return layer


def _pooling(call: PeerCall, node: PeerNode) -> Layer:
    (height, width), (down, right) = node.attributes["kernel_shape"], node.attributes["strides"]
    return "Pooling", f"0=0 1={width} 11={height} 2={right} 12={down} 5=1", []


def _transpose(call: PeerCall, node: PeerNode) -> Layer:
    if node.attributes["perm"] != [1, 0]:
        raise NotOffered("of ncnn's permutations only that of matrices is known here")
    return "Permute", "0=1", []


def _layer_normalization(call: PeerCall, node: PeerNode) -> Layer:
    scale, bias = (call.arrays[name] for name in node.inputs[1:])
    return "LayerNorm", f"0={scale.size} 1={node.attributes.get('epsilon', 1e-5)!r} 2=1", [scale, bias]


def _sum(call: PeerCall, node: PeerNode) -> Layer:
    axes = call.integers(node, 1) or []
    return "Reduction", f"0=0 1=0 -23303={len(axes)},{','.join(map(str, axes))} 4=1 5=1", []


LAYERS: Mapping[str, Callable[[PeerCall, PeerNode], Any]] = {
    "Add": _binary(0),
    "Mul": _binary(2),
    "MatMul": _product,
    "Relu": lambda call, node: ("ReLU", "", []),
    "Gelu": lambda call, node: ("GELU", "0=0", []),
    "Tanh": lambda call, node: ("TanH", "", []),
    "Softmax": lambda call, node: ("Softmax", f"0={node.attributes['axis']} 1=1", []),
    "Transpose": _transpose,
    "ReduceSum": _sum,
    "LayerNormalization": _layer_normalization,
    "Conv": _convolution,
    "MaxPool": _pooling,
}
"""Operators of ONNX as ncnn's layers."""
