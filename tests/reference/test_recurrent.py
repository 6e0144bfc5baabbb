"""Recurrent networks against ONNX's reference evaluator, onnxruntime, and formulas written out for single numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from tests.reference.helpers import tensor

STEPS, SEQUENCES, INPUTS, HIDDEN = 6, 4, 3, 5
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
CLASSES = {"RNN": descs.Rnn, "LSTM": descs.Lstm, "GRU": descs.Gru}
DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}
SIGMOID, TANH = descs.ActivationSigmoid(), descs.ActivationTanh()
DEFAULTS = {"RNN": (TANH,), "LSTM": (SIGMOID, TANH, TANH), "GRU": (SIGMOID, TANH)}
OPTIONAL = ("bias", "hidden", "cell", "peephole")
ONNX_ORDER = {
    "RNN": ("x", "w", "r", "bias", "lengths", "hidden"),
    "LSTM": ("x", "w", "r", "bias", "lengths", "hidden", "cell", "peephole"),
    "GRU": ("x", "w", "r", "bias", "lengths", "hidden"),
}
FIELDS = {
    "x": "input_tensor",
    "w": "weight_tensor",
    "r": "recurrence_tensor",
    "bias": "bias_tensor",
    "hidden": "hidden_init_tensor",
    "cell": "cell_mem_init_tensor",
    "lengths": "sequence_lengths_tensor",
    "peephole": "peephole_tensor",
}
FLAGS: dict[str, dict[str, Any]] = {
    "RNN": {},
    "LSTM": {"clip_threshold": 0.0, "use_clip_threshold": False, "couple_input_forget": False},
    "GRU": {"linear_before_reset": False},
}


def arrays(operator: str, directions: int, optional: Sequence[str] = (), lengths: Any = None) -> dict[str, Any]:
    """Contents in ONNX's sizes."""
    rng = np.random.default_rng(len(operator) + 10 * directions)
    rows, state = GATES[operator] * HIDDEN, (directions, SEQUENCES, HIDDEN)
    sizes = {
        "x": (STEPS, SEQUENCES, INPUTS),
        "w": (directions, rows, INPUTS),
        "r": (directions, rows, HIDDEN),
        "bias": (directions, 2 * rows),
        "hidden": state,
        "cell": state,
        "peephole": (directions, 3 * HIDDEN),
    }
    expected = ("x", "w", "r", *(name for name in optional if name in ONNX_ORDER[operator]))
    result = {name: rng.standard_normal(sizes[name]).astype(np.float32) for name in expected}
    return result | ({} if lengths is None else {"lengths": np.array(lengths, np.int32)})


def model(operator: str, feeds: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """The ONNX node as a model."""
    names = [name if name in feeds else "" for name in ONNX_ORDER[operator]]
    outputs = ["y", "y_h", "y_c"][: 3 if operator == "LSTM" else 2]
    node = helper.make_node(operator, names, outputs, hidden_size=HIDDEN, **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    result = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    graph = helper.make_graph([node], operator, declared, result)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def by_runtime(operator: str, feeds: dict[str, Any], **attributes: Any) -> list[Any]:
    """Evaluate by onnxruntime, on the CPU."""
    text = model(operator, feeds, attributes).SerializeToString()
    return onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]).run(None, feeds)


def by_evaluator(operator: str, feeds: dict[str, Any], **attributes: Any) -> list[Any]:
    """Evaluate by ONNX's reference evaluator."""
    return ReferenceEvaluator(model(operator, feeds, attributes)).run(None, feeds)


def ours(
    operator: str,
    inputs: dict[str, Any],
    direction: RecurrentNetworkDirection = RecurrentNetworkDirection.FORWARD,
    activations: tuple[OperatorDesc, ...] | None = None,
    **flags: Any,
) -> list[Any]:
    """Evaluate by the reference, in ONNX's sizes."""
    directions = inputs["w"].shape[0]
    stored = {FIELDS[name]: _stored(name, array) for name, array in inputs.items()}
    shape = (directions, inputs["x"].shape[1], inputs["r"].shape[2])
    sequence, single = np.empty((inputs["x"].shape[0], *shape), np.float32), np.empty((1, *shape), np.float32)
    outputs = {"output_sequence_tensor": tensor(sequence), "output_single_tensor": tensor(single)}
    if operator == "LSTM":
        outputs["output_cell_single_tensor"] = tensor(single)
    desc = CLASSES[operator](
        **{field: tensor(array) for field, array in stored.items()},
        **outputs,
        direction=direction,
        activation_descs=activations or DEFAULTS[operator] * directions,
        **{**FLAGS[operator], **flags},
    )
    result = reference.evaluate(desc, [stored.get(slot.field) for slot in desc.inputs])
    return [result[0], *(state[0] for state in result[1:])]


def _stored(name: str, array: Any) -> Any:
    """Return ONNX's array in DirectML's four dimensions."""
    if name == "lengths":
        return array.astype(np.uint32).reshape(1, 1, 1, -1)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def agree(results: list[Any], expected: list[Any]) -> None:
    assert len(results) == len(expected)
    for result, other in zip(results, expected, strict=True):
        assert result.shape == other.shape
        np.testing.assert_allclose(result, other, rtol=2e-5, atol=2e-5)


LENGTHS = [None, (6, 1, 3, 5)]
ALL = pytest.mark.parametrize("operator", GATES)


@ALL
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=["whole", "short"])
@pytest.mark.parametrize("optional", [(), ("bias",), OPTIONAL], ids=["bare", "bias", "all"])
def test_agrees_with_onnxruntime(operator: str, direction: str, lengths: Any, optional: tuple[str, ...]) -> None:
    inputs = arrays(operator, 2 if direction == "bidirectional" else 1, optional, lengths)
    agree(ours(operator, inputs, DIRECTIONS[direction]), by_runtime(operator, inputs, direction=direction))


@ALL
@pytest.mark.parametrize("optional", [(), ("bias", "hidden")], ids=["bare", "all"])
def test_agrees_with_the_reference_evaluator(operator: str, optional: tuple[str, ...]) -> None:
    inputs = arrays(operator, 1, optional)
    result, expected = ours(operator, inputs), by_evaluator(operator, inputs)
    agree(result[: len(expected)], expected)


@pytest.mark.parametrize("evaluate", [by_runtime, by_evaluator])
@pytest.mark.parametrize("optional", [(), ("bias", "hidden")], ids=["bare", "all"])
def test_gru_with_the_reset_after_the_product(evaluate: Any, optional: tuple[str, ...]) -> None:
    inputs = arrays("GRU", 1, optional)
    agree(ours("GRU", inputs, linear_before_reset=True), evaluate("GRU", inputs, linear_before_reset=1))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("optional", [(), OPTIONAL], ids=["bare", "all"])
def test_lstm_with_coupled_gates_and_clipping(direction: str, optional: tuple[str, ...]) -> None:
    inputs = arrays("LSTM", 2 if direction == "bidirectional" else 1, optional)
    for fields, attributes in (
        ({"couple_input_forget": True}, {"input_forget": 1}),
        ({"use_clip_threshold": True, "clip_threshold": 0.75}, {"clip": 0.75}),
        (
            {"couple_input_forget": True, "use_clip_threshold": True, "clip_threshold": 0.5},
            {"input_forget": 1, "clip": 0.5},
        ),
    ):
        expected = by_runtime("LSTM", inputs, direction=direction, **attributes)
        agree(ours("LSTM", inputs, DIRECTIONS[direction], **fields), expected)


ACTIVATIONS: dict[str, tuple[OperatorDesc, dict[str, list[float]]]] = {
    "Relu": (descs.ActivationRelu(), {}),
    "LeakyRelu": (descs.ActivationLeakyRelu(alpha=0.25), {"activation_alpha": [0.25]}),
    "ThresholdedRelu": (descs.ActivationThresholdedRelu(alpha=0.5), {"activation_alpha": [0.5]}),
    "ScaledTanh": (
        descs.ActivationScaledTanh(alpha=0.5, beta=1.5),
        {"activation_alpha": [0.5], "activation_beta": [1.5]},
    ),
    "HardSigmoid": (
        descs.ActivationHardSigmoid(alpha=0.25, beta=0.5),
        {"activation_alpha": [0.25], "activation_beta": [0.5]},
    ),
    "Affine": (
        descs.ActivationLinear(alpha=-0.5, beta=0.25),
        {"activation_alpha": [-0.5], "activation_beta": [0.25]},
    ),
    "Elu": (descs.ActivationElu(alpha=0.75), {"activation_alpha": [0.75]}),
    "Softsign": (descs.ActivationSoftsign(), {}),
    "Softplus": (descs.ActivationSoftplus(steepness=1.0), {}),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    inputs = arrays("RNN", 1, ("bias",))
    desc, numbers = ACTIVATIONS[name]
    agree(ours("RNN", inputs, activations=(desc,)), by_runtime("RNN", inputs, activations=[name], **numbers))


def test_each_direction_has_its_own_activations() -> None:
    inputs = arrays("LSTM", 2, OPTIONAL)
    hard, line = ACTIVATIONS["HardSigmoid"], ACTIVATIONS["Affine"]
    names = ["HardSigmoid", "Tanh", "Softsign", "Sigmoid", "Affine", "Tanh"]
    numbers = {key: [*hard[1][key], *line[1][key]] for key in hard[1]}
    activations = (hard[0], TANH, descs.ActivationSoftsign(), SIGMOID, line[0], TANH)
    expected = by_runtime("LSTM", inputs, direction="bidirectional", activations=names, **numbers)
    agree(ours("LSTM", inputs, RecurrentNetworkDirection.BIDIRECTIONAL, activations), expected)


def test_a_sequence_of_length_0_keeps_its_initial_states() -> None:
    inputs = arrays("LSTM", 1, OPTIONAL, (0, 6, 2, 0))
    sequence, hidden, cell = ours("LSTM", inputs)
    for index in (0, 3):
        np.testing.assert_array_equal(hidden[0, index], inputs["hidden"][0, index])
        np.testing.assert_array_equal(cell[0, index], inputs["cell"][0, index])
        assert not sequence[:, 0, index].any()


def test_lengths_above_the_number_of_steps_count_as_that() -> None:
    inputs = arrays("GRU", 1)
    agree(ours("GRU", inputs | {"lengths": np.full(SEQUENCES, 1 << 20, np.int32)}), ours("GRU", inputs))


def test_the_formula_of_lstm_on_single_numbers() -> None:
    """Two steps of one number with all optional inputs, in plain Python."""
    x, (w, r) = (0.5, -1.25), ((0.5, -0.25, 0.75, 1.0), (0.25, 0.5, -0.5, 0.125))
    bias, peephole = (0.1, 0.2, -0.1, 0.3, 0.05, -0.2, 0.15, 0.25), (0.5, -0.75, 0.25)
    hidden, cell = 0.25, -0.5

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    for now in x:
        i, o, f, c = (w[gate] * now + r[gate] * hidden + bias[gate] + bias[4 + gate] for gate in range(4))
        write, forget = sigmoid(i + peephole[0] * cell), sigmoid(f + peephole[2] * cell)
        cell = forget * cell + write * math.tanh(c)
        hidden = sigmoid(o + peephole[1] * cell) * math.tanh(cell)
    sizes = {"x": (2, 1, 1), "w": (1, 4, 1), "r": (1, 4, 1), "bias": (1, 8), "peephole": (1, 3)}
    values = {"x": x, "w": w, "r": r, "bias": bias, "peephole": peephole}
    inputs = {name: np.array(values[name], np.float32).reshape(shape) for name, shape in sizes.items()}
    inputs |= {"hidden": np.full((1, 1, 1), 0.25, np.float32), "cell": np.full((1, 1, 1), -0.5, np.float32)}
    results = ours("LSTM", inputs)
    np.testing.assert_allclose([state.item() for state in results[1:]], [hidden, cell], rtol=1e-6)


def test_absent_outputs_are_omitted() -> None:
    single = np.empty((1, 1, 1, 1), np.float32)
    desc = descs.Rnn(
        **dict.fromkeys(("input_tensor", "weight_tensor", "recurrence_tensor", "output_single_tensor"), tensor(single)),
        activation_descs=(descs.ActivationIdentity(),),
        direction=RecurrentNetworkDirection.FORWARD,
    )
    two = np.full((1, 1, 1, 1), 2, np.float32)
    sequence, last = reference.evaluate(desc, [two, two, two, None, None, None])
    assert sequence is None and last.item() == 4
