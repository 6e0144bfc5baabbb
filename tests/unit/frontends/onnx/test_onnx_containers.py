"""Sequences and optionals of ONNX models, against onnxruntime, on the adapter numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, TypeProto, helper, numpy_helper

import dmlgpu.frontends.onnxruntime as ort
from dmlgpu import InvalidArgument, NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.preview import preview
from dmlgpu.runtime.device import Device

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def tensor_type(kind: int = FLOAT, shape: Any = None) -> TypeProto:
    return helper.make_tensor_type_proto(kind, shape)


def sequence_type(kind: int = FLOAT, shape: Any = None) -> TypeProto:
    return helper.make_sequence_type_proto(tensor_type(kind, shape))


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, TypeProto],
    outputs: dict[str, TypeProto],
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "containers",
        [helper.make_value_info(name, kind) for name, kind in inputs.items()],
        [helper.make_value_info(name, kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected_of(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = model.SerializeToString()
    results: list[Any] = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    return results


def assert_same(result: Any, expected: Any, what: str = "") -> None:
    assert type(result) is type(expected), what
    if isinstance(expected, list):
        assert len(result) == len(expected), what
        for item, other in zip(result, expected, strict=True):
            assert_same(item, other, what)
    elif expected is not None:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), what
        np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=what)


def check(model: onnx.ModelProto, feeds: dict[str, Any], what: str = "") -> list[Any]:
    results = list(load(model, "numpy").run(feeds).values())
    assert_same(results, expected_of(model, feeds), what)
    return results


def program(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of random operators on a sequence, whose positions are constants or inputs, with its inputs."""
    rng = np.random.default_rng(seed)
    kind = (np.float32, np.int64, np.bool_)[seed % 3]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    tensors = {f"t{index}": (rng.standard_normal((2, 3)) * 9).astype(kind) for index in range(4)}
    feeds: dict[str, Any] = dict(tensors)
    weights: dict[str, Any] = {}
    inputs = {name: tensor_type(element, [2, 3]) for name in tensors}
    outputs: dict[str, TypeProto] = {}
    count = int(rng.integers(0, 4))
    if seed % 4 == 0:
        feeds["s"], inputs["s"] = [*tensors.values()][:count], sequence_type(element)
        nodes, sequence = [], "s"
    elif count:
        nodes, sequence = [helper.make_node("SequenceConstruct", [*tensors][:count], ["s"])], "s"
    else:
        nodes, sequence = [helper.make_node("SequenceEmpty", [], ["s"], dtype=element)], "s"

    def position(limit: int, low: int = 0) -> str:
        name, value = f"p{len(nodes)}", np.array(rng.integers(-limit, limit + 1 - low), np.int64)
        if rng.integers(2):
            weights[name] = value
        else:
            feeds[name], inputs[name] = value, tensor_type(INT64, [])
        return name

    for step in range(12):
        choice, name = rng.integers(6), f"v{step}"
        if choice <= 2 or not count:
            rest = [position(count)] if rng.integers(3) else []
            nodes.append(helper.make_node("SequenceInsert", [sequence, str(rng.choice([*tensors])), *rest], [name]))
            sequence, count = name, count + 1
        elif choice == 3:
            rest = [position(count, 1)] if rng.integers(3) else []
            nodes.append(helper.make_node("SequenceErase", [sequence, *rest], [name]))
            sequence, count = name, count - 1
        elif choice == 4:
            nodes.append(helper.make_node("SequenceAt", [sequence, position(count, 1)], [name]))
            outputs[name] = tensor_type(element)
        else:
            axis, new = int(rng.integers(-2, 2)), int(rng.integers(2))
            nodes.append(helper.make_node("ConcatFromSequence", [sequence], [name], axis=axis, new_axis=new))
            outputs[name] = tensor_type(element)
    nodes.append(helper.make_node("SequenceLength", [sequence], ["length"]))
    nodes.append(helper.make_node("Identity", [sequence], ["last"]))
    outputs |= {"length": tensor_type(INT64, []), "last": sequence_type(element)}
    return model_of(nodes, inputs, outputs, weights), feeds


@pytest.mark.slow
def test_random_programs() -> None:
    for seed in range(48):
        check(*program(seed), what=f"seed {seed}")


def test_splitting() -> None:
    x = np.arange(42, dtype=np.float32).reshape(6, 7)
    cases: list[tuple[Any, dict[str, int]]] = [
        (None, {}),
        (None, {"axis": 1, "keepdims": 0}),
        (None, {"axis": -2, "keepdims": 1}),
        (np.int64(4), {}),
        (np.int64(9), {"axis": -1}),
        (np.array([2, 0, 4]), {}),
        (np.array([1, 6]), {"axis": 1, "keepdims": 0}),
        (np.array([7], np.int32), {"axis": 1}),
    ]
    for sizes, attributes in cases:
        names = ["x"] if sizes is None else ["x", "sizes"]
        node = helper.make_node("SplitToSequence", names, ["y"], **attributes)
        weights = {} if sizes is None else {"sizes": sizes}
        model = model_of([node], {"x": tensor_type(shape=["n", 7])}, {"y": sequence_type()}, weights)
        for feed in (x, x[:0]) if sizes is None and not attributes else (x,):
            results = list(load(model, "numpy").run({"x": feed}).values())
            assert_same(results, expected_of(model, {"x": feed}), f"{sizes} {attributes}")


def test_few_integers_stay_on_the_host() -> None:
    """Shapes may come from sequences, as PyTorch's exporter has them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("SplitToSequence", ["shape"], ["sizes"], keepdims=1),
        helper.make_node("SequenceAt", ["sizes", "last"], ["columns"]),
        helper.make_node("SequenceAt", ["sizes", "zero"], ["rows"]),
        helper.make_node("Concat", ["columns", "rows"], ["turned"], axis=0),
        helper.make_node("Reshape", ["x", "turned"], ["y"]),
    ]
    weights = {"last": np.int64(-1), "zero": np.int64(0)}
    model = model_of(nodes, {"x": tensor_type(shape=["n", "m"])}, {"y": tensor_type()}, weights)
    session = load(model, "numpy", strict=True)
    for shape in ((2, 3), (4, 3), (5, 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x.reshape(shape[::-1]))


def loop_of(cond: str | None, by: str = "Identity") -> onnx.GraphProto:
    """Return a body that appends x + i to a sequence, and gathers i."""
    nodes = [
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Add", ["x", "number"], ["item"]),
        helper.make_node("SequenceInsert", ["before", "item"], ["after"]),
        helper.make_node("Identity", ["i"], ["gathered"]),
    ]
    if cond is None:
        nodes.append(helper.make_node("Identity", ["go"], ["goes"]))
    else:
        nodes += [helper.make_node("ReduceSum", ["item"], ["sum"], keepdims=0)]
        nodes += [helper.make_node("Less", ["sum", cond], ["goes"])]
    return helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_value_info("before", sequence_type()),
        ],
        [
            helper.make_tensor_value_info("goes", BOOL, []),
            helper.make_value_info("after", sequence_type()),
            helper.make_tensor_value_info("gathered", INT64, []),
        ],
    )


@pytest.mark.slow
def test_loops_of_sequences() -> None:
    """Loops by a constant count, by a count of the run, and by a condition on elements."""
    outputs = {"s": sequence_type(), "g": tensor_type(INT64), "y": tensor_type(), "n": tensor_type(INT64, [])}
    after = [
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
        helper.make_node("SequenceLength", ["s"], ["n"]),
    ]
    start = helper.make_node("SequenceConstruct", ["x"], ["start"])
    x = np.array([0.5, 1.5], np.float32)
    for count, cond in ((3, None), (None, "limit"), (0, None), (1, "limit")):
        names = ["" if count is None else "count", "", "start"]
        loop = helper.make_node("Loop", names, ["s", "g"], name="grow", body=loop_of(cond))
        weights = {"limit": np.float32(9)} | ({} if count is None else {"count": np.int64(count)})
        model = model_of([start, loop, *after], {"x": tensor_type(shape=[2])}, outputs, weights)
        check(model, {"x": x}, f"{count} {cond}")
        if count is not None:
            del model.graph.initializer[:]
            model.graph.initializer.append(numpy_helper.from_array(np.array(9, np.float32), "limit"))
            model.graph.input.append(helper.make_tensor_value_info("count", INT64, []))
            session = load(model, "numpy")
            for index in (2, 0, 4):
                feeds = {"x": x, "count": np.array(index)}
                assert_same(list(session.run(feeds).values()), expected_of(model, feeds), f"{index} {cond}")
    loop = helper.make_node("Loop", ["count", "", "start"], ["s", "g"], name="grow", body=loop_of(None))
    model = model_of([start, loop, *after], {"x": tensor_type(shape=[2])}, outputs, {"count": np.int64(5000)})
    with pytest.raises(NotSupported, match=r"'grow': a loop of sequences .* at most 1024 iterations"):
        load(model, "numpy").run({"x": x})


def test_loops_that_read_a_sequence_around_them() -> None:
    nodes = [
        helper.make_node("SequenceAt", ["s", "i"], ["item"]),
        helper.make_node("Add", ["sum", "item"], ["next"]),
        helper.make_node("Identity", ["go"], ["goes"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("sum", FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("goes", BOOL, []), helper.make_tensor_value_info("next", FLOAT, [3])],
    )
    before = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("SplitToSequence", ["squares"], ["s"], keepdims=0),
        helper.make_node("Loop", ["count", "", "zeros"], ["y"], body=body),
    ]
    weights = {"count": np.int64(4), "zeros": np.zeros(3, np.float32)}
    model = model_of(before, {"x": tensor_type(shape=[4, 3])}, {"y": tensor_type()}, weights)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(load(model, "numpy").run({"x": x})["y"], (x * x).sum(0), rtol=1e-6)


def test_branches_and_maps() -> None:
    some, none = (
        helper.make_graph([node], name, [], [helper.make_value_info("r", sequence_type())])
        for name, node in (
            ("some", helper.make_node("SequenceConstruct", ["x", "x"], ["r"])),
            ("none", helper.make_node("SequenceEmpty", [], ["r"])),
        )
    )
    double = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["b"])],
        "double",
        [helper.make_value_info("a", tensor_type())],
        [helper.make_value_info("b", tensor_type())],
    )
    nodes = [
        helper.make_node("If", ["c"], ["s"], then_branch=some, else_branch=none),
        helper.make_node("SequenceMap", ["s"], ["y"], body=double),
    ]
    inputs = {"x": tensor_type(shape=[3]), "c": tensor_type(BOOL, [])}
    model = model_of(nodes, inputs, {"y": sequence_type()})
    session, x = load(model, "numpy"), np.array([1, 2, 3], np.float32)
    assert_same(session.run({"x": x, "c": np.array(True)})["y"], [2 * x, 2 * x])
    assert_same(session.run({"x": x, "c": np.array(False)})["y"], [])


def test_inputs_and_outputs() -> None:
    """Lists of arrays, None, and their descriptions by InferenceSession, as in onnxruntime."""
    optional = helper.make_optional_type_proto
    inputs = {
        "s": sequence_type(shape=["n", 2]),
        "o": optional(tensor_type(shape=[2])),
        "q": optional(sequence_type(INT64)),
        "x": tensor_type(shape=["n"]),
    }
    nodes = [helper.make_node("Identity", [name], [f"{name}_"]) for name in inputs]
    nodes += [helper.make_node("OptionalHasElement", [name], [f"has_{name}"]) for name in ("o", "q")]
    outputs = {f"{name}_": kind for name, kind in inputs.items()} | {f"has_{n}": tensor_type(BOOL, []) for n in "oq"}
    model = model_of(nodes, inputs, outputs)
    session = load(model, "numpy")
    assert "s: sequence of float32[n, 2], o: optional of float32[2], q: optional sequence of int64[...]" in repr(
        session
    )
    full: dict[str, Any] = {
        "s": [np.ones((3, 2), np.float32), np.zeros((1, 2), np.float32)],
        "o": np.ones(2, np.float32),
        "q": [np.array(3), np.array([4, 5])],
        "x": np.arange(4, dtype=np.float32),
    }
    own = ort.InferenceSession(model.SerializeToString(), device="numpy")
    options = onnxruntime.SessionOptions()
    other = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [(x.name, x.type) for x in own.get_inputs()] == [(x.name, x.type) for x in other.get_inputs()]
    for feeds in (full, {**full, "o": None, "q": None}, {**full, "s": [], "q": []}, full):
        results = session.run(feeds)
        for name in inputs:
            assert_same(results[f"{name}_"], feeds[name], name)
        assert [bool(results[f"has_{name}"]) for name in "oq"] == [feeds["o"] is not None, feeds["q"] is not None]
        assert_same(own.run(None, feeds), list(results.values()))
        tensors = session.run_tensors(feeds)["s_"]
        assert isinstance(tensors, list)
    for wrong, text in (
        ({"s": np.ones((2, 3, 2), np.float32)}, "input 's' must be a list of arrays of float32"),
        ({"s": None}, "input 's' must be a list of arrays of float32"),
        ({"s": [np.ones((3, 2))]}, "input 's' must be of float32, got float64"),
        ({"s": [np.ones((3, 4), np.float32)]}, "input 's' must have size 2 in dimension 1"),
        ({"o": np.ones(3, np.float32)}, "input 'o' must have size 2 in dimension 0"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            session.run({**full, **wrong})
    with pytest.raises(InvalidArgument, match="name must be one of the inputs x, got 's'"):
        session.bind("s", full["x"])


def test_checks_and_previews() -> None:
    """Models with sequences inside, and among inputs and outputs."""
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["longer"], name="insert"),
        helper.make_node("SequenceAt", ["longer", "zero"], ["first"], name="at"),
        helper.make_node("Mul", ["first", "x"], ["y"], name="mul"),
    ]
    inputs = {"s": sequence_type(shape=[3]), "x": tensor_type(shape=[3])}
    model = model_of(nodes, inputs, {"y": tensor_type(), "longer": sequence_type()}, {"zero": np.int64(0)})
    x = np.arange(3, dtype=np.float32)
    session = load(model, "numpy")
    check = session.check({"s": [x + 1], "x": x})
    assert (check.faults, check.against["reference"], check.against["onnxruntime"]) == ((), "", "")
    assert [(placed.node, placed.where) for placed in session.placement] == []
    session.run({"s": [x + 1], "x": x})
    places = {placed.node: placed.where for placed in session.placement}
    assert places["insert"] == places["at"] == "none"
    assert places["mul"] == "device"
    shown = preview(model, Device("numpy"))
    assert not shown.fails
    with pytest.raises(NotSupported, match=r"map in other processes passes only tensors, and 's' is none"):
        session.map([{"s": [x], "x": x}], adapters="numpy")
    session.compile({"s": [x, x]})
    assert len(session.run({"s": [x, x], "x": x})["longer"]) == 3


def test_rejected_models() -> None:
    x = {"x": tensor_type(shape=[3])}
    construct = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    cases: list[tuple[list[onnx.NodeProto], TypeProto, str]] = [
        (
            [helper.make_node("SequenceAt", ["s", "five"], ["y"], name="it")],
            tensor_type(),
            "position must be between -2",
        ),
        ([helper.make_node("Neg", ["s"], ["y"], name="it")], tensor_type(), "must be of type .*got seq"),
        (
            [helper.make_node("SequenceInsert", ["s", "five"], ["y"], name="it")],
            sequence_type(),
            "of the type of the seq",
        ),
        (
            [
                helper.make_node("SplitToSequence", ["x", "five"], ["t"], name="it"),
                helper.make_node("Neg", ["x"], ["y"]),
            ],
            tensor_type(),
            "",
        ),
        (
            [helper.make_node("SequenceEmpty", [], ["e"]), helper.make_node("SequenceErase", ["e"], ["y"], name="it")],
            sequence_type(),
            "the sequence has no tensors",
        ),
        (
            [
                helper.make_node("Optional", [], ["o"], type=tensor_type()),
                helper.make_node("OptionalGetElement", ["o"], ["y"], name="it"),
            ],
            tensor_type(),
            "the optional has no element",
        ),
    ]
    for nodes, output, text in cases:
        model = model_of([construct, *nodes], x, {"y": output}, {"five": np.int64(5)})
        if not text:
            load(model, "numpy").run({"x": np.ones(3, np.float32)})
            continue
        with pytest.raises((NotSupported, InvalidArgument), match=f"'it'.*{text}"):
            load(model, "numpy").run({"x": np.ones(3, np.float32)})
    nested = helper.make_sequence_type_proto(sequence_type())
    with pytest.raises(NotSupported, match=r"'x': must be a tensor, or a .* got sequence of sequence of tensor"):
        load(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": nested}, {"y": nested}), "numpy")
