"""The template language: strict, without header comments, with line statements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest

from dmlgpu.compiler.wgsl import names, templates


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError) as caught:
        templates.render("access/types", name="input", rank=3, scalar="f32")
    assert str(caught.value) == "'unit' is undefined"


def test_names_without_a_value_are_fields_of_the_step():
    values = {"name": "input", "scalar": "f32", "unit": "vec4<f32>"}
    text = templates.render("access/types", step=SimpleNamespace(rank=3, scalar="u32"), **values)
    assert text == templates.render("access/types", rank=3, **values)


def test_a_missing_attribute_is_an_error():
    with pytest.raises(jinja2.UndefinedError) as caught:
        templates.render("elementwise/cast", input=(), output=())
    assert str(caught.value) == "'tuple object' has no attribute 'to'"


def test_rendered_text_names_its_file_and_drops_the_header():
    text = templates.render("access/types", name="input", rank=3, scalar="f32", unit="vec4<f32>")
    assert text == "// ---- shaders/access/types.wgsl\nalias input_s = f32;\nalias input_t = vec4<f32>;\n"


def test_line_statements_leave_no_lines():
    text = templates.render(
        "access/epilogue", values=[("v0", "product"), ("v1", "v0 * 2.0")], result="v1", product="f32"
    )
    assert [line for line in text.splitlines() if "let" in line] == ["    let v0 = product;", "    let v1 = v0 * 2.0;"]
    assert "#" not in text and "\n\n" not in text


def test_files_that_a_kernel_renders_are_listed_once():
    own = names.Names()
    with names.active(own):
        for name in ("a", "b"):
            templates.render("access/types", name=name, rank=1, scalar="f32", unit="f32")
    assert list(own.files) == ["access/types"]


def test_headers_have_name_and_formula():
    assert templates.header("elementwise/element_wise_subtract") == "ELEMENT_WISE_SUBTRACT: output = a - b"
    assert templates.header("layout/slice1").startswith("SLICE1: output[at] = input[start + step * at]")


def test_files_of_a_folder():
    assert "lib/words" in templates.files("lib")
    assert templates.exists("lib/words") and not templates.exists("lib/nothing")
    assert not templates.exists("lib")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A function that loads a template as a new process, and returns the names of those that were compiled for it."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    compiled: list[str] = []
    compile_template = jinja2.Environment.compile

    def compile_noted(self: jinja2.Environment, source: str, name: str, *arguments: object) -> object:
        compiled.append(name)
        return compile_template(self, source, name, *arguments)

    monkeypatch.setattr(jinja2.Environment, "compile", compile_noted)

    def load() -> list[str]:
        compiled.clear()
        template = templates.environment.__wrapped__().get_template("access/types")
        text = template.render(name="input", rank=3, scalar="f32", unit="vec4<f32>")
        assert text.strip() == "alias input_s = f32;\nalias input_t = vec4<f32>;"
        return list(compiled)

    return load


def test_compiled_templates_are_kept_as_modules_are(compiled, tmp_path: Path):
    assert [compiled(), compiled()] == [["access/types"], []]
    (file,) = tmp_path.rglob("types.*.pyc")
    file.write_bytes(file.read_bytes()[:-9])
    assert [compiled(), compiled()] == [["access/types"], []]


def test_a_change_of_any_file_compiles_templates_again(compiled, monkeypatch: pytest.MonkeyPatch):
    original = templates.original
    assert compiled() == ["access/types"]
    changed = {"lib/words": original("lib/words") + "fn alias() {}\n"}
    monkeypatch.setattr(templates, "original", lambda file: changed.get(file) or original(file))
    assert compiled() == ["access/types"]


def test_mutants_and_processes_without_bytecode_leave_no_compiled_templates(
    compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    with templates.replaced("access/types", templates.original("access/types") + "\n"):
        assert [compiled(), compiled()] == [["access/types"]] * 2
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert [compiled(), compiled()] == [["access/types"]] * 2
    assert not [*tmp_path.rglob("*.pyc")]
