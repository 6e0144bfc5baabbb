"""DxDispatch models on every adapter: uploads, offsets, owned tensors, several dispatches, read-back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import BindingError, ModelError, ShaderError
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends import dxdispatch

MODELS = Path(__file__).parent.parent / "data" / "dxdispatch"


@pytest.fixture(scope="module")
def device(adapter: AdapterInfo) -> dmlgpu.Device:
    return dmlgpu.Device(adapter)


def test_gather(device: dmlgpu.Device) -> None:
    result = dxdispatch.run(MODELS / "gather.json", device)
    np.testing.assert_array_equal(result["table"], [[10, 12.5], [15, 17.5], [20, 22.5]])
    np.testing.assert_array_equal(result["picked"], [[20, 22.5], [10, 12.5], [20, 22.5]])


def test_several_dispatches_offsets_and_files(device: dmlgpu.Device, tmp_path: Path) -> None:
    result = dxdispatch.run(MODELS / "pipeline.json", device, output_directory=tmp_path)
    difference = np.array([8 - 1, 9 + 2, 10 - 3, 11 - 0.5], np.float32)
    product = (difference * [4, 5, 6, 7] * [1, -2, 3, 0.5]).astype(np.float32).reshape(2, 2)
    np.testing.assert_array_equal(result["difference"], difference.reshape(1, 4, 1))
    np.testing.assert_array_equal(result["product"], product)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "product.npy"), product)
    assert (tmp_path / "out" / "product.bin").read_bytes() == product.tobytes()


def test_owned_tensors(device: dmlgpu.Device) -> None:
    result = dxdispatch.run(MODELS / "owned.json", device)
    np.testing.assert_array_equal(result["output"], [[4, 2, 0.75], [16, 5, 1.5]])


def test_strided_half_precision_keeps_special_values(device: dmlgpu.Device) -> None:
    result = dxdispatch.execute(dxdispatch.load(MODELS / "layouts.json"), device)
    expected = np.array([[65504, np.nan, -np.inf], [-65504, np.inf, 0.5]], np.float16)
    np.testing.assert_array_equal(result.resources["rows"], expected)
    assert result.printed[2].text == "7, 0, 0, 0, 0, 0, 32, 64, 254, 255, 255"


def test_a_rejected_model_leaves_the_device_usable(device: dmlgpu.Device) -> None:
    tensor: dict[str, Any] = {"DataType": "FLOAT32", "Sizes": [4]}
    model: dict[str, Any] = {
        "resources": {name: {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4, 5]} for name in "XY"},
        "dispatchables": {"copy": {"type": "ELEMENT_WISE_IDENTITY", "InputTensor": tensor, "OutputTensor": tensor}},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "copy",
                "bindings": {"InputTensor": {"name": "X", "elementOffset": 1}, "OutputTensor": "Y"},
            }
        ],
    }
    with pytest.raises(BindingError, match=r"^\$\.commands\[0\]: "):
        dxdispatch.run(model, device)
    model["dispatchables"]["copy"]["OutputTensor"] = {"DataType": "FLOAT32", "Sizes": [3]}
    with pytest.raises(ModelError, match=r"^\$\.dispatchables\.copy\.OutputTensor\.Sizes: "):
        dxdispatch.run(model, device)
    test_gather(device)


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_shader_with_bindings_by_name_constants_and_thread_groups(device: dmlgpu.Device) -> None:
    model = dxdispatch.load(EXAMPLES / "shader.json")
    result = dxdispatch.execute(model, device, timing=dxdispatch.TimingOptions(iterations=2, repeat=2))
    assert result.resources["sum"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, -1]


def test_a_shader_that_does_not_compile_says_where(device: dmlgpu.Device, tmp_path: Path) -> None:
    (tmp_path / "a.wgsl").write_text("@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }")
    model = {
        "resources": {},
        "dispatchables": {"s": {"type": "wgsl", "sourcePath": str(tmp_path / "a.wgsl")}},
        "commands": [],
    }
    with pytest.raises(ShaderError, match=r"(?s)^shader 's' does not compile on .*let x: u32 = 1.5"):
        dxdispatch.run(dxdispatch.load(model, allow_paths=True), device)


def test_graphs_and_onnx_models(device: dmlgpu.Device) -> None:
    assert dxdispatch.run(EXAMPLES / "graph.json", device)["output"].tolist() == [10, -40, 90, -160]
    result = dxdispatch.run(EXAMPLES / "onnx.json", device)
    assert result["sum"].tolist() == [11, 22, 33, 44, 55, 66]
    assert result["row"].tolist() == [[1, 2, 3]]
