"""Exported folders in Chromium: what they compute, what their pages show, what they say when something is wrong."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlgpu
from dmlgpu import DataType, Graph, TensorDesc, descs, export
from dmlgpu.demo.palette import NAMES, palette_graph
from dmlgpu.ops import directml as dml
from dmlgpu.runtime.evaluate import run_compiled
from tests.chromium.conftest import served
from tests.unit.export.test_export import pooling_network
from tests.unit.frontends.onnx.onnx_models import model_of, onnxruntime_outputs

pytestmark = [pytest.mark.usefixtures("facts"), pytest.mark.xdist_group("chromium")]  # it is started once

HEIGHT, WIDTH = 24, 32

CALL = """async ({folder, inputs}) => {
    const {load} = await import('./' + folder + '/runtime.js');
    const bytes = text => Uint8Array.from(atob(text), each => each.charCodeAt(0));
    const text = array => btoa(Array.from(new Uint8Array(array.buffer), each => String.fromCharCode(each)).join(''));
    window.device ??= await (await navigator.gpu.requestAdapter()).requestDevice();
    const model = await load('./' + folder, {device: window.device});
    const given = Object.fromEntries(inputs.map(([name, kind, data]) => [name, new window[kind](bytes(data).buffer)]));
    const found = await model.run(given);
    const again = await Promise.all([model.run(given), model.run(given)]);
    const results = [found, ...again].map(each => model.outputs.map(({name}) => text(each[name])));
    const kinds = model.outputs.map(({name}) => found[name].constructor.name);
    model.destroy();
    return {kinds, results};
}"""
"""Load a folder's model on a device of the page's, run it three times, twice at once; the results' bytes."""

WRONG = """async () => {
    const {load, ModelError} = await import('./runtime.js');
    const told = async action => {
        try {
            await action();
            return ['none', ''];
        } catch (error) {
            return error instanceof ModelError ? [error.code, error.message] : ['fault', String(error)];
        }
    };
    const right = {a: new Float32Array(2)};
    const model = await load('./program.json');
    const run = inputs => () => model.run(inputs);
    const found = {
        right: await told(run(right)),
        length: await told(run({a: new Float32Array(3)})),
        type: await told(run({a: new Float64Array(2)})),
        array: await told(run({a: [1, 2]})),
        missing: await told(run({})),
        unknown: await told(run({b: 1})),
        nothing: await told(run(null)),
        adapter: await told(() => load('./', {gpu: {requestAdapter: async () => null}})),
        webgpu: await told(() => load('./', {gpu: null})),
        files: await told(() => load('./elsewhere')),
    };
    model.device.destroy();
    await model.lost;
    found.lost = await told(run(right));
    const other = await load('.');
    other.destroy();
    return {...found, destroyed: await told(() => other.run(right))};
}"""

ARRAYS = {
    "float64": "Float64Array",
    "float32": "Float32Array",
    "float16": "Uint16Array",
    "int64": "BigInt64Array",
    "int32": "Int32Array",
    "int16": "Int16Array",
    "int8": "Int8Array",
    "uint64": "BigUint64Array",
    "uint32": "Uint32Array",
    "uint16": "Uint16Array",
    "uint8": "Uint8Array",
}


def run(page, folder, inputs):
    """What a folder computes, by bytes; three runs give the same."""
    arguments = [
        [name, ARRAYS[array.dtype.name], base64.b64encode(array.tobytes()).decode()] for name, array in inputs.items()
    ]
    answer = page.evaluate(CALL, {"folder": folder.name, "inputs": arguments})
    first, *others = answer["results"]
    assert all(other == first for other in others)
    return answer["kinds"], [base64.b64decode(text) for text in first]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Where folders are written."""
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def visited(page, folders):
    """A page that serves the folders that tests write, with a device for all of them."""
    with served(page, folders, "blank.html") as blank_page:
        yield blank_page


def small_network(graph):
    """A convolution, relu, pooling, and a product: an image becomes four numbers."""
    rng = np.random.default_rng(5)
    filters = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
    matrix = rng.standard_normal((1, 1, 8, 4)).astype(np.float32)
    x = graph.input((1, 3, 12, 12), name="image")
    filter_ = graph.input(filters.shape, name="filter", owned=True)
    convolved = dml.convolution(x, filter_, start_padding=(1, 1), end_padding=(1, 1))
    pooled = dml.average_pooling(
        dml.activation_relu(convolved), strides=(12, 12), window_size=(12, 12), include_padding=False
    )
    out = dml.gemm(pooled.reinterpret((1, 1, 1, 8)), graph.constant(matrix))
    return [out], {"filter": filters}


def test_the_palette_graph_paints_as_the_reference_does(visited, folders):
    graph = palette_graph(HEIGHT, WIDTH, colors=4, iterations=2)
    folder = folders / "palette"
    export.write(graph, folder, outputs=NAMES, schedules="cpu")
    photo = np.random.default_rng(3).integers(0, 256, (1, HEIGHT, WIDTH, 3)).astype(np.uint8)
    kinds, (painted, palette) = run(visited, folder, {"photo": photo})
    assert kinds == ["Uint8Array", "Float32Array"]
    compiled = dmlgpu.Device("numpy").compile_graph(graph)
    expected = run_compiled(compiled, [photo], [port.desc for port in compiled.inputs], "graph")
    assert np.allclose(np.frombuffer(palette, np.float32), expected[1].view(np.float32), rtol=1e-5)
    assert np.array_equal(np.frombuffer(painted, np.uint8), expected[0])


@pytest.mark.parametrize("schedules", ["cpu", "gpu"])
def test_a_convolution_network_computes_what_the_reference_does(visited, folders, schedules):
    graph = Graph(dmlgpu.Device("numpy"), name="small")
    outputs, weights = small_network(graph)
    folder = folders / f"small-{schedules}"
    export.write(outputs, folder, weights=weights, outputs=["scores"], schedules=schedules)
    image = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)
    (expected,) = graph.evaluate(outputs, {"image": image, **weights})
    kinds, (scores,) = run(visited, folder, {"image": image})
    assert kinds == ["Float32Array"]
    assert np.allclose(np.frombuffer(scores, np.float32), expected.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("data_type", ["int64", "uint64", "int16", "uint8", "int8", "float16", "uint32", "float64"])
def test_elements_of_all_types_go_in_and_out(visited, folders, data_type):
    """Reversed rows of tensors whose rows lie apart."""
    kind = DataType[data_type.upper()]
    source, target = TensorDesc(kind, (3, 5), (8, 1)), TensorDesc(kind, (3, 5), (1, 3))
    desc = descs.Slice1(
        input_tensor=source,
        output_tensor=target,
        input_window_offsets=(0, 0),
        input_window_sizes=(3, 5),
        input_window_strides=(1, -1),
    )
    export.write(desc, folders / data_type)
    array = np.random.default_rng(2).integers(0, 100, (3, 5)).astype(kind.numpy)
    _, (result,) = run(visited, folders / data_type, {"input": array})
    assert np.array_equal(np.frombuffer(result, kind.numpy).reshape(3, 5), array[:, ::-1])


def test_four_bits_lie_one_to_a_byte(visited, folders):
    packed = TensorDesc(DataType.INT4, (1, 1, 1, 5))
    wide = TensorDesc(DataType.FLOAT32, (1, 1, 1, 5))
    single = TensorDesc(DataType.FLOAT32, (1, 1, 1, 1))
    desc = descs.Dequantize(
        input_tensor=packed,
        quantization_type=dmlgpu.enums.QuantizationType.SCALE,
        quantization_tensors=(single,),
        output_tensor=wide,
    )
    half = np.full((1, 1, 1, 1), 0.5, np.float32)
    export.write(desc, folders / "int4", weights={"quantizations_0": half})
    _, (result,) = run(visited, folders / "int4", {"input": np.array([-8, 7, -1, 0, 3], np.int8)})
    assert np.frombuffer(result, np.float32).tolist() == [-4.0, 3.5, -0.5, 0.0, 1.5]


def test_an_onnx_model_computes_what_onnxruntime_does(visited, folders):
    """A convolution network with a boolean input, integer outputs, constants, and an input that is returned."""
    rng = np.random.default_rng(8)
    nodes = [
        helper.make_node("Conv", ["image", "filter"], ["convolved"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["convolved"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "matrix"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Not", ["switch"], ["off"]),
        helper.make_node("Shape", ["convolved"], ["sizes"]),
        helper.make_node("Identity", ["scale"], ["same"]),
        helper.make_node("ReduceSum", ["scores"], ["sum"], keepdims=0),
    ]
    feeds = {
        "image": rng.standard_normal((1, 3, 9, 9)).astype(np.float32),
        "switch": np.array([True, False, True]),
        "scale": np.array(3, np.float32),
    }
    kinds = {
        "scores": TensorProto.FLOAT,
        "best": TensorProto.INT64,
        "off": TensorProto.BOOL,
        "sizes": TensorProto.INT64,
        "same": TensorProto.FLOAT,
        "sum": TensorProto.FLOAT,
    }
    weights = {
        "filter": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "matrix": rng.standard_normal((16, 5)).astype(np.float32),
    }
    model = model_of(nodes, feeds, kinds, weights)
    export.write_onnx(model, folders / "onnx", schedules="cpu")
    inputs = {name: np.asarray(feed).astype(np.uint8) if feed.dtype == bool else feed for name, feed in feeds.items()}
    names, results = run(visited, folders / "onnx", inputs)
    assert names == ["Float32Array", "BigInt64Array", "Uint8Array", "BigInt64Array", "Float32Array", "Float32Array"]
    for name, raw, expected in zip(kinds, results, onnxruntime_outputs(model, feeds), strict=True):
        array = np.frombuffer(raw, expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5, err_msg=name)


SEVERAL = """async ({folder, runs}) => {
    const {load, ModelError} = await import('./' + folder + '/runtime.js');
    window.device ??= await (await navigator.gpu.requestAdapter()).requestDevice();
    const model = await load('./' + folder, {device: window.device});
    const results = [];
    for (const {data, shapes} of runs) {
        try {
            const {scores, positive} = await model.run({image: new Float32Array(data)}, {shapes});
            results.push([Array.from(scores), Array.from(positive)]);
        } catch (error) {
            results.push(error instanceof ModelError ? error.message : String(error));
        }
    }
    const shapes = model.shapes.map(({inputs}) => inputs[0].shape);
    model.destroy();
    return {results, shapes};
}"""


def test_a_model_runs_for_several_sizes(visited, folders):
    model = pooling_network()
    export.write_onnx(model, folders / "several", {"image": (1, 3, [8, 16], [16, 24, 32])}, schedules="cpu")
    rng = np.random.default_rng(3)
    shapes = [(1, 3, 16, 32), (1, 3, 8, 16), (1, 3, 16, 24), (1, 3, 8, 32), (1, 3, 16, 16), (1, 3, 8, 24)]
    images = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    runs = [
        {
            "data": image.ravel().tolist(),
            "shapes": {"image": image.shape} if image.shape[2] == 8 or image.shape[3] == 16 else {},
        }
        for image in images
    ]
    wrong = [
        {"data": [0] * (3 * 8 * 32), "shapes": {}},
        {"data": [0] * 7, "shapes": {}},
        {"data": [0] * 7, "shapes": {"image": [1, 3, 16, 32]}},
        {"data": [0], "shapes": {"image": [1, 3, 5, 5]}},
        {"data": [0], "shapes": {"picture": [1]}},
    ]
    answer = visited.evaluate(SEVERAL, {"folder": "several", "runs": [*runs, *wrong]})
    assert answer["shapes"] == [[1, 3, height, width] for height in (8, 16) for width in (16, 24, 32)]
    for image, results in zip(images, answer["results"], strict=False):
        assert not isinstance(results, str), results
        for result, expected in zip(results, onnxruntime_outputs(model, {"image": image}), strict=True):
            np.testing.assert_allclose(result, expected.ravel(), rtol=1e-4, atol=1e-5)
    assert answer["results"][len(images) :] == [
        "Several of the shapes fit these numbers of elements ('image': 768): pass {shapes: {name: sizes}}, of "
        "model.shapes.",
        "No shapes fit these numbers of elements ('image': 7): pass {shapes: {name: sizes}}, of model.shapes.",
        "Input 'image' has sizes [1, 3, 16, 32]: 1536 elements, got 7.",
        "shapes: 'image' must be one of [1, 3, 8, 16], [1, 3, 8, 24], [1, 3, 8, 32], [1, 3, 16, 16], [1, 3, 16, 24], "
        "[1, 3, 16, 32], got [1,3,5,5].",
        "shapes: there is no input 'picture'; the names are 'image'.",
    ]


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """A folder that doubles two numbers, with weights."""
    folder = tmp_path_factory.mktemp("doubling")
    pair = TensorDesc(DataType.FLOAT32, (2,))
    desc = descs.ElementWiseMultiply(a_tensor=pair, b_tensor=pair, output_tensor=pair)
    export.write(desc, folder, weights={"b": np.full(2, 2, np.float32)})
    return folder


def test_wrong_use_gives_a_sentence(page, doubling):
    with served(page, doubling, "blank.html") as visited:
        messages = visited.evaluate(WRONG)
    lost = messages.pop("lost")
    assert lost[0] == "lost"
    assert lost[1].startswith("The device is lost (destroyed): ")
    assert messages == {
        "right": ["none", ""],
        "length": ["input", "Input 'a' has sizes [2]: 2 elements, got 3."],
        "type": ["input", "Input 'a' (FLOAT32) must be a Float32Array, got Float64Array."],
        "array": ["input", "Input 'a' (FLOAT32) must be a Float32Array, got Array."],
        "missing": ["input", "Input 'a' (FLOAT32) must be a Float32Array, got nothing."],
        "unknown": ["input", "There is no input 'b'; the names are 'a'."],
        "nothing": ["input", "Inputs must be an object with arrays by name; the names are 'a'."],
        "adapter": ["webgpu", "WebGPU is supported, but has no adapter on this computer."],
        "webgpu": ["webgpu", "WebGPU is missing: this browser does not support it."],
        "files": ["file", "program.json cannot be loaded: 404"],
        "destroyed": ["lost", "The model was destroyed."],
    }


def changed(source, target, file, change):
    """Copy a folder with one file changed, or omitted if the change returns None."""
    target.mkdir()
    for each in source.iterdir():
        data = change(each.read_bytes()) if each.name == file else each.read_bytes()
        if data is not None:
            (target / each.name).write_bytes(data)


def with_field(**fields):
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


def needing(*features, **limits):
    return with_field(needs={"features": features, "limits": limits})


BROKEN = {
    "program.json is not JSON:": ("program.json", lambda data: data[:-40]),
    "program.json has format 99; this runtime needs 1.": ("program.json", with_field(format=99)),
    "program.json has no list 'shaders'.": ("program.json", with_field(shaders=None)),
    "The adapter lacks the feature made-up, which this program needs.": ("program.json", needing("made-up")),
    "The adapter has maxBufferSize ": ("program.json", needing(maxBufferSize=2**50)),
    "The kernel 'element_wise_multiply": ("program.json", lambda data: data.replace(b"fn main(", b"fn main2(")),
    "weights-0.bin has 12 bytes; program.json says 16.": ("weights-0.bin", lambda data: data[:-4]),
    "weights-0.bin is damaged or belongs to another export": ("weights-0.bin", lambda data: bytes(16)),
    "weights-0.bin cannot be loaded: 404": ("weights-0.bin", lambda data: None),
}
"""The beginning of the message, the file, and its changed content."""

TELL = """async folder => {
    const {load} = await import('./0/runtime.js');
    return load(folder).then(() => '', error => error.message);
}"""


def test_broken_files_give_sentences(page, doubling, tmp_path):
    for number, (file, change) in enumerate(BROKEN.values()):
        changed(doubling, tmp_path / str(number), file, change)
    with served(page, tmp_path, "blank.html") as visited:
        messages = [visited.evaluate(TELL, str(number)) for number in range(len(BROKEN))]
    assert [text[: len(due)] for text, due in zip(messages, BROKEN, strict=True)] == list(BROKEN)


def test_the_page_says_that_a_file_is_missing(page, doubling, tmp_path):
    changed(doubling, tmp_path / "folder", "program.json", lambda data: None)
    with served(page, tmp_path / "folder") as visited:
        assert visited.locator("#state.bad").inner_text() == "program.json cannot be loaded: 404"
        assert visited.locator("#run").is_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_it_working_on_a_phone(page, tmp_path, scheme):
    export.write(palette_graph(HEIGHT, WIDTH, colors=2, iterations=1), tmp_path, outputs=NAMES)
    phone = {"viewport": {"width": 360, "height": 700}, "color_scheme": scheme}
    with served(page, tmp_path, **phone) as visited:
        visited.wait_for_selector("#run:enabled")
        visited.click("#run")
        visited.wait_for_selector("#outputs canvas")
        assert visited.inner_text("h1") == "palette"
        assert "painted: UINT8 [1, 24, 32, 3]" in visited.inner_text("#outputs")
        assert "new Uint8Array(2304)" in visited.inner_text("#code")
        assert visited.evaluate("document.documentElement.scrollWidth") <= 360
        shade = visited.evaluate("getComputedStyle(document.body).backgroundColor")
        assert shade == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}[scheme]
        colors = """canvas => {
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
        assert visited.eval_on_selector("#outputs canvas", colors) == 2
