"""Model-local functions: attributes, names, versions of operator sets, bodies; expected values are onnxruntime's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import erf
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.frontends.onnx import load, rewriting
from dmlgpu.frontends.onnx.preview import preview
from dmlgpu.runtime.device import Device
from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LOCAL = "local"
X = np.array([-2, -1, 0.5, 3], np.float32)

KINDS = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
}


def referring(node: onnx.NodeProto, **attributes: tuple[str, str]) -> onnx.NodeProto:
    """Return the node with attributes that refer to the function's: name=(name there, kind)."""
    for name, (there, kind) in attributes.items():
        node.attribute.add(name=name, ref_attr_name=there, type=KINDS[kind])
    return node


def function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[onnx.NodeProto],
    *,
    declared: Sequence[str] = (),
    opset: int = 18,
    overload: str = "",
    **defaults: Any,
) -> onnx.FunctionProto:
    return helper.make_function(
        LOCAL,
        name,
        list(inputs),
        list(outputs),
        list(nodes),
        [helper.make_opsetid("", opset), helper.make_opsetid(LOCAL, 1)],
        list(declared),
        [helper.make_attribute(key, value) for key, value in defaults.items()],
        overload=overload,
    )


def call(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **rest: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), domain=LOCAL, **rest)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    functions: Sequence[onnx.FunctionProto],
    *,
    shape: Sequence[int] = (4,),
    outputs: Sequence[str] = ("y",),
    weights: dict[str, Any] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "main",
        [helper.make_tensor_value_info("x", FLOAT, list(shape))],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(LOCAL, 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=imports, ir_version=10)


def check(model: onnx.ModelProto, x: np.ndarray = X) -> list[np.ndarray]:
    """Compare with onnxruntime, and return the outputs."""
    result = list(load(model, "numpy").run({"x": x}).values())
    for array, expected in zip(result, onnxruntime_outputs(model, {"x": x}), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    return result


# ---- attributes


def leaky(**defaults: Any) -> onnx.FunctionProto:
    node = referring(helper.make_node("LeakyRelu", ["a"], ["b"]), alpha=("slope", "f"))
    return function("Leaky", ["a"], ["b"], [node], declared=() if defaults else ["slope"], **defaults)


@pytest.mark.parametrize(
    ("defaults", "attributes", "slope"),
    [
        ({"slope": 0.25}, {}, 0.25),
        ({"slope": 0.25}, {"slope": 0.5}, 0.5),
        ({}, {"slope": 0.5}, 0.5),
        ({}, {}, 0.01),  # the operator's own default
    ],
)
def test_defaults_of_attributes(defaults: dict[str, Any], attributes: dict[str, Any], slope: float) -> None:
    (result,) = check(model_of([call("Leaky", ["x"], ["y"], **attributes)], [leaky(**defaults)]))
    np.testing.assert_allclose(result, np.where(X < 0, slope * X, X), rtol=1e-6)


@pytest.mark.parametrize("attributes", [{}, {"outer": 0.75}])
@pytest.mark.parametrize("defaults", [{}, {"outer": 0.5}])
def test_functions_hand_attributes_on(defaults: dict[str, Any], attributes: dict[str, Any]) -> None:
    # If the outer function has no attribute to pass, the inner function's default counts.
    inner = referring(call("Leaky", ["c"], ["d"]), slope=("outer", "f"))
    outer = function("Outer", ["c"], ["d"], [inner], declared=() if defaults else ["outer"], **defaults)
    (result,) = check(model_of([call("Outer", ["x"], ["y"], **attributes)], [leaky(slope=0.25), outer]))
    slope = {"outer": 0.25, **defaults, **attributes}["outer"]
    np.testing.assert_allclose(result, np.where(X < 0, slope * X, X), rtol=1e-6)


@pytest.mark.parametrize("is_given", [False, True])
def test_attributes_of_every_kind(is_given: bool) -> None:
    nodes = [
        referring(helper.make_node("Constant", [], ["number"]), value_float=("number", "f")),
        referring(helper.make_node("Constant", [], ["row"]), value_floats=("row", "floats")),
        referring(helper.make_node("Constant", [], ["whole"]), value=("whole", "t")),
        referring(helper.make_node("Constant", [], ["sizes"]), value_ints=("sizes", "ints")),
        helper.make_node("Mul", ["a", "number"], ["b"]),
        helper.make_node("Add", ["b", "row"], ["c"]),
        helper.make_node("Add", ["c", "whole"], ["d"]),
        helper.make_node("Reshape", ["d", "sizes"], ["e"]),
        referring(helper.make_node("Softmax", ["e"], ["f"]), axis=("axis", "i")),
        referring(helper.make_node("Pad", ["f", "pads"], ["g"]), mode=("mode", "s")),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["pads"], value_ints=[1, 0, 0, 0]))
    defaults: dict[str, Any] = {
        "number": 2.0,
        "row": [0.0, 1.0, 0.0, 1.0],
        "whole": numpy_helper.from_array(np.float32([1, 2, 3, 4])),
        "sizes": [2, 2],
        "axis": 0,
        "mode": "edge",
    }
    attributes: dict[str, Any] = {
        "number": -1.0,
        "row": [1.0, 0.0, 0.0, 0.0],
        "whole": numpy_helper.from_array(np.float32([4, 3, 2, 1])),
        "sizes": [4, 1],
        "axis": 1,
        "mode": "constant",
    }
    several = function("Several", ["a"], ["g"], nodes, **defaults)
    chosen = attributes if is_given else defaults
    (result,) = check(model_of([call("Several", ["x"], ["y"], **(attributes if is_given else {}))], [several]))
    flat = X * chosen["number"] + chosen["row"] + numpy_helper.to_array(chosen["whole"])
    exponentials = np.exp(flat.reshape(chosen["sizes"]))
    softmax = exponentials / exponentials.sum(chosen["axis"], keepdims=True)
    np.testing.assert_allclose(result, np.pad(softmax, ((1, 0), (0, 0)), chosen["mode"]), rtol=1e-5)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    return helper.make_graph(list(nodes), name, [], [output])


def test_attributes_in_bodies() -> None:
    # A reference in a branch, two levels down, and names that both branches have.
    then = branch("then", referring(helper.make_node("LeakyRelu", ["a"], ["t"]), alpha=("slope", "f")))
    inner = helper.make_node(
        "If", ["c"], ["t"], then_branch=then, else_branch=branch("no", helper.make_node("Neg", ["a"], ["t"]))
    )
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("ReduceMax", ["a"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "zero"], ["c"]),
        helper.make_node(
            "If",
            ["c"],
            ["b"],
            then_branch=branch("outer", inner),
            else_branch=branch("minus", helper.make_node("Neg", ["a"], ["t"])),
        ),
    ]
    chosen = function("Chosen", ["a"], ["b"], nodes, slope=0.25)
    model = model_of([call("Chosen", ["x"], ["t"]), call("Chosen", ["t"], ["y"], slope=2.0)], [chosen])
    (result,) = check(model)
    np.testing.assert_allclose(result, np.where(X < 0, 0.5 * X, X))
    (result,) = check(model, -np.abs(X))
    np.testing.assert_allclose(result, np.abs(X))


def loop_body() -> onnx.GraphProto:
    return helper.make_graph(
        [
            helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(np.float32([1, 2, 3, 4]))),
            helper.make_node("Mul", ["w", "k"], ["x"]),  # a name of the main graph
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Add", ["next", "a"], ["row"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [4]),
            helper.make_tensor_value_info("row", FLOAT, [4]),
        ],
        [numpy_helper.from_array(np.float32(2), "k")],
    )


def test_loops_in_functions_keep_names_apart() -> None:
    nodes = [
        helper.make_node("Constant", [], ["count"], value_int=3),
        helper.make_node("Loop", ["count", "", "a"], ["last", "rows"], body=loop_body()),
        helper.make_node("ReduceSum", ["rows"], ["total"], keepdims=0),
        helper.make_node("Mul", ["last", "total"], ["state"]),
    ]
    looped = function("Looped", ["a"], ["state"], nodes)
    (result,) = check(model_of([call("Looped", ["x"], ["k"]), call("Looped", ["k"], ["y"])], [looped]))

    def expected(a: np.ndarray) -> np.ndarray:
        step = np.float32([2, 4, 6, 8])
        return (a + 3 * step) * sum((2 * a + count * step).sum() for count in (1, 2, 3))

    np.testing.assert_allclose(result, expected(expected(X)), rtol=1e-5)


def test_bodies_as_attributes_of_functions() -> None:
    # The body is the caller's: it reads the caller's names, and refers to the caller's attributes.
    chosen = referring(helper.make_node("If", ["c"], ["z"]), then_branch=("yes", "g"), else_branch=("no", "g"))
    choose = function("Choose", ["c"], ["z"], [chosen], declared=["yes", "no"])
    yes = branch("yes", referring(helper.make_node("LeakyRelu", ["z"], ["c"]), alpha=("slope", "f")))
    nodes = [
        helper.make_node("Abs", ["a"], ["z"]),
        helper.make_node("Neg", ["z"], ["z2"]),
        helper.make_node("Constant", [], ["truth"], value=numpy_helper.from_array(np.array(True))),
        call("Choose", ["truth"], ["b"], yes=yes, no=branch("no", helper.make_node("Neg", ["a"], ["c"]))),
        helper.make_node("Add", ["b", "z2"], ["out"]),
    ]
    outer = function("Outer", ["a"], ["out"], nodes, slope=0.25)
    result = load(model_of([call("Outer", ["x"], ["y"])], [outer, choose]), "numpy").run({"x": X})
    np.testing.assert_allclose(result["y"], np.zeros(4))


# ---- inputs, outputs, names


def test_absent_inputs_and_outputs() -> None:
    clip = function(
        "Cut",
        ["a", "low", "high"],
        ["b", "c"],
        [
            helper.make_node("Clip", ["a", "low", "high"], ["b"]),
            helper.make_node("Neg", ["b"], ["c"]),
        ],
    )
    model = model_of(
        [call("Cut", ["x", "", "high"], ["b"]), call("Cut", ["b", "low"], ["", "y"])],
        [clip],
        weights={"high": np.float32(1), "low": np.float32(-1)},
    )
    result = load(model, "numpy").run({"x": X})
    np.testing.assert_allclose(result["y"], -np.clip(X, -1, 1))


def test_outputs_that_are_inputs_or_constants() -> None:
    odd = function(
        "Odd",
        ["a", "b"],
        ["b", "k", "a", "c"],
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(X * 3)),
            helper.make_node("Add", ["a", "k"], ["c"]),
        ],
    )
    swap = function("Swap", ["a", "b"], ["b", "a"], [])
    model = model_of(
        [call("Odd", ["x", "w"], ["p", "q", "r", "s"]), call("Swap", ["p", "r"], ["t", "u"])],
        [odd, swap],
        outputs=["p", "q", "r", "s", "t", "u"],
        weights={"w": X * 2},
    )
    result = load(model, "numpy").run({"x": X})
    for name, expected in {"p": X * 2, "q": X * 3, "r": X, "s": X * 4, "t": X, "u": X * 2}.items():
        np.testing.assert_allclose(result[name], expected, err_msg=name)


def test_overloads() -> None:
    double = function("Scale", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], overload="double")
    square = function("Scale", ["a"], ["b"], [helper.make_node("Mul", ["a", "a"], ["b"])], overload="square")
    nodes = [call("Scale", ["x"], ["b"], overload="square"), call("Scale", ["b"], ["y"], overload="double")]
    result = load(model_of(nodes, [double, square]), "numpy").run({"x": X})
    np.testing.assert_allclose(result["y"], 2 * X * X)


def test_names_say_where_nodes_are() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["t"], name="minus"), helper.make_node("Abs", ["t"], ["b"])]
    plain = function("Plain", ["a"], ["b"], nodes)
    outer = function("Outer", ["a"], ["b"], [call("Plain", ["a"], ["b"], name="inner")])
    model = model_of([call("Outer", ["x"], ["t"], name="first"), call("Plain", ["t"], ["y"])], [outer, plain])
    session = load(model, "numpy")
    session.run({"x": X})
    assert [placement.node for placement in session.placement] == [
        "first/inner/minus",
        "first/inner/b",
        "y/minus",
        "y/b",
    ]
    assert preview(model, Device("numpy")).operators == ("Neg", "Abs", "Neg", "Abs")


def test_functions_that_call_themselves() -> None:
    first = function("First", ["a"], ["b"], [call("Second", ["a"], ["b"])])
    second = function("Second", ["a"], ["b"], [call("First", ["a"], ["b"], name="again")])
    with pytest.raises(ModelError, match=r"calls itself|must not be recursive"):
        load(model_of([call("First", ["x"], ["y"])], [first, second]), "numpy")


def test_functions_that_grow_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "MAX_NODES", 1000)
    functions = [function("F0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])])]
    for index in range(1, 30):
        nodes = [call(f"F{index - 1}", ["a"], ["t"]), call(f"F{index - 1}", ["t"], ["b"])]
        functions.append(function(f"F{index}", ["a"], ["b"], nodes))
    check(model_of([call("F3", ["x"], ["y"])], functions))
    with pytest.raises(ModelError, match="those of functions included"):
        load(model_of([call("F29", ["x"], ["y"])], functions), "numpy")
    functions = [function("F0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])])]
    functions += [function(f"F{index}", ["a"], ["b"], [call(f"F{index - 1}", ["a"], ["b"])]) for index in range(1, 70)]
    with pytest.raises(ModelError, match="nested at most 64 deep"):
        load(model_of([call("F69", ["x"], ["y"])], functions), "numpy")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, r"If 'y/z': must have the attribute else_branch, which the call of its function does not give"),
        ({"no": 3}, r"If 'y/z': attribute else_branch must be of type GRAPH, got INT"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    then = branch("then", helper.make_node("Neg", ["a"], ["t"]))
    chosen = helper.make_node("If", ["c"], ["z"], then_branch=then)
    truth = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    nodes = [truth, referring(chosen, else_branch=("no", "g"))]
    choose = function("Choose", ["a"], ["z"], nodes, declared=["no"])
    with pytest.raises(ModelError, match=message):
        load(model_of([call("Choose", ["x"], ["y"], **attributes)], [choose]), "numpy")


def test_names_that_are_not_text() -> None:
    data = model_of(
        [call("Leaky", ["x"], ["between"]), call("Leaky", ["between"], ["y"])], [leaky()]
    ).SerializeToString()
    for name in (b"between", b"Leaky", b"alpha"):
        with pytest.raises(ModelError, match="model: a name is not UTF-8: b'"):
            load(data.replace(name, name[:-1] + b"\xff"), "numpy")


def test_wrong_calls() -> None:
    with pytest.raises(ModelError, match=r"Leaky 'y': must have at most the function's 1 inputs, got 2"):
        load(model_of([call("Leaky", ["x", "x"], ["y"])], [leaky()]), "numpy")
    unknown = function("Unknown", ["a"], ["b"], [helper.make_node("StringConcat", ["a", "a"], ["b"])], opset=20)
    with pytest.raises(NotSupported, match=r"StringConcat \(1, first 'y/b'\)"):
        load(model_of([call("Unknown", ["x"], ["y"])], [unknown], opset=20), "numpy")


# ---- weights


def test_normalizations_in_functions_fold_into_convolutions() -> None:
    rng = np.random.default_rng(0)
    names = ["w", "scale", "offset", "mean", "variance"]
    block = function(
        "Block",
        ["a", *names],
        ["c"],
        [
            helper.make_node("Conv", ["a", "w"], ["b"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", ["b", *names[1:]], ["c"], name="norm"),
        ],
    )
    weights = {
        f"{name}{index}": rng.uniform(0.5, 1, (3, 3, 3, 3) if name == "w" else 3).astype(np.float32)
        for name in names
        for index in (0, 1)
    }
    nodes = [
        call("Block", ["x", *(f"{name}0" for name in names)], ["t"], name="first"),
        call("Block", ["t", *(f"{name}1" for name in names)], ["y"], name="second"),
    ]
    model = model_of(nodes, [block], shape=(1, 3, 5, 5), weights=weights)
    x = rng.standard_normal((1, 3, 5, 5)).astype(np.float32)
    (expected,) = onnxruntime_outputs(model, {"x": x})
    session = load(model, "numpy")
    np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    places = {placement.node: placement for placement in session.placement}
    assert places["first/norm"].why == "it is in the filter of Conv 'first/conv'"
    assert "second/norm" in places
    assert places["second/conv"].operators == ("CONVOLUTION",)


# ---- versions


def test_functions_of_other_operator_sets() -> None:
    # Softmax before 13 is over all dimensions from an axis on; ReduceSum takes axes as attribute before 13.
    old = function(
        "Old",
        ["a"],
        ["b"],
        [
            helper.make_node("Softmax", ["a"], ["t"], axis=1),
            helper.make_node("ReduceSum", ["t"], ["b"], axes=[2], keepdims=0),
        ],
        opset=11,
    )
    new = function(
        "New",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["axes"], value_ints=[2]),
            helper.make_node("Softmax", ["a"], ["t"], axis=1),
            helper.make_node("ReduceSum", ["t", "axes"], ["b"], keepdims=0),
        ],
        opset=18,
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    model = model_of(
        [call("Old", ["x"], ["y"]), call("New", ["x"], ["z"])],
        [old, new],
        shape=(2, 3, 4),
        outputs=["y", "z"],
        opset=20,
    )
    result = load(model, "numpy").run({"x": x})
    exponentials = np.exp(x)
    flat = exponentials / exponentials.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(result["y"], flat.sum(2), rtol=1e-5)
    np.testing.assert_allclose(result["z"], (exponentials / exponentials.sum(1, keepdims=True)).sum(2), rtol=1e-5)


def test_versions_reach_bodies_and_functions_of_onnx() -> None:
    # In the branch, and in a call of a call; Gelu is one of ONNX's own functions of 20, which the model does not have.
    softmax = helper.make_node("Softmax", ["a"], ["t"], axis=1)
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node(
            "If",
            ["c"],
            ["b"],
            then_branch=branch("yes", softmax),
            else_branch=branch("no", helper.make_node("Neg", ["a"], ["t"])),
        ),
    ]
    old = function("Old", ["a"], ["b"], nodes, opset=9)
    new = function("New", ["a"], ["d"], [call("Old", ["a"], ["b"]), helper.make_node("Gelu", ["b"], ["d"])], opset=20)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    result = load(model_of([call("New", ["x"], ["y"])], [old, new], shape=(2, 3, 4), opset=13), "numpy").run({"x": x})
    flat = np.exp(x) / np.exp(x).sum((1, 2), keepdims=True)
    expected = 0.5 * flat * (1 + np.vectorize(erf)(flat / np.sqrt(2)))
    np.testing.assert_allclose(result["y"], expected, rtol=1e-5)


def test_operator_sets_that_only_functions_import() -> None:
    node = helper.make_node("FastGelu", ["a"], ["b"], domain="com.microsoft")
    fast = helper.make_function(LOCAL, "Fast", ["a"], ["b"], [node], [helper.make_opsetid("com.microsoft", 1)])
    result = load(model_of([call("Fast", ["x"], ["y"])], [fast]), "numpy").run({"x": X})
    expected = 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)))
    np.testing.assert_allclose(result["y"], expected, rtol=1e-4)


def test_operator_sets_that_are_too_old_or_too_new() -> None:
    unchanged = function("Old", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opset=6)
    np.testing.assert_array_equal(
        load(model_of([call("Old", ["x"], ["y"])], [unchanged]), "numpy").run({"x": X})["y"], -X
    )
    too_old = function("Old", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opset=6)
    with pytest.raises(NotSupported, match="operator set must be at least 7 for Add, got 6"):
        load(model_of([call("Old", ["x"], ["y"])], [too_old]), "numpy")
    newest = onnx.defs.onnx_opset_version()
    too_new = function("New", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opset=newest + 1)
    in_function = model_of([call("New", ["x"], ["y"])], [too_new])
    in_graph = model_of([helper.make_node("Neg", ["x"], ["y"])], [], opset=99)
    others = model_of([helper.make_node("Neg", ["x"], ["y"])], [])
    others.opset_import.append(helper.make_opsetid("ai.onnx.ml", 99))
    for model, text in (
        (in_function, rf"of ai\.onnx must be at most {newest}, .*, got {newest + 1}; install a newer onnx"),
        (in_graph, rf"of ai\.onnx must be at most {newest}, .*, got 99"),
        (others, r"of ai\.onnx\.ml must be at most \d+, .*, got 99"),
    ):
        with pytest.raises(NotSupported, match=text):
            load(model, "numpy")


def test_the_two_names_of_onnxs_domain() -> None:
    """Nodes, imports, bodies and functions may use either."""
    for domain, imported in itertools.product(("", "ai.onnx"), repeat=2):
        inner = helper.make_node("Exp", ["x"], ["t"], domain=domain)
        info = helper.make_tensor_value_info("t", FLOAT, None)
        body = helper.make_graph([inner], "body", [], [info])
        nodes = [
            helper.make_node("If", ["c"], ["b"], domain=domain, then_branch=body, else_branch=body),
            helper.make_node("Constant", [], ["two"], domain=domain, value_float=2.0),
            helper.make_node("Mul", ["b", "two"], ["m"], domain=domain),
            call("Local", ["m"], ["y"]),
        ]
        local = helper.make_function(
            LOCAL,
            "Local",
            ["a"],
            ["b"],
            [helper.make_node("Neg", ["a"], ["b"], domain=domain)],
            [helper.make_opsetid(imported, 18)],
        )
        model = model_of(nodes, [local], weights={"c": np.array(True)})
        for entry in model.opset_import:
            entry.domain = imported if not entry.domain else entry.domain
        before = model.SerializeToString()
        for source in (model, before):
            result = load(source, "numpy").run({"x": X})["y"]
            np.testing.assert_allclose(result, -2 * np.exp(X), rtol=1e-5, err_msg=f"{domain!r} {imported!r}")
        assert model.SerializeToString() == before, "the model that was passed must not change"
    model.opset_import.append(helper.make_opsetid("", 12))
    with pytest.raises(ModelError, match=r"imports operator sets .* and 12 of ai\.onnx"):
        load(model, "numpy")


def test_deprecated_operators_in_functions() -> None:
    # Scale and bias are per group in 18, per channel from 21 on.
    node = helper.make_node("GroupNormalization", ["a", "scale", "bias"], ["b"], num_groups=2)
    old = function("Old", ["a", "scale", "bias"], ["b"], [node], opset=18)
    new = function("New", ["a", "scale", "bias"], ["b"], [node], opset=21)
    nodes = [call("Old", ["x", "s2", "b2"], ["y"]), call("New", ["x", "s4", "b4"], ["z"])]
    weights = {
        "s2": np.float32([2, 3]),
        "b2": np.float32([0, 1]),
        "s4": np.float32([2, 3, 4, 5]),
        "b4": np.arange(4.0, dtype=np.float32),
    }
    x = np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32)
    model = model_of(nodes, [old, new], shape=(2, 4, 5), outputs=["y", "z"], weights=weights, opset=21)
    result = load(model, "numpy").run({"x": x})
    groups = x.reshape(2, 2, 10)
    groups = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    by_group = (groups * weights["s2"][:, None] + weights["b2"][:, None]).reshape(x.shape)
    by_channel = groups.reshape(x.shape) * weights["s4"][:, None] + weights["b4"][:, None]
    np.testing.assert_allclose(result["y"], by_group, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result["z"], by_channel, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", ["initializer", "constant", "outer", "weight"])
def test_bodies_in_functions_of_onnx_read_what_is_around_them(place: str) -> None:
    # FlexAttention is a function of other operators, which the body of score_mod becomes part of.
    bias = numpy_helper.from_array(np.array(0.5, np.float32) * np.arange(3, dtype=np.float32), "bias")
    nodes = [helper.make_node("Add", ["score", "bias"], ["changed"])]
    nodes = [helper.make_node("Constant", [], ["bias"], value=bias), *nodes] if place == "constant" else nodes
    score, changed = (helper.make_tensor_value_info(name, FLOAT, None) for name in ("score", "changed"))
    mod = helper.make_graph(nodes, "mod", [score], [changed], [bias] if place == "initializer" else [])
    before = [helper.make_node("Mul", ["steps", "half"], ["bias"])] if place == "outer" else []
    weights = {
        "steps": np.arange(3, dtype=np.float32),
        "half": np.float32(0.5),
        **({"bias": numpy_helper.to_array(bias)} if place == "weight" else {}),
    }
    flex = helper.make_node("FlexAttention", ["x", "x", "x"], ["y"], domain="ai.onnx.preview", score_mod=mod)
    model = model_of([*before, flex], [], shape=(1, 2, 3, 4), weights=weights, opset=26)
    model.opset_import.append(helper.make_opsetid("ai.onnx.preview", 1))
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    result = load(model, "numpy").run({"x": x})["y"]
    scores = np.exp(x @ x.swapaxes(-1, -2) / 2 + 0.5 * np.arange(3))
    np.testing.assert_allclose(result, scores / scores.sum(-1, keepdims=True) @ x, rtol=1e-4, atol=1e-5)
