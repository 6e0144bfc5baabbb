"""Rejections of PyDirectML: TypeErrors and RuntimeErrors that are also exceptions of dmlgpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.frontends import pydirectml as dml
from tests.wrong_arguments import HUGE, Hostile, HostileSequence

F32, F16, U32 = (getattr(dml.TensorDataType, name) for name in ("FLOAT32", "FLOAT16", "UINT32"))
OWNED, NONE, FORWARD = dml.TensorFlags.OWNED_BY_DML, dml.ExecutionFlags.NONE, dml.RecurrentNetworkDirection.FORWARD


@pytest.fixture(autouse=True)
def numpy_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


class Scene:
    """A graph with one of everything."""

    def __init__(self) -> None:
        self.device = dml.Device()
        self.builder = dml.GraphBuilder(self.device)
        self.desc = dml.TensorDesc(F32, [1, 1, 2, 2])
        self.x = dml.input_tensor(self.builder, 0, self.desc)
        self.owned = dml.input_tensor(self.builder, 1, dml.TensorDesc(F32, OWNED, [1, 1, 2, 2]))
        self.y = dml.add(self.x, self.owned)
        self.model = self.builder.build(NONE, [self.y])
        self.bindings = [dml.Binding(self.x, np.zeros(4)), dml.Binding(self.owned, np.zeros(4))]
        self.other = dml.input_tensor(dml.GraphBuilder(self.device), 0, self.desc)


Made = Callable[[Scene], Any]

WRONG_KINDS: list[tuple[str, Made]] = [
    ("TensorDesc: data_type must be a TensorDataType (UNKNOWN, FLOAT32, ", lambda s: dml.TensorDesc("FLOAT32", [1])),
    ("TensorDesc: data_type must be a TensorDataType", lambda s: dml.TensorDesc(1, [1])),
    ("TensorDesc: data_type must be a TensorDataType (", lambda s: dml.TensorDesc(dmlgpu.DataType.FLOAT32, [1])),
    (
        "TensorDesc: sizes must be a sequence of integers, got 'NONE' of type str",
        lambda s: dml.TensorDesc(F32, "NONE", [1]),
    ),
    (
        "TensorDesc: sizes[1] must be an integer between 0 and 4294967295, got -2",
        lambda s: dml.TensorDesc(F32, [1, -2]),
    ),
    ("TensorDesc: sizes[0] must be an integer between 0 and 4294967295, got 1.0", lambda s: dml.TensorDesc(F32, [1.0])),
    (
        "TensorDesc: missing a required argument: 'sizes'; it takes (data_type, sizes, tensor_policy=",
        lambda s: dml.TensorDesc(F32),
    ),
    (
        "TensorDesc: flags must be a TensorFlags (NONE, OWNED_BY_DML), got 1 of type int",
        lambda s: dml.TensorDesc(F32, flags=1, sizes=[1]),
    ),
    (
        "TensorDesc: missing a required argument: 'total_tensor_size_in_bytes'",
        lambda s: dml.TensorDesc(F32, OWNED, [1], [1]),
    ),
    (
        "TensorDesc: total_tensor_size_in_bytes must be an integer between 0 and",
        lambda s: dml.TensorDesc(F32, OWNED, [1], [1], -4, 0),
    ),
    ("TensorDesc: strides must be a sequence of integers, got 'NHWC'", lambda s: dml.TensorDesc(F32, [1], "NHWC")),
    ("Binding: expr must be an Expression, got ", lambda s: dml.Binding(s.desc, np.zeros(4))),
    ("Binding: data must be an array of numbers, got 'zeros' of type str", lambda s: dml.Binding(s.x, "zeros")),
    (
        "Binding: data must be an array of numbers, got an array of complex128",
        lambda s: dml.Binding(s.x, np.zeros(4, complex)),
    ),
    (
        "Binding: data must be an array of numbers, got [[1], [1, 2]] of type list",
        lambda s: dml.Binding(s.x, [[1], [1, 2]]),
    ),
    (
        "Binding: data for Tensor('input 0': UINT32 [2]) must be an array of uint32, or its bits as float32, ",
        lambda s: dml.Binding(
            dml.input_tensor(dml.GraphBuilder(s.device), 0, dml.TensorDesc(U32, [2])), np.array([1, 2])
        ),
    ),
    ("TensorData: data must be an array of numbers, got None", lambda s: dml.TensorData(None)),
    ("Device: use_gpu must be a bool, got 'yes' of type str", lambda s: dml.Device("yes")),
    (
        "Device: too many positional arguments; it takes (use_gpu=True, use_debug_layer=False)",
        lambda s: dml.Device(1, 2, 3),
    ),
    ("Device: got an unexpected keyword argument 'gpu'; it ", lambda s: dml.Device(gpu=True)),
    ("Device.compute: model must be a Model, got None", lambda s: s.device.compute(None, [], [])),
    (
        "Device.compute: inputs must be a sequence of Bindings or None, got ",
        lambda s: s.device.compute(s.model, s.bindings[0], [s.y]),
    ),
    (
        "Device.compute: inputs[1] must be a Binding, got array(",
        lambda s: s.device.compute(s.model, [s.bindings[0], np.zeros(4)], [s.y]),
    ),
    (
        "Device.compute: outputs[0] must be an Expression, got 'y' of type str",
        lambda s: s.device.compute(s.model, s.bindings, ["y"]),
    ),
    ("GraphBuilder: device must be a Device, got ", lambda s: dml.GraphBuilder(dmlgpu.Device("numpy"))),
    ("GraphBuilder.build: flags must be an ExecutionFlags (NONE, ", lambda s: s.builder.build("NONE", [s.y])),
    ("GraphBuilder.build: flags must be an ExecutionFlags (", lambda s: s.builder.build(dml.TensorFlags.NONE, [s.y])),
    ("GraphBuilder.build: outputs must be a sequence of Expressions, got ", lambda s: s.builder.build(NONE, s.y)),
    ("GraphBuilder.build: outputs[0] must be an Expression, got None", lambda s: s.builder.build(NONE, [None])),
    ("input_tensor: scope must be a GraphBuilder, got ", lambda s: dml.input_tensor(s.device, 0, s.desc)),
    (
        "input_tensor: input_index must be an integer between 0 and 4294967295, got -1",
        lambda s: dml.input_tensor(s.builder, -1, s.desc),
    ),
    ("input_tensor: tensor_desc must be a TensorDesc, got [1, 2]", lambda s: dml.input_tensor(s.builder, 2, [1, 2])),
    (
        "padding: padding_mode must be a PaddingMode (CONSTANT, EDGE, REFLECTION), got 'EDGE' of type str",
        lambda s: dml.padding(s.x, "EDGE", 0, [0] * 4, [0] * 4),
    ),
    (
        "padding: padding_value must be a number, got 'zero' of type str",
        lambda s: dml.padding(s.x, dml.PaddingMode.EDGE, "zero", [0] * 4, [0] * 4),
    ),
    ("join: input[1] must be an Expression, got 3 of type int", lambda s: dml.join([s.x, 3], 1)),
    (
        "convolution: missing a required argument: 'filter'; it takes (input, filter, bias=None, mode=",
        lambda s: dml.convolution(s.x),
    ),
    ("convolution: bias must be an Expression, got 0 of type int", lambda s: dml.convolution(s.x, s.x, 0)),
    ("gru: missing a required argument: 'activation_descs'; it takes (", lambda s: dml.gru(s.x, s.x, s.x)),
    (
        "gru: activation_descs[0] must be a FusedActivation, got <OperatorType",
        lambda s: dml.gru(
            s.x,
            s.x,
            s.x,
            activation_descs=[dml.OperatorType.ACTIVATION_TANH],
            direction=FORWARD,
            output_options=dml.OutputOptions.Both,
        ),
    ),
    (
        "slice: input_window_strides[3] must be an integer between -2147483648 and 2147483647, got 2147483648",
        lambda s: dml.slice(s.x, [0] * 4, [1] * 4, [1, 1, 1, 2**31]),
    ),
    (
        "up_sample_2d: scale_size must be a Size2D, got (2, 2) of type tuple",
        lambda s: dml.up_sample_2d(s.x, (2, 2), dml.LINEAR),
    ),
    ("Size2D: width must be an integer between 0 and 4294967295, got 1.5", lambda s: dml.Size2D(1.5, 1)),
    (
        "FusedActivation: activation must be an OperatorType (INVALID, ELEMENT_WISE_IDENTITY, ELEMENT_WISE_ABS, ...), ",
        lambda s: dml.FusedActivation("RELU"),
    ),
    ("MaxPoolingOutputs: values must be an Expression, got 1", lambda s: dml.MaxPoolingOutputs(1, 2)),
    ("Model: no constructor defined; GraphBuilder.build makes one", lambda s: dml.Model()),
]

WRONG_VALUES: list[tuple[str, Made]] = [
    (
        "TensorDesc: data_type must be a type of elements, got TensorDataType.UNKNOWN",
        lambda s: dml.TensorDesc(dml.UNKNOWN, [1]),
    ),
    ("TensorDesc: sizes must be at least one integer, all positive, got []", lambda s: dml.TensorDesc(F32, [])),
    (
        "TensorDesc: sizes must be at least one integer, all positive, got [2, 0]",
        lambda s: dml.TensorDesc(F32, [2, 0], [1, 1]),
    ),
    ("TensorDesc: strides must have one entry per dimension (2), got [1]", lambda s: dml.TensorDesc(F32, [2, 2], [1])),
    (
        "Binding: data for Tensor('input 0': FLOAT32 [1, 1, 2, 2]) must have 16 bytes, as the tensor has ",
        lambda s: dml.Binding(s.x, np.zeros(3)),
    ),
    (
        "Binding: data for Tensor('input 0': FLOAT16 [4]) must have 8 bytes, as the tensor has in memory, got 16 ",
        lambda s: dml.Binding(
            dml.input_tensor(dml.GraphBuilder(s.device), 0, dml.TensorDesc(F16, [4])), np.zeros(4, "f4")
        ),
    ),
    (
        "Expression: it is empty, made by Expression() or an output that was not requested",
        lambda s: dml.add(s.x, dml.Expression()),
    ),
    ("Expression: it is empty, made by", lambda s: s.x + dml.Expression()),
    ("Expression: it is empty, made", lambda s: -dml.Expression()),
    ("Expression: it is empty", lambda s: dml.Expression().get_output_desc()),
    ("Expression: it is ", lambda s: s.device.compute(s.model, s.bindings, [dml.Expression()])),
    (
        "Device.compute: inputs must have an entry for each of the graph's 2 inputs, got 1",
        lambda s: s.device.compute(s.model, s.bindings[:1], [s.y]),
    ),
    (
        "Device.compute: inputs[0] must be a Binding for Tensor('input 0': FLOAT32 [1, 1, 2, 2]), got None",
        lambda s: s.device.compute(s.model, [None, s.bindings[1]], [s.y]),
    ),
    (
        "Device.compute: inputs[0] must be a Binding for Tensor('input 0': FLOAT32 [1, 1, 2, 2]), got one for ",
        lambda s: s.device.compute(s.model, s.bindings[::-1], [s.y]),
    ),
    (
        "Device.compute: inputs[0] must be a Binding for Tensor('input 0': FLOAT32 [1, 1, 2, 2]), got one ",
        lambda s: s.device.compute(
            s.model,
            [
                dml.Binding(dml.input_tensor(dml.GraphBuilder(s.device), 0, dml.TensorDesc(F32, [3])), np.zeros(3)),
                s.bindings[1],
            ],
            [s.y],
        ),
    ),
    (
        "Device.compute: outputs must have an entry for each of the model's 1 outputs, got 2",
        lambda s: s.device.compute(s.model, s.bindings, [s.y, s.y]),
    ),
    (
        "Device.compute: outputs[0] must be the model's, Tensor(ELEMENT_WISE_ADD1 (",
        lambda s: s.device.compute(s.model, s.bindings, [s.x]),
    ),
    ("Device.compute: outputs[0] must be the model's, ", lambda s: s.device.compute(s.model, s.bindings, [s.other])),
    (
        "Device.compute: model must be built for this device, got one for device on 'NumPy: numpy",
        lambda s: dml.Device().compute(s.model, s.bindings, [s.y]),
    ),
    (
        "GraphBuilder.build: each input_index must be below the number of inputs (3), got 3",
        lambda s: (dml.input_tensor(s.builder, 3, s.desc), s.builder.build(NONE, [s.y])),
    ),
    (
        "a graph without a name: outputs must be a sequence of at least one Tensor, got none",
        lambda s: s.builder.build(NONE, []),
    ),
    (
        "a graph without a name: outputs[0] must be computed by an operator, got Tensor('input 0': ",
        lambda s: s.builder.build(NONE, [s.x]),
    ),
    (
        "a graph without a name: outputs[0] belongs to a graph without a name",
        lambda s: s.builder.build(NONE, [dml.activation_relu(s.other)]),
    ),
    (
        "ELEMENT_WISE_ADD1: b_tensor must be a tensor of a graph without a name, got one of another graph (",
        lambda s: dml.add(s.x, s.other),
    ),
    ("ELEMENT_WISE_SUBTRACT: b_tensor must be a tensor of a graph", lambda s: s.x - s.other),
    (
        "ELEMENT_WISE_ADD1: b_tensor.dimension_count must equal a_tensor.dimension_count (4), got 1 (",
        lambda s: dml.add(s.x, dml.input_tensor(s.builder, 2, dml.TensorDesc(F32, [4]))),
    ),
    (
        "GRU: weight_tensor.flags must not have OWNED_BY_DML, which this operator does not support (",
        lambda s: dml.gru(s.x, s.owned, s.x, None, None, None, [], FORWARD, 1, dml.OutputOptions.Both),
    ),
    (
        "gru: activation_descs must be at most 4, got 5",
        lambda s: dml.gru(
            s.x,
            s.x,
            s.x,
            activation_descs=[dml.FusedActivation(dml.ACTIVATION_TANH)] * 5,
            direction=FORWARD,
            output_options=dml.OutputOptions.Both,
        ),
    ),
    (
        "gru: activation_descs[0] must be an activation, got OperatorType.INVALID",
        lambda s: dml.gru(
            s.x,
            s.x,
            s.x,
            activation_descs=[dml.FusedActivation(dml.INVALID)],
            direction=FORWARD,
            output_options=dml.OutputOptions.Both,
        ),
    ),
    (
        "FusedActivation: activation must be one that can be fused, got OperatorType.GEMM",
        lambda s: dml.add(s.x, s.x, dml.FusedActivation(dml.OperatorType.GEMM)),
    ),
    (
        "FusedActivation: activation must be one that can be fused, got OperatorType.ACTIVATION_HARDMAX",
        lambda s: dml.add(s.x, s.x, dml.FusedActivation(dml.OperatorType.ACTIVATION_HARDMAX)),
    ),
    ("join: input must be at least one Expression, got none", lambda s: dml.join([], 0)),
    ("Tensor.reinterpret: sizes [9] need 36 bytes, Tensor('input 0': ", lambda s: dml.reinterpret(s.x, F32, [9], None)),
]


@pytest.mark.parametrize(("text", "make"), WRONG_KINDS)
def test_wrong_kinds(text: str, make: Made) -> None:
    with pytest.raises(TypeError) as caught:
        make(Scene())
    assert isinstance(caught.value, dmlgpu.InvalidArgument)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(("text", "make"), WRONG_VALUES)
def test_wrong_values(text: str, make: Made) -> None:
    with pytest.raises(RuntimeError) as caught:
        make(Scene())
    assert isinstance(caught.value, dmlgpu.InvalidArgument)
    assert str(caught.value).startswith(text)


def test_operators_reject_other_operands() -> None:
    x = Scene().x
    for wrong in ("1", None, 1j, {}, np.zeros(3), object()):
        for operation in (lambda a, b: a + b, lambda a, b: b - a, lambda a, b: a * b, lambda a, b: b / a):
            with pytest.raises(TypeError, match=r"unsupported operand|can't multiply|does not support ufuncs"):
                operation(x, wrong)
    for change in (lambda a: a % 2.0, lambda a: 2.0 % a, lambda a: a**2.0):
        with pytest.raises(TypeError, match="unsupported operand type"):
            change(x)
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+=: 'Expression' and 'str'"):
        x += "1"


def test_hostile_arguments() -> None:
    scene = Scene()
    for wrong in (Hostile(), HostileSequence(), HUGE, iter(())):
        for call in (
            lambda w: dml.TensorDesc(F32, w),
            lambda w: dml.TensorDesc(w, [1]),
            lambda w: dml.TensorDesc(F32, [1], w),
            lambda w: dml.TensorDesc(F32, [w]),
            lambda w: dml.Device(w) if not isinstance(w, int) else dml.Size2D(w, w),
            lambda w: dml.join(w, 1),
            lambda w: dml.join([w], 1),
            lambda w: dml.gather(scene.x, scene.x, w, 0),
            lambda w: dml.value_scale_2d(scene.x, w, [1]),
            lambda w: dml.Binding(scene.x, w),
            dml.TensorData,
            lambda w: scene.builder.build(w, [scene.y]),
            lambda w: scene.device.compute(scene.model, w, [scene.y]),
            lambda w: dml.FusedActivation(dml.ACTIVATION_RELU, w),
        ):
            with pytest.raises(dmlgpu.InvalidArgument) as caught:
                call(wrong)
            assert "\n" not in str(caught.value)
