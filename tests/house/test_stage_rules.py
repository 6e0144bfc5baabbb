"""Rules between the stages of the compiler, checked on their source: imports, reads of targets, and decisions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from dmlgpu.compiler import plan
from dmlgpu.compiler.schedule.reduce import ABSORBING
from dmlgpu.compiler.schedule.rows import AT_ONCE_STAGES, LIFTS_MANY
from dmlgpu.compiler.wgsl import templates

PACKAGE = Path(__file__).parents[2] / "dmlgpu" / "compiler"

WGSL = re.compile(r"\w[(\[<{]|[)\]>}]\.|\b(fn|let|var|return|array|vec\d|bitcast|xyzw)\b|;$|\b\d+[ufi]\b|==|&&|\|\|")
"""Calls, subscripts, keywords and literals of WGSL, which labels, reasons and names do not contain."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and value of every string in a module except docstrings and messages."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def wgsl_in(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in texts(source) if WGSL.search(text)]


def modules(*packages: str) -> dict[str, str]:
    """Return the source of every module of some packages of the compiler, by path below its folder."""
    files = [file for package in packages for file in sorted((PACKAGE / package).rglob("*.py"))]
    assert files
    return {str(file.relative_to(PACKAGE)): file.read_text(encoding="utf-8") for file in files}


def test_schedules_write_no_wgsl():
    assert {name: wgsl for name, source in modules("schedule").items() if (wgsl := wgsl_in(source))} == {}


@pytest.mark.parametrize(
    "text", ["'rank(bits)'", "f'bitcast<f32>({x})'", "f'seen{n}.{\"xyzw\"[lane]}'", "'let x'", "'x[0]'"]
)
def test_wgsl_is_recognized(text):
    assert wgsl_in(f"value = {text}")


def imported(source: str, package: str) -> set[str]:
    """Return the names that a module imports from modules of a package."""
    return {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}.")
        for alias in node.names
    }


def attributes_of(source: str, *owners: str) -> set[str]:
    """Return the attributes that a module reads from variables and attributes of some names."""
    read = (
        (node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", ""), node.attr)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
    )
    return {attribute for owner, attribute in read if owner in owners}


def read_of_targets(source: str) -> set[str]:
    """Return the attributes that a module reads from variables called ``target``, and from their policies."""
    return attributes_of(source, "target", "_target", "policies")


def test_rendering_imports_only_data_from_schedules():
    """Rendering imports classes of steps, but no constants or functions of schedules' choices."""
    for name, source in modules("wgsl").items():
        assert all(
            re.fullmatch("[A-Z][A-Za-z]*[a-z][A-Za-z]*", each) for each in imported(source, "dmlgpu.compiler.schedule")
        ), name


def test_rendering_reads_only_features_and_binding_limits_of_targets():
    """Sources depend on features, exact operations, and checks; too many bindings are rejected."""
    sources = modules("wgsl").values()
    assert {attribute for source in sources for attribute in read_of_targets(source)} == {
        *("has", "name", "slots", "bindings", "max_binding_size", "float16", "division"),
        *("policies", "checked", "specialized"),
    }


def test_templates_and_steps_do_not_know_whether_sizes_are_constants():
    """One body serves both kinds of kernels."""
    for name, source in modules("wgsl").items():
        if name != "wgsl/render.py":
            assert attributes_of(source, "policies") == set(), name


def test_the_linker_reads_no_target():
    source = (PACKAGE / "linker.py").read_text(encoding="utf-8")
    assert imported(source, "dmlgpu.compiler") == set()


def test_plans_are_made_and_rewritten_without_schedules():
    for name, source in modules("operators", "rewrites", "plan", "graph/passes").items():
        assert imported(source, "dmlgpu.compiler.schedule") == set(), name


@pytest.mark.parametrize("package", ["operators", "rewrites", "plan", "graph/passes"])
def test_plans_are_the_same_for_every_target(package):
    """Only schedules read profile, features and limits of an adapter."""
    for name, source in modules(package).items():
        assert read_of_targets(source) == set(), name


def test_passes_read_no_target():
    """Passes get decisions that depend on a target, such as whether a kernel can bind a step's tensors, as
    functions."""
    for name, source in modules("graph/passes").items():
        assert imported(source, "dmlgpu.compiler.target") == set(), name


def test_operators_leave_the_dimension_of_units_to_schedules():
    for name, source in modules("operators").items():
        assert imported(source, "dmlgpu.compiler.rewrites").isdisjoint({"running_dimension", "UNIT"}), name


def test_plans_name_no_property_of_a_schedule():
    """Schedules read the cost of a body, and its shader's functions for inner loops, from the shader's file."""
    classes = [each for each in vars(plan).values() if isinstance(each, type) and is_dataclass(each)]
    names = {field.name for each in classes for field in fields(each)}
    assert {"output", "body", "longest"} <= names
    assert names.isdisjoint(
        {"costly", "at_once", "run", "lifts_many", "group", "held", "launch", "walk", "paired", "tile", "alike"}
    )


def shaders_with(pattern: str) -> set[str]:
    """Return the shaders of reductions that match a pattern directly or in an included file."""
    files = [file for folder in ("reduction", "normalization", "softmax") for file in templates.files(folder)]
    included = {file: re.findall(r"include \"([^\"]+)\"", templates.source(file)) for file in files}
    return {
        file for file in files if any(re.search(pattern, templates.source(each)) for each in (file, *included[file]))
    }


def test_schedules_know_what_the_shaders_of_stages_offer():
    lifting = shaders_with(r"fn lift\{\{ count \}\}")
    at_once = {stage.file for stage in AT_ONCE_STAGES.values()}
    assert lifting - at_once - {"normalization/moments_of_many"} == set(LIFTS_MANY)
    assert shaders_with(r"fn absorb\{\{ count \}\}") == at_once
    assert shaders_with(r"fn absorb\(sum: run_t, values: array") == set(ABSORBING)


def test_a_single_operator_is_validated_without_graphs():
    program = (
        "import sys\n"
        "from dmlgpu import TensorDesc, descs\n"
        "from dmlgpu.compiler import operators\n"
        "from dmlgpu.catalog.enums import DataType, FeatureLevel\n"
        "from dmlgpu.common.errors import InvalidDescription\n"
        "tensors = [TensorDesc(DataType.FLOAT32, (size,)) for size in (2, 3)]\n"
        "desc = descs.ElementWiseAbs(input_tensor=tensors[0], output_tensor=tensors[1])\n"
        "try:\n"
        "    operators.check_rules(desc, max(FeatureLevel))\n"
        "except InvalidDescription as error:\n"
        "    print(error.args[0].partition(':')[0], 'dmlgpu.compiler.graph' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "ELEMENT_WISE_ABS False\n"
