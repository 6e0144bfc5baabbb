"""Operators against onnxruntime's WebGPU provider, tinygrad and ncnn on the same adapter, as interleaved ratios.

    python benchmarks/peers.py [ADAPTER] [-k PART]

Needs ``pip install .[peers]``. Ratios are time of theirs over time of ours; exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tinygrad_webgpu
from attention import HEADS, ROWS, SIZE, floats, fused
from convolution import SHAPES, convolution
from convolution import ours as our_convolution
from depthwise import SHAPE, operands
from graphs import residual_graphs
from harness import Bench, Part, Result, main, open_backend
from measure import ratio
from ncnn_vulkan import NcnnVulkan
from numpy.typing import NDArray
from webgpu_ep import WebGpuEp

from dmlgpu import BufferArrayBinding, CompiledOperator, Device, adapters, descs
from dmlgpu.enums import AxisDirection, DataType
from dmlgpu.tensor import TensorDesc

ELEMENTS = 1 << 24


def element_wise(adapter: str) -> Iterator[Result]:
    """gelu and tanh of 16M elements: no slower."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    values = (np.random.default_rng(1).random(ELEMENTS, np.float32) - np.float32(0.5)) * 8
    tensor = TensorDesc(DataType.FLOAT32, (ELEMENTS,))
    for name, op_type, desc_class in (
        ("GELU", "Gelu", descs.ActivationGelu),
        ("TANH", "Tanh", descs.ElementWiseTanh),
    ):
        ours = bench.operator(desc_class(input_tensor=tensor, output_tensor=tensor), values)
        theirs = peer.operator(op_type, [values], [(np.float32, (ELEMENTS,))])
        yield Result(f"{name}, 16M float32", ratio(theirs, ours), at_least=1.0)


def sorting(adapter: str) -> Iterator[Result]:
    """The 50 largest of each of 256 lines: at least 20 times faster."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    values = np.random.default_rng(1).standard_normal((256, 4096), np.float32)
    first = (256, 50)
    desc = descs.TopK1(
        input_tensor=TensorDesc(DataType.FLOAT32, values.shape),
        output_value_tensor=TensorDesc(DataType.FLOAT32, first),
        output_index_tensor=TensorDesc(DataType.UINT32, first),
        axis=1,
        k=50,
        axis_direction=AxisDirection.DECREASING,
    )
    constants = {1: np.array([50], np.int64)}
    theirs = peer.operator("TopK", [values], [(np.float32, first), (np.int64, first)], constants, axis=1)
    yield Result("TOP_K, 50 of [256, 4096] float32", ratio(theirs, bench.operator(desc, values)), at_least=20.0)


def attention(adapter: str) -> Iterator[Result]:
    """8 heads x 256 x 64, the provider's in three operators: no slower."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    query, keys, scores = floats(HEADS, ROWS, SIZE), floats(HEADS, SIZE, ROWS), floats(HEADS, ROWS, ROWS)
    chain = [
        peer.operator("MatMul", [query, keys], [(np.float32, scores.shape)]),
        peer.operator("Softmax", [scores], [(np.float32, scores.shape)], axis=-1),
        peer.operator("MatMul", [scores, query], [(np.float32, query.shape)]),
    ]
    ours = fused(bench, HEADS, ROWS, ROWS, SIZE)
    measured = ratio(lambda number: [step(number) for step in chain], ours)
    yield Result("attention, 8 heads x 256 x 64", measured, at_least=1.0)


def depthwise(adapter: str) -> Iterator[Result]:
    """A depth-wise convolution by tinygrad: no slower."""
    bench = Bench(open_backend(adapter))
    images, taps = operands()
    filters = tinygrad_webgpu.upload(np.ascontiguousarray(taps.reshape(len(taps), 1, *taps.shape[1:3])))
    images_of_one = [image[None] for image in images]
    theirs = tinygrad_webgpu.call(lambda x: x.conv2d(filters, groups=len(taps), padding=1), images_of_one)
    yield Result(f"{SHAPE}, tinygrad", ratio(theirs, our_convolution(bench, convolution(SHAPES[SHAPE]))), at_least=1.0)


def network(adapter: str) -> Iterator[Result]:
    """Eight convolutions with relu and residual adds by ncnn, image in and result out: at least twice as fast."""
    device = Device(next(info for info in adapters() if adapter.lower() in str(info).lower()))
    graph, _, (image, *filters) = residual_graphs()
    theirs, last = ncnn_network(filters)
    ours = prepared(device.compile_graph(graph), filters)
    np.testing.assert_allclose(ours(image[0]), theirs.run(image[0], last), rtol=1e-3, atol=1e-3)
    images = [image[0], image[0, ::-1].copy()]
    measured = ratio(theirs.call(images, last), lambda number: ours(images[number % 2]))
    yield Result("8 convolutions with relu and adds, ncnn", measured, at_least=2.0)


def ncnn_network(filters: Sequence[NDArray[np.float32]]) -> tuple[NcnnVulkan, str]:
    """The network of ``residual_graphs`` as ncnn's layers, relu fused where that is possible; and its last blob."""
    layers: list[str] = []
    outputs, _, *window = filters[0].shape
    convolution = f"0={outputs} 1={window[0]} 4={window[0] // 2} 6={filters[0].size}"
    last, blobs = "x", 1
    for number in range(0, len(filters), 2):
        layers += [
            f"Split split{number} 1 2 {last} a{number} b{number}",
            f"Convolution first{number} 1 1 a{number} c{number} {convolution} 9=1",
            f"Convolution second{number} 1 1 c{number} d{number} {convolution}",
            f"BinaryOp add{number} 2 1 d{number} b{number} e{number} 0=0",
            f"ReLU relu{number} 1 1 e{number} f{number}",
        ]
        last, blobs = f"f{number}", blobs + 6
    return NcnnVulkan(layers, blobs, filters), last


def prepared(
    compiled: CompiledOperator, filters: Sequence[NDArray[np.float32]]
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """A compiled graph whose inputs are an image and owned filters, as a function from the image to the result."""
    device = compiled.device
    source, result = (device.create_buffer(port.desc.byte_size) for port in (compiled.inputs[0], compiled.outputs[0]))
    weights = [device.create_buffer(one.nbytes) for one in filters]
    for buffer, one in zip(weights, filters, strict=True):
        buffer.write(one)
    properties = compiled.binding_properties
    persistent = device.create_buffer(properties.persistent_resource_size)
    initializer = device.create_operator_initializer([compiled])
    table = device.create_binding_table(initializer)
    table.bind_inputs([BufferArrayBinding([None, *weights])])
    table.bind_outputs([persistent])
    recorder, lists = device.create_command_recorder(), [device.create_command_list() for _ in range(2)]
    recorder.record_dispatch(lists[0], initializer, table)
    table = device.create_binding_table(compiled)
    table.bind_inputs([source, *(None for _ in weights)])
    table.bind_outputs([result])
    table.bind_temporary_resource(device.create_buffer(properties.temporary_resource_size))
    table.bind_persistent_resource(persistent)
    recorder.record_dispatch(lists[1], compiled, table)
    for one in lists:
        one.close()
    device.queue.execute(lists[:1])

    def run(image: NDArray[np.float32]) -> NDArray[np.float32]:
        source.write(image)
        device.queue.execute(lists[1:])
        return result.read().view(np.float32).reshape(image.shape)

    return run


PARTS: dict[str, Part] = {
    "network": network,
    "depthwise": depthwise,
    "element_wise": element_wise,
    "sorting": sorting,
    "attention": attention,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
