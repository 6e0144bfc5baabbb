"""Wrong values for each argument of each public callable: only our exceptions come out, and name the argument."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

import dmlgpu
from dmlgpu import (
    AdapterNotFound,
    Buffer,
    BufferBinding,
    DataType,
    Device,
    InvalidArgument,
    InvalidDescription,
    InvalidState,
    OperatorSupportQuery,
    OutOfMemory,
    TensorDesc,
    descs,
)
from dmlgpu.catalog import catalog
from dmlgpu.catalog.enums import FeatureLevel, TensorFlags
from dmlgpu.catalog.minimal import minimal_examples
from dmlgpu.common.errors import shown
from dmlgpu.frontends import dxdispatch
from tests.life_cycle import bound, compile_operator, initialization, record, row, subtract
from tests.unit.device_objects import raises
from tests.wrong_arguments import (
    HUGE,
    Hostile,
    HostileKey,
    HostileSequence,
    check_refusal,
    one_node_graph,
    public_calls,
    wrong_fields,
)

GRAPH = one_node_graph()
DESCRIPTIONS = {
    "AdapterInfo": dict.fromkeys(("name", "backend", "kind", "vendor", "driver"), "text"),
    "CacheLimits": {"entries": 1, "size": 2},
    "ConstantNode": {"data": bytes(4), "name": "a constant"},
    "GraphDesc": dict(vars(GRAPH)),
    "InputEdge": dict.fromkeys(("graph_input", "to_node", "to_input"), 0),
    "IntermediateEdge": dict.fromkeys(("from_node", "from_output", "to_node", "to_input"), 0),
    "OperatorNode": {"desc": subtract(), "name": "a node"},
    "OutputEdge": dict.fromkeys(("from_node", "from_output", "graph_output"), 0),
    "ScaleBias": {"scale": 1.0, "bias": 0.0},
    "Size2D": {"width": 1, "height": 1},
    "TensorDesc": {"data_type": DataType.FLOAT32, "sizes": (2, 3), "strides": (3, 1), "flags": TensorFlags.NONE},
}
ANSWERS = {
    "MemoryInfo",
    "BindingProperties",
    "CacheInfo",
    "FeatureLevels",
    "OperatorSupport",
    "TensorDataTypeSupport",
    "Timings",
}
"""Made by dmlgpu, and checked nowhere."""
QUERIES = {"FeatureLevelsQuery", "OperatorSupportQuery", "TensorDataTypeSupportQuery"}
"""Checked when they are asked."""


def kind_of(value):
    return type(value).__name__


@pytest.fixture(scope="module")
def device():
    return Device("numpy")


def test_each_argument_of_each_callable():
    labels = set()
    for call in public_calls(Device("numpy")):
        for argument, arguments in call.with_wrong_values():
            labels.add(f"{call.label}({argument})")
            check_refusal(call.label, argument, call.function, arguments)
        call.function(**call.good)
    # By hand, so that a walk that finds nothing is seen.
    assert {"evaluate(inputs)", "Device(adapter)", "Fence.wait(timeout)", "Buffer.name(name)"} <= labels
    assert len(labels) > 75


def test_each_public_class_is_checked(device):
    walked = {call.label.partition(".")[0] for call in public_calls(device)}
    classes = {name for name in dmlgpu.__all__ if inspect.isclass(getattr(dmlgpu, name))}
    exceptions = {name for name in classes if issubclass(getattr(dmlgpu, name), Exception)}
    enumerations = {"ExecutionFlags", "TensorFlags"}
    kernels = {"ElementwiseKernel", "Kernel"}  # tests/gpu/test_own_kernels.py
    looked_at = walked | exceptions | enumerations | ANSWERS | QUERIES | kernels
    assert classes - looked_at == {*DESCRIPTIONS, "OperatorDesc"} - walked


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_each_field_of_a_structure(name):
    cls = getattr(dmlgpu, name)
    cls(**DESCRIPTIONS[name])
    for field, value in wrong_fields(cls):
        check_refusal(name, field, cls, {**DESCRIPTIONS[name], field: value})


OPTIONS = {
    dxdispatch.TimingOptions: {"iterations": 2, "repeat": 3, "milliseconds_to_run": 4, "interval": 0},
    dxdispatch.OnnxOptions: {"name_overrides": {"batch": 8}, "denotation_overrides": {}, "shapes": {"x": (1, 3)}},
}


@pytest.mark.parametrize("cls", OPTIONS)
def test_each_field_of_options(cls):
    cls(**OPTIONS[cls])
    fields = [field for field, value in wrong_fields(cls) if value is not None]
    assert set(fields) == {field.name for field in dataclasses.fields(cls)}
    for field, value in wrong_fields(cls):
        check_refusal(cls.__name__, field, cls, {**OPTIONS[cls], field: value})


def test_options_keep_copies_of_their_own():
    shapes = {"x": [np.int64(1), 3]}
    options = dxdispatch.OnnxOptions(shapes=shapes)
    shapes["x"].append(5)
    assert options.shapes == {"x": (1, 3)}


@pytest.mark.parametrize("name", catalog())
def test_each_field_of_each_description(name):
    good = next(minimal_examples(catalog()[name], {}, FeatureLevel.LEVEL_6_4))
    for field, value in wrong_fields(type(good)):
        check_refusal(name, field, type(good), {**good.values, field: value})


def test_queries_of_levels(device):
    def ask(requested_feature_levels):
        device.check_feature_support(dmlgpu.FeatureLevelsQuery(requested_feature_levels))

    for wrong in (None, 1, "6_4", b"", HUGE, Hostile(), HostileSequence(), [None], [1.0], ["6_4"], [HUGE], [Hostile()]):
        check_refusal("FeatureLevelsQuery", "requested_feature_levels", ask, {"requested_feature_levels": wrong})


def test_queries_of_types(device):
    for wrong in (None, 1, "FLOAT32", DataType.UNKNOWN, 1.0, HUGE, Hostile(), [DataType.FLOAT32]):
        for query in (
            dmlgpu.TensorDataTypeSupportQuery(wrong),
            OperatorSupportQuery("GATHER", {"input_tensor": wrong}),
            OperatorSupportQuery("GATHER", {wrong: DataType.FLOAT32} if isinstance(wrong, int | str) else wrong),
        ):
            with pytest.raises(InvalidArgument, match=r"Query: .*(must be|has no tensor)"):
                device.check_feature_support(query)


def test_queries_of_operators(device):
    for wrong in (None, 1, b"GATHER", "\udc80", "²", "G" * 10**6, HUGE, Hostile(), ["GATHER"], descs.Gather):
        with pytest.raises(InvalidArgument, match=r"^DirectML has no operator "):
            device.check_feature_support(OperatorSupportQuery(wrong))
    with pytest.raises(InvalidArgument, match=r"GATHER has no tensor <.*HostileKey.*>, only indices_tensor"):
        device.check_feature_support(OperatorSupportQuery("GATHER", {HostileKey(): DataType.FLOAT32}))


def test_objects_are_made_by_their_device(device):
    for name in ("BindingTable", "CommandList", "CommandRecorder", "Fence", "Queue"):
        arguments = {"BindingTable": [None]}.get(name, [])
        with raises(InvalidArgument, f"{name}: cannot be created directly; use a method of Device"):
            getattr(dmlgpu, name)(device, None, *arguments)


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2**62, 2**63 - 4, 2**63, 2**63 + 4, 2**64 - 4])
def test_no_memory_reaches_so_far(device, size):
    with pytest.raises(OutOfMemory, match=f"^buffer 'unnamed': {size:,} bytes exceed the memory budget of "):
        device.create_buffer(size)


@pytest.mark.parametrize("size", [2**64, 4 * HUGE], ids=kind_of)
def test_integers_beyond_addresses(device, size):
    with raises(
        InvalidArgument, f"create_buffer: size must be a positive multiple of 4 bytes below 2^64, got {shown(size)}"
    ):
        device.create_buffer(size)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32, np.int64, np.uint64, np.array])
def test_numpys_integers_serve_and_do_not_overflow(device, kind):
    buffer = device.create_buffer(kind(112))
    assert (type(buffer.size), buffer.size, buffer.read().size) == (int, 112, 112)
    buffer.write(bytes([1, 2, 3]), kind(109))
    assert buffer.read(kind(110), kind(2)).tolist() == [2, 3]
    with pytest.raises(InvalidArgument, match=r"bytes 110 to 230 are not inside"):
        buffer.read(kind(110), kind(120))
    binding = BufferBinding(buffer, kind(16), kind(64))
    assert (type(binding.offset), type(binding.size)) == (int, int)
    commands = device.create_command_list()
    commands.copy_buffer(device.create_buffer(kind(64)), kind(32), buffer, kind(96), kind(16))
    assert Device("numpy", memory_budget=kind(100)).create_buffer(kind(100)).size == 100
    fence = device.create_fence(kind(1))
    device.queue.signal(fence, kind(2))
    assert fence.wait(kind(2), np.float32(1))
    desc = TensorDesc(kind(1), kind([2, 3]) if kind is np.array else (kind(2), kind(3)), (kind(3), kind(1)))
    assert desc == TensorDesc(DataType.FLOAT32, (2, 3), (3, 1))
    assert {type(size) for size in desc.sizes} == {int}


def test_wide_tensors_are_described_and_rejected_by_create_operator(device):
    wide = TensorDesc(DataType.FLOAT32, (2**64 - 1,) * 8)
    assert wide.byte_size == 4 * (2**64 - 1) ** 8
    for desc in (subtract(a=wide), subtract(a=TensorDesc(DataType.FLOAT32, (1, 2), total_tensor_size_in_bytes=1))):
        with pytest.raises(InvalidDescription, match=r"^ELEMENT_WISE_SUBTRACT: a_tensor"):
            device.create_operator(desc)


def test_a_long_wait_is_no_error(device):
    fence = device.create_fence()
    for timeout in (float("inf"), 1e300, 10**300):
        assert fence.wait(0, timeout)


# -- strings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("half \udc80", "text without lone surrogates, which UTF-8 cannot encode, got 'half \\udc80' of type str"),
        ("a\0b", "text without NUL, got 'a\\x00b' of type str"),
        (7, "text, got 7 of type int"),
    ],
)
def test_names(device, name, rule):
    with raises(InvalidArgument, f"create_buffer: name must be {rule}"):
        device.create_buffer(16, name)
    buffer = device.create_buffer(16, "²")
    with raises(InvalidArgument, f"buffer '²': name must be {rule}"):
        buffer.name = name
    assert buffer.name == "²"


@pytest.mark.parametrize("name", ["²", "①", "9" * 5000, "\udc80", HUGE], ids=kind_of)
def test_no_adapter_has_this_name(name):
    with pytest.raises(AdapterNotFound) as caught:
        Device(name)
    assert str(caught.value).startswith(f"no adapter matches {shown(name)}; available adapters:\n  0: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**256 - 1, str(2**256 - 1)),
        (-(10**5000), "an integer of 16610 bits"),
        (True, "True"),
        ("x" * 100, "'" + "x" * 76 + "..."),
        (Hostile(), "an object of type Hostile"),
        ([HUGE], "an object of type list"),
        ("\udc80", "'\\udc80'"),
    ],
    ids=kind_of,
)
def test_values_in_messages(value, text):
    assert shown(value) == (text if len(text) <= 80 else text[:77] + "...")


# -- the rest ------------------------------------------------------------------------------------------------


def test_the_reason_of_a_removal():
    device = Device("numpy")
    for wrong in (None, 1, "\udc80", Hostile()):
        check_refusal("Device.remove", "reason", device.remove, {"reason": wrong})
    assert device.removed_reason is None


@pytest.mark.parametrize("wrong", [None, 1, "device", object(), Hostile()])
def test_objects_of_wgpu_are_checked(device, wrong):
    check_refusal("Device.from_wgpu", "wgpu_device", Device.from_wgpu, {"wgpu_device": wrong})
    with pytest.raises(InvalidArgument, match=r"^Buffer.from_wgpu: device on .* does not run on wgpu$"):
        device.wrap_buffer(wrong)
    with raises(InvalidArgument, f"Buffer.from_wgpu: device must be a Device, got {type(wrong).__name__}"):
        Buffer.from_wgpu(wrong, None)


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.UINT4])
def test_encoding(data_type):
    desc = TensorDesc(data_type, (2, 3))
    for wrong in (None, "text", np.zeros(4), [[1, [2]]], {}, 1j, object(), HUGE, Hostile(), np.array(["x"])):
        with pytest.raises(InvalidArgument, match=rf"^TensorDesc.encode: array does not fit {data_type.name} with"):
            desc.encode(wrong)
    for wrong in (None, "0", 256, -1, 0.5, HUGE, Hostile()):
        check_refusal("TensorDesc.encode", "fill", desc.encode, {"array": np.zeros((2, 3)), "fill": wrong})
    for wrong in (None, "text", b"", np.zeros(2, np.uint8), [[1, [2]]], {}, object(), HUGE, Hostile()):
        with pytest.raises(InvalidArgument, match=rf"^TensorDesc.decode: raw does not fit {data_type.name} with sizes"):
            desc.decode(wrong)


def test_encoding_invalid_values(device):
    mismatched = TensorDesc(DataType.FLOAT32, (2, 3), strides=(3,))
    for use in (lambda desc: desc.encode(1), lambda desc: desc.is_packed, lambda desc: desc.physical_element_count):
        with raises(InvalidDescription, "TensorDesc: strides must have one entry per dimension (2), got 1"):
            use(mismatched)
    with pytest.raises(InvalidArgument, match=r"UNKNOWN has no NumPy equivalent|does not fit UNKNOWN"):
        TensorDesc(DataType.UNKNOWN, (2,)).encode(1)
    with pytest.raises((InvalidArgument, OutOfMemory)):
        TensorDesc(DataType.FLOAT32, (2**40, 2**40)).encode(1)


def test_evaluate_on_something_else(device):
    for wrong in (0, Hostile(), device.backend):
        expected = f"must be a Device, the name of an adapter or None, got {type(wrong).__name__}"
        with raises(InvalidArgument, f"evaluate: device {expected}"):
            dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4)] * 2, wrong)
    with pytest.raises(AdapterNotFound, match=r"^no adapter matches 'no such adapter'; available adapters:"):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4)] * 2, "no such adapter")


def test_binding_a_released_buffer_again(device):
    compiled = compile_operator(device, subtract())
    source, target = device.create_buffer(16), device.create_buffer(16)
    table = bound(device, compiled, [source, source], [target])
    source.release()
    text = "ELEMENT_WISE_SUBTRACT: the buffer of a_tensor (input 0), buffer of 16 bytes, is released"
    with raises(InvalidState, text):
        table.bind_inputs([source, source])
    with raises(InvalidState, text):
        table.bind_inputs((BufferBinding(source), BufferBinding(source)))
    table.bind_outputs([target])
    table.bind_inputs([target, target])


def test_binding_the_same_again_keeps_the_dispatch(device):
    compiled = compile_operator(device, subtract())
    source, target = device.create_buffer(16), device.create_buffer(16)
    table = bound(device, compiled, [source, source], [target])
    record(device, initialization(device, compiled), (compiled, table))
    cached = table._bindings.cached
    device.create_buffer(16).release()
    table.bind_inputs([source, source])
    assert table._bindings.cached is cached is not None


def test_private_data_under_a_key_that_cannot_be_hashed(device):
    for wrong in ([], {}, Hostile()):
        with raises(InvalidArgument, f"device on '{device.adapter}': key must be hashable, got {shown(wrong)}"):
            device.get_private_data(wrong)


def test_the_base_of_descriptions_is_a_dataclass_without_fields():
    assert dataclasses.is_dataclass(dmlgpu.OperatorDesc)
    assert dataclasses.fields(dmlgpu.OperatorDesc) == ()
