"""Shaders, ONNX models and images in DxDispatch models, with full error messages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dmlgpu
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import OnnxDispatchable, ShaderDispatch
from dmlgpu.runtime import shader_source
from dmlgpu.runtime.executor import Range
from tests.unit.frontends.dxdispatch.dxdispatch_models import complaint, tensor, values

EXAMPLES = Path(__file__).parents[4] / "examples"

SHADER = """
// @group(0) @binding(7) var<storage> commented: array<f32>;
@group(0) @binding(0) var<storage> a: array<f32>;
@binding(2u) @group(0) /* between */ var<storage, read_write> b: array<f32>;
@group(0) @binding(1) var<uniform> c: vec4<f32>;
var<workgroup> shared_values: array<f32, 4>;
override SCALE: f32 = 1.0;
@compute @workgroup_size(4, 1, 1) fn first(@builtin(global_invocation_id) id: vec3<u32>) { b[id.x] = a[id.x]; }
@workgroup_size(4) @compute fn second() { }
"""


def test_declarations() -> None:
    plain = shader_source.without_comments(SHADER)
    assert [(binding.name, binding.number, binding.kind) for binding in shader_source.bindings(plain)] == [
        ("a", 0, "read-only-storage"),
        ("b", 2, "storage"),
        ("c", 1, "uniform"),
    ]
    assert shader_source.entry_points(plain) == ("first", "second")
    assert shader_source.overrides(plain) == ("SCALE",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@group(1) @binding(0) var<storage> a: X;", r"the variable 'a' must be in @group\(0\), got @group\(1\)"),
        ("@group(0) @binding(N) var<storage> a: X;", "the variable 'a' must have @group and @binding with numbers"),
        ("@group(0) @binding(0) var a: texture_2d<f32>;", r"the variable 'a' must be a buffer, .* got var<>"),
        (
            "@group(0) @binding(0) var<uniform> a: X; @group(0) @binding(0) var<storage> b: X;",
            "the variables 'a' and 'b' have one binding, 0",
        ),
    ],
)
def test_declarations_that_cannot_be_bound(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        shader_source.bindings(text)


@pytest.mark.parametrize("text", ["/*" * 200_000, "@group(0" * 100_000, "@a(b)" * 100_000, "override " * 100_000])
def test_long_texts_take_no_longer_than_their_length(text: str) -> None:
    plain = shader_source.without_comments(text)
    assert shader_source.bindings(plain) == ()
    assert shader_source.entry_points(plain) == ()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.wgsl").write_text(SHADER)
    (tmp_path / "add.onnx").write_bytes((EXAMPLES / "add.onnx").read_bytes())
    return tmp_path


def shader_model() -> dict[str, Any]:
    return {
        "resources": {"A": values(*range(8)), "B": values(*range(8)), "C": values(1, sizeInBytes=256)},
        "dispatchables": {
            "s": {"type": "wgsl", "sourcePath": "s.wgsl", "entryPoint": "first", "constants": {"SCALE": 2}}
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "s",
                "threadGroupCount": [2, 1, 1],
                "bindings": {"a": {"name": "A", "elementOffset": 4}, "b": ["B"], "c": "C"},
            }
        ],
    }


def test_bindings_take_initial_values_ranges_or_all_of_a_uniform(folder: Path) -> None:
    (command,) = dxdispatch.load(shader_model()).commands
    assert isinstance(command, ShaderDispatch)
    assert command.groups == (2, 1, 1)
    assert command.ranges == {0: Range("A", 16, 16), 2: Range("B", 0, 32), 1: Range("C", 0, 256)}


def set_binding(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda model: model["commands"][0]["bindings"].update({name: value})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda model: model["dispatchables"]["s"].pop("entryPoint"),
            "$.dispatchables.s.sourcePath: entryPoint must name a @compute function, since the shader has several: "
            "'first' or 'second'",
        ),
        (
            lambda model: model["dispatchables"]["s"].update(entryPoint="third"),
            "$.dispatchables.s.entryPoint: the shader has no @compute function 'third', it has 'first' or 'second'",
        ),
        (
            lambda model: model["dispatchables"]["s"].update(constants={"SCALES": 1}),
            "$.dispatchables.s.constants.SCALES: the shader has no override 'SCALES'; did you mean 'SCALE'?",
        ),
        (
            lambda model: model["dispatchables"]["s"].update(sourcePath="/etc/passwd"),
            "$.dispatchables.s.sourcePath: '/etc/passwd' lies outside the model's folder; a model may read it only "
            "with --allow-paths (in Python allow_paths=True)",
        ),
        (
            lambda model: model["commands"][0]["bindings"].pop("a"),
            "$.commands[0].bindings.a: a needs a resource, but none is bound",
        ),
        (
            set_binding("d", "A"),
            "$.commands[0].bindings.d: the shader has no such variable to bind here: 'd'; known are 'a', 'b' or 'c'",
        ),
        (
            set_binding("a", "B"),
            "$.commands[0].bindings.a: must be another resource than that of b, which the shader may write",
        ),
        (
            set_binding("a", {"name": "A", "elementOffset": 7, "elementCount": 2}),
            "$.commands[0].bindings.a: must lie within the 32 bytes of resource 'A', got 8 bytes from byte 28 on",
        ),
        (
            lambda model: model["commands"][0].update(threadGroupCount=[1, 0, 1]),
            "$.commands[0].threadGroupCount[1]: must be an integer from 1 to 4294967295, got 0",
        ),
    ],
)
def test_bad_shader_models(folder: Path, change: Callable[[dict[str, Any]], object], text: str) -> None:
    model = copy.deepcopy(shader_model())
    change(model)
    assert complaint(model) == text


# -- ONNX -----------------------------------------------------------------------------------------------------------


def onnx_model(**bindings: Any) -> dict[str, Any]:
    return {
        "resources": {
            "A": values(1, 2, 3, 4),
            "out": values(0, 0, 0, 0),
            "late": {"initialValues": "deferred", "initialValuesDataType": "FLOAT32"},
        },
        "dispatchables": {
            "n": {"type": "onnx", "sourcePath": "add.onnx", "freeDimensionNameOverrides": {"columns": 2}}
        },
        "commands": [
            {"type": "dispatch", "dispatchable": "n", "bindings": bindings},
            {"type": "print", "resource": "out"},
            {"type": "print", "resource": "late"},
        ],
    }


def test_overrides_of_the_command_line_win(folder: Path) -> None:
    overrides = dxdispatch.OnnxOptions(name_overrides={"columns": 4})
    for options, expected in ((None, 2), (overrides, 4)):
        result = dxdispatch.load(onnx_model(), onnx=options).dispatchables["n"]
        assert isinstance(result, OnnxDispatchable)
        assert [model_input.shape for model_input in result.model.inputs] == [("rows", expected)] * 2


@pytest.mark.parametrize(
    ("bindings", "text"),
    [
        ({"w": "A"}, "$.commands[0].bindings.w: the ONNX model has no such input or output: 'w'"),
        (
            {"x": "late"},
            "$.commands[0].bindings.x: the deferred resource 'late' can only be an output of an ONNX model",
        ),
        ({"x": {"name": "A", "elementOffset": 1}}, "$.commands[0].bindings.x: elementOffset must be 0"),
        ({"x": {"name": "A", "shape": [3, 2]}}, "$.commands[0].bindings.x: input 'x' of shape [3, 2] needs 24 bytes"),
        (
            {"x": {"name": "A", "shape": [2, 2]}, "z": {"name": "out", "shape": [1, 2]}},
            "$.commands[0].bindings.z: output 'z' has shape [2, 2], the binding says [1, 2]",
        ),
        (
            {"x": {"shape": [3, 2]}, "z": "out"},
            "$.commands[0].bindings.z: output 'z' has 24 bytes, the resource has room for 16",
        ),
        ({"x": "A"}, "$.commands[2]: the deferred resource 'late' was not an output of the last dispatch"),
    ],
)
def test_bad_bindings_of_onnx_models(folder: Path, bindings: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError) as caught:
        dxdispatch.run(onnx_model(**bindings), dmlgpu.Device("numpy"))
    assert str(caught.value).startswith(text)


# -- pictures -------------------------------------------------------------------------------------------------------


def test_pictures_are_read_resampled_and_written(folder: Path) -> None:
    pixels = np.array([[[255, 0, 51], [0, 102, 0]]], np.uint8)
    Image.fromarray(pixels).save(folder / "in.png")
    model = {
        "resources": {
            "in": {"initialValues": {"sourcePath": "in.png"}, "initialValuesDataType": "FLOAT32"},
            "large": {
                "initialValues": {"sourcePath": "in.png"},
                "initialValuesDataType": "FLOAT16",
                "resampleSize": [1, 4, 6, 8],
            },
            "out": values(*[-1] * 6),
        },
        "dispatchables": {
            "copy": {"type": "ELEMENT_WISE_IDENTITY", "InputTensor": tensor(6), "OutputTensor": tensor(6)}
        },
        "commands": [
            {"type": "dispatch", "dispatchable": "copy", "bindings": {"InputTensor": "in", "OutputTensor": "out"}},
            {"type": "writeFile", "resource": "out", "targetPath": "out.png", "dimensions": [1, 3, 1, 2]},
            {"type": "writeFile", "resource": "out", "targetPath": "gray.png", "dimensions": [1, 1, 1, 2]},
            {"type": "print", "resource": "large"},
        ],
    }
    result = dxdispatch.run(model, dmlgpu.Device("numpy"), output_directory=folder / "to")
    assert result["large"].dtype == np.float16 and result["large"].shape == (1, 4, 6, 8)
    np.testing.assert_array_equal(np.asarray(Image.open(folder / "to" / "out.png")), pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(folder / "to" / "gray.png")), [[255, 0]])


@pytest.mark.parametrize("sizes", [[1, 3, 8], [2, 3, 8, 8], [1, 2, 8, 8], [1, 3, 2**20, 2**20]])
def test_pictures_have_sizes_of_pictures(folder: Path, sizes: list[int]) -> None:
    Image.new("RGB", (2, 2)).save(folder / "in.png")
    resource = {
        "initialValues": {"sourcePath": "in.png"},
        "initialValuesDataType": "FLOAT32",
        "resampleSize": sizes,
    }
    text = complaint({"resources": {"X": resource}, "dispatchables": {}, "commands": []})
    assert text.startswith("$.resources.X.resampleSize: must be [1, channels, height, width] with 1, 3 or 4 channels")
