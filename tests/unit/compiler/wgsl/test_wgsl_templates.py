"""The template language: strict, without header comments, with line statements."""

from __future__ import annotations

import jinja2
import pytest

from dmlgpu.compiler.wgsl import templates


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError) as caught:
        templates.render("access/types", name="input", rank=3, scalar="f32")
    assert str(caught.value) == "'unit' is undefined"


def test_a_missing_attribute_is_an_error():
    with pytest.raises(jinja2.UndefinedError) as caught:
        templates.render("elementwise/cast", input=(), output=())
    assert str(caught.value) == "'tuple object' has no attribute 'to'"


def test_rendered_text_names_its_file_and_drops_the_header():
    text = templates.render("access/types", name="input", rank=3, scalar="f32", unit="vec4<f32>")
    assert text == (
        "// ---- shaders/access/types.wgsl\n"
        "alias input_at = array<u32, 3>;\n"
        "alias input_s = f32;\n"
        "alias input_t = vec4<f32>;\n"
    )


def test_line_statements_leave_no_lines():
    text = templates.render("access/head", buffers=["u32", "atomic<u32>"], immediates=False)
    assert text.splitlines()[2:] == [
        "@group(0) @binding(2) var<uniform> params: Params;",
        "@group(0) @binding(0) var<storage, read_write> buffer0: array<u32>;",
        "@group(0) @binding(1) var<storage, read_write> buffer1: array<atomic<u32>>;",
    ]


def test_headers_have_name_and_formula():
    assert templates.header("elementwise/element_wise_subtract") == "ELEMENT_WISE_SUBTRACT: output = a - b"
    assert templates.header("layout/slice1").startswith("SLICE1: output[at] = input[start + step * at]")


def test_files_of_a_folder():
    assert "lib/words" in templates.files("lib")
    assert templates.exists("lib/words") and not templates.exists("lib/nothing")
    assert not templates.exists("lib")
