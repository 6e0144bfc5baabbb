"""Bounds of queries, keys and values: attained by the worst rows, and never exceeded in a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from dmlgpu.compiler.target import Profile
from dmlgpu.frontends.generation.cache_bounds import MAX_ELEMENT, CacheBounds, default_caches
from dmlgpu.frontends.generation.folders import read
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.model import light
from dmlgpu.frontends.onnx.session import bound_tensor
from dmlgpu.runtime.device import Device
from tests.language_models import ADAPTER, folder_of, prompt_of

WIDTH, SIZE = 64, 16
RANDOM = np.random.default_rng(3)
SCALE = RANDOM.uniform(0.1, 3, WIDTH).astype(np.float32)
MATRIX = RANDOM.standard_normal((SIZE, WIDTH)).astype(np.float32)
ANGLES = np.linspace(0, 3, 40)[:, None]
CACHES = ["past_key_values.0.key", "past_key_values.0.value"]
ATTENTION = ["keys", "keys", "keys", *CACHES, "lengths", "total", "cos", "sin"]


def normalized(x: NDArray[Any]) -> NDArray[Any]:
    """Rows whose mean square is 1."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))


def worst(matrix: NDArray[Any]) -> float:
    """The largest element of a product of rows of RMS normalization: those in the direction of its own rows."""
    rows = normalized((matrix * SCALE).astype(np.float64)) * SCALE
    return float(np.abs(rows @ matrix.T).max())


def node(op_type: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs, [output], **attributes)


def attention(inputs: list[str] = ATTENTION, **attributes: Any) -> NodeProto:
    return node("GroupQueryAttention", inputs, "attended", num_heads=1, kv_num_heads=1, **attributes)


def graph_of(nodes: list[NodeProto], **weights: NDArray[Any]) -> GraphProto:
    arrays = {"scale": SCALE, "matrix": MATRIX, "cos": np.cos(ANGLES), "sin": np.sin(ANGLES), **weights}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", *CACHES)]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_graph(nodes, "network", inputs, [], tensors)


def bounds_of(nodes: list[NodeProto], last: NodeProto | None = None, **weights: NDArray[Any]) -> list[float]:
    last = last or attention()
    return list(CacheBounds(graph_of([*nodes, last], **weights), {}, None).of_attention(last))


NORM = node("SimplifiedLayerNormalization", ["x", "scale"], "row", axis=-1)
TRANSPOSE = node("Transpose", ["matrix"], "columns")
PRODUCT = [NORM, TRANSPOSE, node("MatMul", ["row", "columns"], "keys")]


def test_products_of_floats_attain_the_bound() -> None:
    assert bounds_of(PRODUCT) == pytest.approx([worst(MATRIX)] * 3)
    nodes = [NORM, node("MatMul", ["row", "columns"], "keys")]
    assert bounds_of(nodes, columns=MATRIX.T.copy()) == pytest.approx([worst(MATRIX)] * 3)


def test_rotary_embeddings_attain_the_bound() -> None:
    """A pair of equal elements is turned into one of them, by an eighth of a turn."""
    query, key, value = bounds_of(PRODUCT, attention(do_rotary=1))
    assert query == key == pytest.approx(2**0.5 * worst(MATRIX), rel=1e-3)
    assert value == pytest.approx(worst(MATRIX))
    assert bounds_of(PRODUCT, attention(scale=2.0))[:2] == pytest.approx([2 * worst(MATRIX), worst(MATRIX)])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_point", [None, "floats", "packed"])
def test_products_of_codes_are_bounded_by_their_range(bits: int, zero_point: str | None) -> None:
    """The worst codes are the lowest and the highest ones."""
    block, middle, last = 32, 2 ** (bits - 1), 2**bits - 1
    scales = RANDOM.uniform(0.5, 2, (SIZE, WIDTH // block)).astype(np.float32)
    zero = {None: float(middle), "floats": 2.25, "packed": 0.0}[zero_point]
    inputs = ["row", "codes", "scales", "zero" if zero_point else "", "", "bias"]
    zeros = np.zeros(SIZE, np.uint8) if zero_point == "packed" else np.full_like(scales, zero)
    product = node("MatMulNBits", inputs, "keys", K=WIDTH, N=SIZE, bits=bits, block_size=block)
    codes = np.zeros((SIZE, WIDTH // block, block * bits // 8), np.uint8)
    bound, *_ = bounds_of([NORM, product], codes=codes, scales=scales, zero=zeros, bias=np.full(SIZE, -3.0))
    furthest = 0 if zero >= last - zero else last
    matrix = np.repeat(scales, block, axis=1) * np.float32(furthest - zero)
    assert bound == pytest.approx(worst(matrix) + 3)


@pytest.mark.parametrize(
    ("op_type", "inputs"), [("LayerNormalization", ["x"]), ("SkipLayerNormalization", ["x", "more"])]
)
def test_biases_are_added(op_type: str, inputs: list[str]) -> None:
    nodes = [
        node(op_type, [*inputs, "scale", "shift"], "row"),
        TRANSPOSE,
        node("MatMul", ["row", "columns"], "product"),
        node("Add", ["product", "bias"], "keys"),
    ]
    bias, longest = np.full(SIZE, -7, np.float32), MATRIX[np.linalg.norm(MATRIX, axis=1).argmax()]
    (bound, *_) = bounds_of(nodes, bias=bias, shift=-longest)
    rows = normalized((MATRIX * SCALE).astype(np.float64)) * -SCALE - longest
    measured = np.abs(rows @ MATRIX.T + bias).max()
    assert measured <= bound <= worst(MATRIX) + longest @ longest + 7.001


def test_norms_of_heads_replace_the_bound() -> None:
    heads = RANDOM.uniform(0.1, 3, SIZE).astype(np.float32)
    norms = [
        node("Reshape", ["keys", "shape"], "heads"),
        node("SimplifiedLayerNormalization", ["heads", "head"], "normed"),
        node("Reshape", ["normed", "shape"], "key"),
    ]
    expected = SIZE**0.5 * heads.max()  # the row of one element
    last = attention(["keys", "key", *ATTENTION[2:]])
    assert bounds_of([*PRODUCT, *norms], last, head=heads)[1] == pytest.approx(expected)
    last = attention([*ATTENTION, "", "", "", "", "", "head", "head"])
    assert bounds_of(PRODUCT, last, head=heads) == pytest.approx([expected, expected, worst(MATRIX)])


INFINITE: Mapping[str, tuple[list[NodeProto], NodeProto]] = {
    "no norm": ([node("MatMul", ["x", "matrix"], "keys")], attention()),
    "the sum before a norm": (
        [
            helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x", "scale"], ["row", "", "", "sum"]),
            TRANSPOSE,
            node("MatMul", ["sum", "columns"], "keys"),
        ],
        attention(),
    ),
    "another axis": (
        [node("SimplifiedLayerNormalization", ["x", "scale"], "row", axis=1), *PRODUCT[1:]],
        attention(),
    ),
    "a computed weight": ([NORM, node("MatMul", ["row", "x"], "keys")], attention()),
    "a computed scale": ([node("SimplifiedLayerNormalization", ["x", "x"], "row"), *PRODUCT[1:]], attention()),
    "a computed bias": (
        [*PRODUCT[:2], node("MatMul", ["row", "columns"], "y"), node("Add", ["y", "x"], "keys")],
        attention(),
    ),
    "another operator": (
        [*PRODUCT[:2], node("MatMul", ["row", "columns"], "y"), node("Exp", ["y"], "keys")],
        attention(),
    ),
    "computed tables": (PRODUCT, attention([*ATTENTION[:7], "x", "sin"], do_rotary=1)),
    "norms of some heads of a packed tensor": (
        PRODUCT,
        attention(["keys", "", "", *ATTENTION[3:], *[""] * 5, "scale"]),
    ),
    "groups of a quantized weight": (
        [
            NORM,
            node("MatMulNBits", ["row", "matrix", "matrix", "", "x"], "keys", K=WIDTH, N=SIZE, bits=4, block_size=1),
        ],
        attention(),
    ),
    "a softcap": (PRODUCT, attention(softcap=30.0)),
    "sinks": (PRODUCT, attention([*ATTENTION, "", "", "scale"])),
    "a smooth softmax": (PRODUCT, attention(smooth_softmax=1)),
    "a bias of scores": (PRODUCT, attention([*ATTENTION, "", "x"])),
}


@pytest.mark.parametrize("case", INFINITE)
def test_what_is_not_known_has_no_bound(case: str) -> None:
    nodes, last = INFINITE[case]
    graph = graph_of([*nodes, last])
    assert not CacheBounds(graph, {}, None).fit(MAX_ELEMENT)
    assert CacheBounds(graph_of([*PRODUCT, attention()]), {}, None).fit(MAX_ELEMENT)


def test_weights_that_are_no_numbers_do_not_fit() -> None:
    graph = graph_of([*PRODUCT, attention()], matrix=np.full_like(MATRIX, np.nan))
    assert not CacheBounds(graph, {}, None).fit(MAX_ELEMENT)


def test_all_caches_must_be_those_of_the_operator() -> None:
    graph = graph_of([*PRODUCT, attention()])
    graph.input.append(helper.make_tensor_value_info("past_key_values.1.key", TensorProto.FLOAT, None))
    assert not CacheBounds(graph, {}, None).fit(MAX_ELEMENT)


def caches_of(folder: Path) -> Iterator[tuple[float, float]]:
    """Yield the bound and the largest element of each cache after random tokens."""
    generator = Generator.load(folder, ADAPTER)
    list(generator.generate_tokens(prompt_of(100), max_tokens=20))
    proto, _, _ = light(generator.model.network)
    bounds = CacheBounds(proto.graph, generator.model.weights, folder)
    session = cast("Any", generator)._decoding._session
    for last in proto.graph.node:
        if last.op_type == "GroupQueryAttention":
            _, *parts = bounds.of_attention(last)
            for bound, name in zip(parts, last.input[3:5], strict=True):
                yield bound, float(np.abs(bound_tensor(session, name).numpy()).max())


def test_caches_of_a_model_stay_below_their_bounds(tmp_path: Path) -> None:
    ratios = [bound / largest for bound, largest in caches_of(folder_of(tmp_path))]
    assert len(ratios) == 4
    assert min(ratios) >= 1 and max(ratios) < 20


def device_of(profile: Profile) -> Device:
    return cast("Device", SimpleNamespace(backend=SimpleNamespace(target=SimpleNamespace(profile=profile))))


def test_gpus_have_caches_of_float16_by_default(tmp_path: Path) -> None:
    model = read(folder_of(tmp_path))
    for profile in (Profile.DISCRETE, Profile.INTEGRATED):
        caches = default_caches(model, device_of(profile))
        assert caches is not None and caches.dtype == np.float16
    assert default_caches(model, device_of(Profile.CPU)) is None
    assert default_caches(model, Device(ADAPTER)) is None
