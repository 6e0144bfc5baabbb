"""Networks with weights of BFLOAT16, against onnx and onnxruntime with the same weights in float32."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.generation.bfloat16 import widen_bfloat16
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.device import as_device
from tests.bfloat16_networks import BFLOAT16, FLOAT, rounded, tensor_of
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of


def graph_of(kind):
    """Return a graph that reads the matrix {6, 8} in many ways, in a type, and its weights."""
    rng = np.random.default_rng(0)
    matrix = rounded(rng.standard_normal((6, 8)) * 2.0 ** rng.integers(-30, 40, (6, 1)))
    weights = {
        "matrix": matrix,
        "bias": rounded(rng.standard_normal(6)),
        "cube": rounded(rng.standard_normal((2, 3, 4))),
    }
    weights["other"] = rounded(rng.standard_normal((6, 8)))
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "matrix"], ["rows"]),
        node("Gemm", ["y", "matrix", "bias"], ["columns"], transB=1, alpha=0.5),
        node("Gemm", ["x", "matrix"], ["plain"]),
        node("Gather", ["matrix", "ids"], ["lookup"]),
        node("Transpose", ["matrix"], ["turned"], perm=[1, 0]),
        node("MatMul", ["y", "turned"], ["tied"]),
        node("Cast", ["cube"], ["cast"], to=FLOAT),
        node("Neg", ["cast"], ["negated"]),
        node("Add", ["other", "other"], ["doubled"]),
        node("MatMul", ["x", "other"], ["both"]),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("x", kind, [3, 6]), info("y", kind, [3, 8]), info("ids", TensorProto.INT64, [2, 2])]
    outputs = ["rows", "columns", "plain", "lookup", "tied", "doubled", "both"]
    declared = [info("negated", FLOAT, None), *(info(name, kind, None) for name in outputs)]
    make = (
        numpy_helper.from_array if kind == FLOAT else lambda array, name: tensor_of(name, array, as_raw=name != "bias")
    )
    initializers = [make(array, name) for name, array in weights.items()]
    opset = helper.make_opsetid("", 21)
    return helper.make_model(helper.make_graph(nodes, "g", inputs, declared, initializers), opset_imports=[opset])


def test_products_and_lookups_equal_those_of_float32():
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((3, 6)), "y": rng.standard_normal((3, 8))}
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()} | {"ids": np.array([[5, 0], [2, -1]])}
    reference = ReferenceEvaluator(graph_of(FLOAT))
    names = [info.name for info in graph_of(FLOAT).graph.output]
    expected = dict(zip(names, reference.run(None, inputs), strict=True))
    model = graph_of(BFLOAT16)
    values = widen_bfloat16(model, None, SharedWeights())
    types = {name: value.data_type.name for name, value in values.items()}
    assert types["matrix"] == "BFLOAT16" and types["other"] == types["cube"] == types["bias"] == "FLOAT32"
    results = Session(read(model, external=values), as_device("test", ADAPTER)).run(inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=2e-6, atol=2e-6 * np.abs(array).max(), err_msg=name)
    np.testing.assert_array_equal(results["lookup"], expected["lookup"])


def of_bfloat16(folder, *, whole):
    """Change the floats of a folder's model to BFLOAT16, its weights or all; the original is rounded equally."""
    model = onnx.load(folder / "model.onnx")
    cut = onnx.load(folder / "model.onnx")
    casts = []
    for index, tensor in enumerate(model.graph.initializer):
        if tensor.data_type != FLOAT:
            continue
        array = rounded(numpy_helper.to_array(tensor))
        cut.graph.initializer[index].CopyFrom(numpy_helper.from_array(array, tensor.name))
        name = tensor.name if whole else f"{tensor.name}.narrow"
        if not whole:
            casts.append(helper.make_node("Cast", [name], [tensor.name], to=FLOAT))
        tensor.CopyFrom(tensor_of(name, array))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    if whole:
        for info in (*model.graph.input, *model.graph.output):
            if info.type.tensor_type.elem_type == FLOAT:
                info.type.tensor_type.elem_type = BFLOAT16
    for name in ("model.onnx", "model.onnx.data"):
        (folder / name).unlink(missing_ok=True)
    onnx.save(cut, folder / "model.onnx")
    expected = Expected(folder)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=64)
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_tokens_equal_those_of_float32(tmp_path, whole):
    folder = folder_of(tmp_path)
    size = Generator.load(folder, ADAPTER, context=96).memory.weights
    expected = of_bfloat16(folder, whole=whole)
    generator = Generator.load(folder, ADAPTER, context=96)
    prompt = prompt_of(20)
    assert list(generator.generate_tokens(prompt, max_tokens=30)) == expected.tokens(prompt, 30)
    embeddings = 4 * SIZES.vocabulary * SIZES.heads * SIZES.head_size
    assert generator.memory.weights == size - embeddings // 2


def test_a_lack_of_data_is_named(tmp_path):
    model = graph_of(BFLOAT16)
    del model.graph.initializer[1].int32_data[:]
    with pytest.raises(ModelError, match=r"tensor name: bias. should contain one and only one value field"):
        widen_bfloat16(model, None, SharedWeights())
