"""Memory of the reference or a model's values beyond the budget is rejected before it is allocated."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, TensorDesc, descs, reference
from dmlgpu.catalog.enums import DataType, InterpolationMode, MultiheadAttentionMaskType, ReduceFunction
from dmlgpu.common import memory
from dmlgpu.common.errors import InvalidArgument, OutOfMemory
from dmlgpu.common.memory import BUDGET_VARIABLE, host_budget, host_memory
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.frontends.dxdispatch.files import FileAccess
from dmlgpu.frontends.dxdispatch.json_node import JsonNode
from dmlgpu.frontends.dxdispatch.resources import parse_resource

FLOAT = DataType.FLOAT32
MEBI = 1 << 20
SMALL = 50_000
"""Bytes of Python's small objects."""


def tensor(*sizes: int, data_type: DataType = FLOAT) -> TensorDesc:
    return TensorDesc(data_type, sizes)


def identity(count: int) -> descs.ElementWiseIdentity:
    return descs.ElementWiseIdentity(input_tensor=tensor(count), output_tensor=tensor(count))


def rejection(call) -> str:
    """Return the message of a call that is rejected before it allocates more than a mebibyte."""
    tracemalloc.start()
    try:
        with pytest.raises(OutOfMemory) as caught:
            call()
        assert tracemalloc.get_traced_memory()[1] < MEBI
    finally:
        tracemalloc.stop()
    return str(caught.value)


def test_the_budget_is_half_of_the_hosts_memory_or_what_the_environment_says(monkeypatch):
    monkeypatch.delenv(BUDGET_VARIABLE, raising=False)
    known = host_memory()
    assert host_budget() == (None if known is None else known // 2)
    monkeypatch.setattr(memory, "host_memory", lambda: None)
    assert host_budget() is None
    monkeypatch.setenv(BUDGET_VARIABLE, " 1048576 ")
    assert host_budget() == MEBI
    assert Device("numpy").backend.memory_budget == MEBI
    assert Device("numpy", memory_budget=5).backend.memory_budget == 5


@pytest.mark.parametrize("text", ["0", "-1", "1e9", "²", "9" * 5000])
def test_a_budget_that_is_not_a_number_of_bytes_is_rejected(monkeypatch, text):
    monkeypatch.setenv(BUDGET_VARIABLE, text)
    with pytest.raises(InvalidArgument) as caught:
        host_budget()
    assert str(caught.value) == f"DMLGPU_MEMORY_BUDGET: must be a positive number of bytes, got {text[:80]!r}"


def test_copies_of_tensors_count():
    array = np.zeros(100_000, np.float32)
    text = rejection(lambda: reference.evaluate(identity(100_000), [array], budget=MEBI))
    assert text == (
        "ELEMENT_WISE_IDENTITY: the NumPy reference needs 12,800,000 bytes for copies of its tensors,"
        " but may take 1,048,576"
    )
    (result,) = reference.evaluate(identity(100), [array[:100]], budget=MEBI)
    assert np.array_equal(result, array[:100])


def test_the_budget_defaults_to_the_environments(monkeypatch):
    monkeypatch.setenv(BUDGET_VARIABLE, "1000")
    with pytest.raises(OutOfMemory, match="may take 1,000"):
        reference.evaluate(identity(100), [np.zeros(100, np.float32)])


@pytest.mark.parametrize(
    "stem",
    [
        "activation_gelu",
        "average_pooling_grad",
        "max_pooling",
        "multihead_attention1",
        "padding1",
        "roi_align_grad",
        "split",
    ],
)
def test_an_operator_stays_within_its_budget(stem):
    """With a budget slightly below its use, it is rejected."""
    cases = OPERATOR_CASES[stem]
    rejected = 0
    for name in list(cases.names("standard"))[::9]:
        case = cases.case(name)
        elements = sum(
            tensor.element_count for _, _, tensor in (*case.desc.inputs, *case.desc.outputs) if tensor is not None
        )
        if not 2500 <= elements <= 100_000:
            continue
        inputs = case.inputs()
        reference.evaluate(case.desc, inputs)  # first, since modules that it imports would count
        tracemalloc.start()
        reference.evaluate(case.desc, inputs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if peak > 2 * SMALL:
            rejected += 1
            with pytest.raises(OutOfMemory):
                reference.evaluate(case.desc, inputs, budget=peak - SMALL)
    assert rejected


def align(**changes):
    fields = {
        "input_tensor": tensor(1, 1, 4, 4),
        "roi_tensor": tensor(1, 4),
        "batch_indices_tensor": tensor(1, data_type=DataType.UINT32),
        "output_tensor": tensor(1, 1, 7, 7),
        "reduction_function": ReduceFunction.AVERAGE,
        "interpolation_mode": InterpolationMode.LINEAR,
        "spatial_scale_x": 1.0,
        "spatial_scale_y": 1.0,
        "out_of_bounds_input_value": 0.0,
        "minimum_samples_per_output": 1,
        "maximum_samples_per_output": 2**32 - 1,
    }
    return descs.RoiAlign(**(fields | changes))


def test_samples_of_a_hostile_region_count():
    inputs = [np.ones((1, 1, 4, 4), np.float32), np.array([[0, 0, 1e9, 1e9]], np.float32), np.zeros(1, np.uint32)]
    text = rejection(lambda: reference.evaluate(align(), inputs, budget=MEBI))
    needed = 64 * 7 * 142_857_136  # for each of 7 elements 1e9 / 7 samples, rounded to float32
    assert text == f"ROI_ALIGN: the NumPy reference needs {needed:,} bytes for samples, but may take 1,048,576"


def test_padding_and_windows_count():
    window = {"strides": (1, 1), "start_padding": (0, 4000), "end_padding": (0, 4000)}
    pooling = descs.AveragePooling(
        input_tensor=tensor(1, 1, 1, 1),
        output_tensor=tensor(1, 1, 1, 4001),
        window_size=(1, 4001),
        include_padding=True,
        **(window | {"start_padding": (0, 4000)}),
    )
    inputs = [np.ones((1, 1, 1, 1), np.float32)]
    assert "bytes for elements of windows" in rejection(lambda: reference.evaluate(pooling, inputs, budget=MEBI))
    convolution = descs.Unfold(
        input_tensor=tensor(1, 1, 1, 1),
        output_tensor=tensor(1, 1, 1),
        window_sizes=(1, 1),
        strides=(1, 2**30),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 2**29),
    )
    assert "bytes for the padded images" in rejection(lambda: reference.evaluate(convolution, inputs, budget=MEBI))


def test_scores_of_attention_count():
    rows = tensor(1, 1, 1000, 2)
    desc = descs.MultiheadAttention(
        query_tensor=rows,
        key_tensor=rows,
        value_tensor=rows,
        output_tensor=rows,
        scale=1.0,
        mask_filter_value=0.0,
        head_count=1,
        mask_type=MultiheadAttentionMaskType.NONE,
    )
    inputs = [np.zeros((1, 1, 1000, 2), np.float32)] * 3 + [None] * (len(desc.inputs) - 3)
    assert "bytes for scores" in rejection(lambda: reference.evaluate(desc, inputs, budget=MEBI))


def test_buffers_and_results_share_the_devices_budget():
    device, array = Device("numpy", memory_budget=MEBI), np.zeros(7000, np.float32)
    dmlgpu.evaluate(identity(7000), [array], device=device)
    held = device.create_buffer(MEBI // 2)
    with pytest.raises(OutOfMemory, match="bytes for copies of its tensors"):
        dmlgpu.evaluate(identity(7000), [array], device=device)
    held.release()
    dmlgpu.evaluate(identity(7000), [array], device=device)


def test_gaps_between_an_outputs_elements_count():
    gaps = TensorDesc(FLOAT, (2,), (200_000,))
    desc = descs.ElementWiseIdentity(input_tensor=tensor(2), output_tensor=gaps)
    for budget, enough in ((2 * gaps.byte_size, False), (2 * gaps.byte_size + 1000, True)):
        device = Device("numpy", memory_budget=budget)
        with contextlib.nullcontext() if enough else pytest.raises(OutOfMemory, match="may take 0"):
            dmlgpu.evaluate(desc, [np.ones(2, np.float32)], device=device)


@pytest.mark.parametrize("name", ["values.bin", "values.npy"])
def test_a_file_that_does_not_fit_in_memory_is_not_read(monkeypatch, tmp_path, name):
    monkeypatch.setenv(BUDGET_VARIABLE, str(MEBI))
    path = tmp_path / name
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    node = JsonNode({"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": name}}, "$.resources.X")
    assert rejection(lambda: parse_resource("X", node, FileAccess(tmp_path))) == (
        f"$.resources.X.initialValues.sourcePath: 2,199,023,255,552 bytes to read {str(path)!r} exceed the 1,048,576"
        " that may be used of the host's memory"
    )


def test_a_models_initial_values_stay_within_the_budget(monkeypatch, tmp_path):
    monkeypatch.setenv(BUDGET_VARIABLE, str(MEBI))
    values = {"valueCount": 10**9, "valueStart": 0, "valueDelta": 1}
    node = JsonNode({"initialValuesDataType": "FLOAT32", "initialValues": values}, "$.resources.X")
    resource = parse_resource("X", node, FileAccess(tmp_path))
    assert rejection(resource.to_bytes) == (
        "resource 'X': 12,000,000,000 bytes to make its initial values exceed the 1,048,576 that may be used of the"
        " host's memory"
    )
