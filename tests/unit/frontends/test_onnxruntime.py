"""Scripts written for onnxruntime give the same with one import changed: each scenario runs with both packages."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported
from dmlgpu.frontends import onnxruntime as dml
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

ort = pytest.importorskip("onnxruntime")

Scenario = Callable[[Any, Path], Any]
CPU = ["CPUExecutionProvider"]
pytestmark = pytest.mark.filterwarnings("ignore:execution providers are ignored")
BATCH = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
WEIGHTS = np.array([[1, -2], [0.5, 3], [-1, 0.25]], np.float32)


@pytest.fixture(autouse=True)
def _numpy_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A layer with a symbolic batch size, a second output of bools, metadata, and an initializer that is an input."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weights"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["y"]),
            helper.make_node("Greater", ["y", "zero"], ["positive"]),
        ],
        "layer",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2]),
            helper.make_tensor_value_info("positive", TensorProto.BOOL, ["batch", 2]),
        ],
        [
            numpy_helper.from_array(WEIGHTS, "weights"),
            numpy_helper.from_array(np.array([0.5, -1], np.float32), "bias"),
            numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        ],
        doc_string="a linear layer",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    model.producer_name, model.domain, model.model_version = "tests", "example.org", 7
    model.doc_string = "one layer"
    helper.set_model_props(model, {"author": "somebody"})
    target = tmp_path / "layer.onnx"
    onnx.save(model, target)
    return target


def describe(arguments: Any) -> list[tuple[str, Any, str]]:
    return [(argument.name, argument.shape, argument.type) for argument in arguments]


def arguments_of_the_model(module: Any, path: Path) -> Any:
    session = module.InferenceSession(str(path), providers=CPU)
    overridable = session.get_overridable_initializers()
    return describe(session.get_inputs()), describe(session.get_outputs()), describe(overridable)


def metadata(module: Any, path: Path) -> Any:
    session = module.InferenceSession(path.read_bytes(), providers=CPU)
    meta = session.get_modelmeta()
    names = "custom_metadata_map", "description", "domain", "graph_name", "graph_description", "producer_name"
    return [getattr(meta, name) for name in (*names, "version")]


def runs(module: Any, path: Path) -> Any:
    session = module.InferenceSession(path, module.SessionOptions(), CPU)
    bias = np.zeros(2, np.float32)
    return [
        session.run(None, {"x": BATCH}),
        session.run([], {"x": BATCH}),
        session.run(["positive", "y"], {"x": BATCH[:1]}, module.RunOptions()),
        session.run(["y"], {"x": BATCH, "bias": bias}),
    ]


def values(module: Any, path: Path) -> Any:
    session = module.InferenceSession(path, providers=CPU)
    value = module.OrtValue.ortvalue_from_numpy(BATCH.copy())
    facts = [value.shape(), value.data_type(), value.element_type(), value.device_name(), value.is_tensor()]
    facts += [value.tensor_size_in_bytes(), value.has_value(), value.is_sparse_tensor(), value.is_tensor_sequence()]
    results = session.run_with_ort_values(["y", "positive"], {"x": value})
    arrays = [(result.data_type(), result.shape(), result.numpy()) for result in results]
    value.update_inplace(BATCH + 1)
    updated = session.run_with_ort_values(["y"], {"x": value})
    empty = module.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32)
    return facts, arrays, updated[0].numpy(), (empty.shape(), empty.data_type())


def bindings(module: Any, path: Path) -> Any:
    session = module.InferenceSession(path, providers=CPU)
    binding = session.io_binding()
    binding.bind_cpu_input("x", BATCH)
    binding.bind_output("y")
    binding.bind_output("positive")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    first = binding.copy_outputs_to_cpu(), [value.data_type() for value in binding.get_outputs()]
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    target = np.zeros((2, 2), np.float32)
    binding.bind_ortvalue_input("x", module.OrtValue.ortvalue_from_numpy(BATCH * 2))
    binding.bind_ortvalue_output("y", module.OrtValue.ortvalue_from_numpy(target))
    session.run_with_iobinding(binding)
    return first, binding.copy_outputs_to_cpu(), target


def asynchronous(module: Any, path: Path) -> Any:
    session = module.InferenceSession(path, providers=CPU)
    finished, results = threading.Event(), []

    def callback(outputs: Any, user_data: Any, error: str) -> None:
        results.append((outputs, user_data, error))
        finished.set()

    session.run_async(["y"], {"x": BATCH}, callback, "tag")
    assert finished.wait(30)
    return results


def free_dimensions(module: Any, path: Path) -> Any:
    options = module.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = module.InferenceSession(path, sess_options=options, providers=CPU)
    entry = session.get_session_options().get_session_config_entry("session.set_denormal_as_zero")
    return describe(session.get_inputs()), entry, session.run(["y"], {"x": BATCH})


def profiles(module: Any, path: Path) -> Any:
    options = module.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(path.parent / module.__name__)
    session = module.InferenceSession(path, options, providers=CPU)
    assert session.get_profiling_start_time_ns() > 0
    session.run(None, {"x": BATCH})
    file = Path(session.end_profiling())
    events = json.loads(file.read_text(encoding="utf-8"))
    return file.parent == path.parent, file.name.startswith(module.__name__), len(events) > 0


SCENARIOS = arguments_of_the_model, metadata, runs, values, bindings, asynchronous, free_dimensions, profiles


def assert_same(actual: Any, expected: Any) -> None:
    """Compare nested lists of arrays: shapes and dtypes exactly, floats within rounding."""
    assert isinstance(actual, np.ndarray) == isinstance(expected, np.ndarray)
    if isinstance(expected, np.ndarray):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for actual_entry, expected_entry in zip(actual, expected, strict=True):
            assert_same(actual_entry, expected_entry)
    else:
        assert actual == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_agree(scenario: Scenario, path: Path) -> None:
    assert_same(scenario(dml, path), scenario(ort, path))


@pytest.mark.parametrize("name", ["sigmoid.onnx", "mul_1.onnx"])
def test_onnxruntimes_example_models(name: str) -> None:
    """Its documentation loads these with ``get_example`` and runs them on random numbers."""
    example = Path(ort.__file__).parent / "datasets" / name
    sessions = [module.InferenceSession(str(example), providers=CPU) for module in (dml, ort)]
    (argument,) = sessions[0].get_inputs()
    assert describe([argument]) == describe(sessions[1].get_inputs())
    x = np.random.default_rng(0).random(argument.shape).astype(np.float32)
    assert_same(*(session.run([session.get_outputs()[0].name], {argument.name: x}) for session in sessions))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda session: session.run({"x": BATCH}, ["y"]), "arguments are swapped"),
        (lambda session: session.run(None, BATCH), "mapping from input names"),
        (lambda session: session.run(["z"], {"x": BATCH}), "unknown output 'z'"),
        (lambda session: session.run(None, {}), "'x'"),
        (lambda session: session.run(None, {"x": BATCH.astype(np.float64)}), "float64"),
        (lambda session: session.run(None, {"x": BATCH[:, :2]}), "size 3"),
    ],
)
def test_wrong_calls_raise_one_exception(attempt: Callable[[Any], Any], message: str, path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        attempt(dml.InferenceSession(path))
    with pytest.raises(Exception, match=r"."):  # onnxruntime rejects each of them, too
        attempt(ort.InferenceSession(path, providers=CPU))


def test_unknown_names_are_rejected_when_they_are_bound(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of y, positive, got 'z'"):
        dml.InferenceSession(path).io_binding().bind_output("z")


@pytest.mark.parametrize(
    "attempt",
    [
        lambda session: session.io_binding().bind_input("x", "cuda", 0, np.float32, [2, 3], 4096),
        lambda session: session.set_providers(["CUDAExecutionProvider"]),
        lambda session: dml.SessionOptions().register_custom_ops_library("ops.so"),
    ],
)
def test_functions_that_need_native_code_are_not_supported(attempt: Callable[[Any], Any], path: Path) -> None:
    with pytest.raises(NotSupported):
        attempt(dml.InferenceSession(path))


def test_other_providers_cause_one_warning(path: Path) -> None:
    name = f"{path.parent.name}ExecutionProvider"  # of no other test: a name causes one warning per process
    providers = [name, "DmlExecutionProvider"]
    with pytest.warns(UserWarning, match=f"ignored .{name}.") as record:
        dml.InferenceSession(path, providers=providers)
    assert [Path(warning.filename) for warning in record] == [Path(__file__)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = dml.InferenceSession(path, providers=providers)
    assert session.get_providers() == dml.get_available_providers() == ["DmlExecutionProvider"]


def test_device_id_chooses_an_adapter(path: Path) -> None:
    with pytest.raises(DmlError, match="no adapter matches 99"):
        dml.InferenceSession(path, providers=[("DmlExecutionProvider", {"device_id": 99})])


def test_get_device_ignores_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dml, "adapters", lambda: (NUMPY_ADAPTER,))
    assert dml.get_device() == "CPU"
    monkeypatch.setattr(dml, "adapters", lambda: (replace(NUMPY_ADAPTER, backend="Vulkan"), NUMPY_ADAPTER))
    assert dml.get_device() == "GPU"


def test_unknown_options_are_rejected() -> None:
    with pytest.raises(AttributeError):
        dml.SessionOptions().intra_op_threads = 2  # type: ignore[attr-defined]


def test_values_on_a_device(path: Path, adapter_name: str = "numpy") -> None:
    session = dml.InferenceSession(path, device=adapter_name)
    (result, flags) = session.run_with_ort_values(["y", "positive"], {"x": dml.OrtValue(BATCH)})
    assert (result.device_name(), flags.data_type()) == ("dml", "tensor(bool)")
    expected = BATCH @ WEIGHTS + np.array([0.5, -1], np.float32)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(flags.numpy(), expected > 0)
    result.update_inplace(np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(result.numpy(), np.ones((2, 2)))
    with pytest.raises(NotSupported, match="no address"):
        result.data_ptr()


def test_repr_names_inputs_outputs_and_the_adapter(path: Path) -> None:
    text = repr(dml.InferenceSession(path, device="numpy"))
    assert "x: tensor(float) ['batch', 3]" in text
    assert "positive: tensor(bool) ['batch', 2]" in text
