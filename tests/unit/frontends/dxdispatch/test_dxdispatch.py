"""Running DxDispatch models on the numpy adapter: results, prints, files, errors of the device."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import BindingError, InvalidArgument, ModelError, OperatorNotImplemented, OutOfMemory
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch import Dispatched, Initialized, Printed, Written

MODELS = Path(__file__).parents[3] / "data" / "dxdispatch"


@pytest.fixture(scope="module")
def device() -> dmlgpu.Device:
    return dmlgpu.Device("numpy")


def copy_model(data_type: str = "FLOAT32", **resource: Any) -> dict[str, Any]:
    """Copies 4 elements with IDENTITY from X to Y; prints both."""
    tensor = {"DataType": data_type, "Sizes": [4]}
    return {
        "resources": {
            "X": resource or {"initialValuesDataType": data_type, "initialValues": [1, 2, 3, 4]},
            "Y": {"initialValuesDataType": data_type, "initialValues": {"valueCount": 4, "value": 0}},
        },
        "dispatchables": {"copy": {"type": "ELEMENT_WISE_IDENTITY", "InputTensor": tensor, "OutputTensor": tensor}},
        "commands": [
            {"type": "dispatch", "dispatchable": "copy", "bindings": {"InputTensor": "X", "OutputTensor": "Y"}},
            {"type": "print", "resource": "X"},
            {"type": "print", "resource": "Y"},
        ],
    }


def test_gather(device: dmlgpu.Device) -> None:
    result = dxdispatch.run(MODELS / "gather.json", device)
    assert list(result) == ["table", "picked"]
    assert result["picked"].dtype == np.float32
    np.testing.assert_array_equal(result["table"], [[10, 12.5], [15, 17.5], [20, 22.5]])
    np.testing.assert_array_equal(result["picked"], [[20, 22.5], [10, 12.5], [20, 22.5]])


def test_events_read_like_dxdispatch(device: dmlgpu.Device) -> None:
    seen: list[object] = []
    result = dxdispatch.execute(dxdispatch.load(MODELS / "gather.json"), device, on_event=seen.append)
    assert [type(event) for event in result.events] == [Initialized, Printed, Dispatched, Printed]
    assert seen == list(result.events)
    assert [str(event) for event in result.printed] == [
        "Resource 'table': 10, 12.5, 15, 17.5, 20, 22.5",
        "Resource 'picked': 20, 22.5, 10, 12.5, 20, 22.5",
    ]
    assert list(result.initialization_milliseconds) == ["pick"]
    ((name, milliseconds),) = result.dispatch_milliseconds
    assert name == "pick" and milliseconds > 0
    assert str(Initialized("pick", 1.25)) == "Initialize 'pick': 1.2500 ms"
    assert str(Dispatched("pick", (9.0, 0.5))) == "Dispatch 'pick': 2 iterations, 0.5000 ms median (CPU)"


def test_several_dispatches_offsets_and_files(device: dmlgpu.Device, tmp_path: Path) -> None:
    model = dxdispatch.load(MODELS / "pipeline.json")
    result = dxdispatch.execute(model, device, output_directory=tmp_path / "results")
    difference = np.array([8 - 1, 9 + 2, 10 - 3, 11 - 0.5], np.float32)
    product = difference * [4, 5, 6, 7] * [1, -2, 3, 0.5]
    np.testing.assert_array_equal(result.resources["difference"], difference.reshape(1, 4, 1))
    np.testing.assert_array_equal(result.resources["product"], product.reshape(2, 2))
    assert result.files == tuple(
        tmp_path / "results" / name for name in ("out/product.npy", "out/product.bin", "difference.npy")
    )
    written = np.load(result.files[0])
    assert (written.dtype, written.shape) == (np.float32, (2, 2))
    np.testing.assert_array_equal(written.ravel(), product)
    assert result.files[1].read_bytes() == product.astype(np.float32).tobytes()
    assert np.load(result.files[2]).shape == (1, 4, 1)
    last = result.events[-1]
    assert isinstance(last, Written)
    assert str(last) == f"Resource 'difference' written to '{result.files[2]}'"


def test_owned_tensors_and_files(device: dmlgpu.Device) -> None:
    result = dxdispatch.execute(dxdispatch.load(MODELS / "owned.json"), device)
    np.testing.assert_array_equal(result.resources["output"], [[4, 2, 0.75], [16, 5, 1.5]])
    np.testing.assert_array_equal(result.resources["weights"], [2, -1, 0.5])
    assert result.printed[0].text == (
        "[0] 4 (0x40800000)\n"
        "[1] 2 (0x40000000)\n"
        "[2] 0.75 (0x3F400000)\n"
        "[3] 16 (0x41800000)\n"
        "[4] 5 (0x40A00000)\n"
        "[5] 1.5 (0x3FC00000)\n"
    )
    assert str(result.printed[0]).startswith("Resource 'output':\n[0] 4 ")


def test_layouts_special_values_and_mixed_types(device: dmlgpu.Device) -> None:
    result = dxdispatch.execute(dxdispatch.load(MODELS / "layouts.json"), device)
    expected = np.array([[65504, np.nan, -np.inf], [-65504, np.inf, 0.5]], np.float16)
    for name in ("columns", "rows"):
        assert result.resources[name].dtype == np.float16
        np.testing.assert_array_equal(result.resources[name], expected)
    columns, rows, mixed = (event.text for event in result.printed)
    assert columns == "65504, -65504, nan, inf, -inf, 0.5"
    assert rows.split(", ")[:3] == ["65504", "nan", "-inf"]
    assert rows.split(", ")[4:] == ["-65504", "inf", "0.5"]
    assert mixed == "7, 0, 0, 0, 0, 0, 32, 64, 254, 255, 255"
    assert result.resources["mixed"].dtype == np.uint8


def test_verbose_indices_are_aligned_and_bits_have_the_types_width(device: dmlgpu.Device) -> None:
    model = {
        "resources": {"X": {"initialValuesDataType": "INT8", "initialValues": [-1, *range(10)]}},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "X", "verbose": True}],
    }
    (printed,) = dxdispatch.execute(dxdispatch.load(model), device).printed
    lines = printed.text.splitlines()
    assert (lines[0], lines[10]) == ("[ 0] -1 (0xFF)", "[10] 9 (0x09)")


def test_the_last_print_counts(device: dmlgpu.Device) -> None:
    model = copy_model()
    show = {"type": "print", "resource": "Y"}
    model["commands"] = [show, model["commands"][0]]
    np.testing.assert_array_equal(dxdispatch.run(model, device)["Y"], [0, 0, 0, 0])
    model["commands"] = [show, model["commands"][1], show]
    np.testing.assert_array_equal(dxdispatch.run(model, device)["Y"], [1, 2, 3, 4])


def test_models_can_run_twice(device: dmlgpu.Device) -> None:
    model = dxdispatch.load(MODELS / "owned.json")
    first, second = (dxdispatch.run(model, device) for _ in range(2))
    np.testing.assert_array_equal(first["output"], second["output"])


def test_padding_is_neither_printed_nor_returned_but_declared_sizes_are_written(
    device: dmlgpu.Device, tmp_path: Path
) -> None:
    model = copy_model("UINT16", initialValuesDataType="UINT16", initialValues=[1, 2, 3, 4, 5], sizeInBytes=16)
    model["resources"]["Y"]["initialValues"] = [0] * 5
    model["commands"] += [
        {"type": "writeFile", "resource": name, "targetPath": f"{name}.{suffix}"}
        for name in "XY"
        for suffix in ("bin", "npy")
    ]
    result = dxdispatch.execute(dxdispatch.load(model), device, output_directory=tmp_path)
    assert [event.text for event in result.printed] == ["1, 2, 3, 4, 5", "1, 2, 3, 4, 0"]
    np.testing.assert_array_equal(result.resources["X"], np.array([1, 2, 3, 4, 5], np.uint16))
    x, y = ((tmp_path / f"{name}.bin").read_bytes() for name in "XY")
    assert x == np.array([1, 2, 3, 4, 5, 0, 0, 0], np.uint16).tobytes()
    assert y == np.array([1, 2, 3, 4, 0], np.uint16).tobytes()
    np.testing.assert_array_equal(np.load(tmp_path / "Y.npy"), [1, 2, 3, 4, 0])


def test_sizes_of_an_array_file_are_kept(device: dmlgpu.Device, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int32).reshape(2, 2))
    (tmp_path / "model.json").write_text(json.dumps(copy_model("INT32", initialValues={"sourcePath": "x.npy"})))
    result = dxdispatch.run(tmp_path / "model.json", device)
    np.testing.assert_array_equal(result["X"], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(result["Y"], [0, 1, 2, 3])


def test_a_resource_may_be_bound_as_another_type(device: dmlgpu.Device) -> None:
    model = copy_model("UINT32", initialValuesDataType="FLOAT32", initialValues=[1, "nan", -0.0, "-inf"])
    result = dxdispatch.run(model, device)
    assert result["X"].dtype == np.float32
    assert math.isinf(result["X"][3])
    np.testing.assert_array_equal(result["Y"], [0x3F800000, 0x7FC00000, 0x80000000, 0xFF800000])


def test_sizes_are_those_of_the_latest_write(device: dmlgpu.Device) -> None:
    model = copy_model()
    square = {"DataType": "FLOAT32", "Sizes": [2, 2]}
    model["dispatchables"]["square"] = {
        "type": "ELEMENT_WISE_IDENTITY",
        "desc": {"InputTensor": square, "OutputTensor": square},
    }
    write_flat, show_x, show_y = model["commands"]
    read_square = {
        "type": "dispatch",
        "dispatchable": "square",
        "bindings": {"InputTensor": "Y", "OutputTensor": "X"},
    }
    model["commands"] = [write_flat, show_x, show_y, read_square]
    assert {name: array.shape for name, array in dxdispatch.run(model, device).items()} == {"X": (4,), "Y": (4,)}
    model["commands"] = [show_y, write_flat, read_square, show_x]
    assert {name: array.shape for name, array in dxdispatch.run(model, device).items()} == {"X": (2, 2), "Y": (4,)}


def test_sizes_that_a_file_was_written_with_stay(device: dmlgpu.Device, tmp_path: Path) -> None:
    model = copy_model()
    model["commands"].insert(1, {"type": "writeFile", "resource": "Y", "targetPath": "y.npy", "dimensions": [1, 4]})
    assert dxdispatch.run(model, device, output_directory=tmp_path)["Y"].shape == (1, 4)
    assert np.load(tmp_path / "y.npy").shape == (1, 4)


@pytest.mark.parametrize("target", ["a\0b.npy", "n" * 5000])
def test_impossible_file_names(device: dmlgpu.Device, tmp_path: Path, target: str) -> None:
    model = copy_model()
    model["commands"].append({"type": "writeFile", "resource": "Y", "targetPath": target})
    with pytest.raises(ModelError, match=r"^\$\.commands\[3\]: cannot write "):
        dxdispatch.run(model, device, output_directory=tmp_path)
    with pytest.raises(ModelError, match=r"^\$\.resources\.X\.initialValues\.sourcePath: there is no file "):
        dxdispatch.run(copy_model(initialValues={"sourcePath": target}), device)
    with pytest.raises(ModelError, match="the model file cannot be read: "):
        dxdispatch.run(target, device)


@pytest.mark.parametrize("place", ["sizeInBytes", "initialValuesOffsetInBytes"])
@pytest.mark.parametrize("size", [2**62, 2**63 - 8, 2**63, 2**64 - 1])
def test_sizes_beyond_all_memory(device: dmlgpu.Device, place: str, size: int) -> None:
    model = copy_model(initialValuesDataType="FLOAT32", initialValues=[1, 2, 3, 4], **{place: size})
    with pytest.raises(OutOfMemory, match=r"^(buffer|resource) 'X': .* [\d,]+ bytes"):
        dxdispatch.run(model, device)


@pytest.mark.parametrize("values", [{"value": 0}, {"valueStart": 0, "valueDelta": 1}])
def test_values_that_memory_cannot_hold(monkeypatch: pytest.MonkeyPatch, values: Any) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    model = copy_model("INT32", initialValuesDataType="INT32", initialValues={"valueCount": 2**31, **values})
    loaded = dxdispatch.load(model)
    monkeypatch.setenv("DMLGPU_MEMORY_BUDGET", str(2**40))  # as on a machine that has the memory
    device = dmlgpu.Device("numpy")
    monkeypatch.setattr(np, "zeros", lambda size, *_: np.empty(16, np.uint8))  # the device's buffer is there
    monkeypatch.setattr(np, "full", fail)
    with pytest.raises(OutOfMemory, match=r"^resource 'X': the host has no 8,589,934,592 bytes left$"):
        dxdispatch.execute(loaded, device)


def test_python_mapping_with_tuples_and_floats(device: dmlgpu.Device) -> None:
    model = copy_model(initialValuesDataType="FLOAT32", initialValues=(math.nan, -math.inf, 0.5, 2))
    np.testing.assert_array_equal(dxdispatch.run(model, device)["Y"], [math.nan, -math.inf, 0.5, 2])


# -- what the device rejects ----------------------------------------------------------------------------------------


def test_descriptions_that_the_device_rejects_name_the_key(device: dmlgpu.Device) -> None:
    model = copy_model()
    tensor = {"DataType": "FLOAT32", "Sizes": [3]}
    for form, path in ((tensor, "OutputTensor.Sizes"), ({"Type": "BUFFER", "Desc": tensor}, "OutputTensor.Desc.Sizes")):
        model["dispatchables"]["copy"]["OutputTensor"] = form
        with pytest.raises(ModelError) as caught:
            dxdispatch.run(model, device)
        assert caught.value.path == f"$.dispatchables.copy.{path}"
        assert str(caught.value).startswith(f"{caught.value.path}: ELEMENT_WISE_IDENTITY: output_tensor.sizes must ")
    assert dxdispatch.run(copy_model(), device)["Y"][3] == 4, "the device works on"


def test_bindings_that_the_device_rejects_name_the_command(device: dmlgpu.Device) -> None:
    model = copy_model(initialValuesDataType="FLOAT32", initialValues=[1, 2, 3, 4, 5])
    model["commands"][0]["bindings"]["InputTensor"] = {"name": "X", "elementOffset": 1}
    with pytest.raises(BindingError, match=r"^\$\.commands\[0\]: ELEMENT_WISE_IDENTITY 'copy': input_tensor .*16"):
        dxdispatch.run(model, device)


def test_complaints_lead_into_arrays_of_tensors(device: dmlgpu.Device) -> None:
    tensor = {"DataType": "FLOAT32", "Sizes": [2]}
    bad = {"Type": "BUFFER", "Desc": {"DataType": "FLOAT32", "Sizes": [2], "Strides": [1], "TotalTensorSizeInBytes": 4}}
    model = {
        "resources": {},
        "dispatchables": {
            "join": {
                "type": "JOIN",
                "desc": {"InputTensors": [tensor, bad], "OutputTensor": {**tensor, "Sizes": [4]}, "Axis": 0},
            }
        },
        "commands": [],
    }
    with pytest.raises(ModelError) as caught:
        dxdispatch.run(model, device)
    assert caught.value.path == "$.dispatchables.join.desc.InputTensors[1].Desc.TotalTensorSizeInBytes"


def test_other_rejections_are_annotated_with_the_path(device: dmlgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(desc: dmlgpu.OperatorDesc) -> None:
        raise OperatorNotImplemented(desc.operator)

    monkeypatch.setattr(device, "create_operator", reject)
    with pytest.raises(OperatorNotImplemented, match=r"^ELEMENT_WISE_IDENTITY: ") as caught:
        dxdispatch.run(copy_model(), device)
    assert caught.value.__notes__ == ["in $.dispatchables.copy"]


def test_feature_levels_are_the_devices() -> None:
    with pytest.raises(ModelError, match=r"^\$\.dispatchables\.copy\.InputTensor\.DataType: .* at feature level 1_0"):
        dxdispatch.run(copy_model("INT8"), dmlgpu.Device("numpy", feature_level=dmlgpu.FeatureLevel.LEVEL_1_0))


def test_sizes_beyond_the_memory_budget() -> None:
    model = copy_model(initialValuesDataType="FLOAT32", initialValues={"valueCount": 2**32 - 1, "value": 1})
    with pytest.raises(OutOfMemory, match="X"):
        dxdispatch.run(model, dmlgpu.Device("numpy", memory_budget=2**20))


def test_files_that_cannot_be_written(device: dmlgpu.Device, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    model = copy_model()
    model["commands"].append({"type": "writeFile", "resource": "Y", "targetPath": "taken/y.npy"})
    with pytest.raises(ModelError) as caught:
        dxdispatch.run(model, device, output_directory=tmp_path)
    assert str(caught.value).startswith(f"$.commands[3]: cannot write {str(tmp_path / 'taken' / 'y.npy')!r}: ")


def test_buffers_are_given_back(device: dmlgpu.Device) -> None:
    small = dmlgpu.Device("numpy", memory_budget=600)  # two buffers of 16 bytes, and 512 to compute in
    for _ in range(5):
        dxdispatch.run(copy_model(), small)
    bad = copy_model()
    bad["dispatchables"]["copy"]["OutputTensor"] = {"DataType": "FLOAT32", "Sizes": [3]}
    for _ in range(5):
        with pytest.raises(InvalidArgument):
            dxdispatch.run(bad, small)
    dxdispatch.run(copy_model(), small)
