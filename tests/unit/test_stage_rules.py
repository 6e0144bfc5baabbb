"""The rules between the stages of the compiler, read off the source: who may ask what, and who decides."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dmlgpu"

WGSL = re.compile(r"\w[(\[<{]|[)\]>}]\.|\b(fn|let|var|return|array|vec\d|bitcast|xyzw)\b|;$|\b\d+[ufi]\b|==|&&|\|\|")
"""Calls, subscripts, keywords and literals, none of which stands in a label, a reason or a name."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the value of every text in a module but docstrings and those of messages."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def wgsl_in(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in texts(source) if WGSL.search(text)]


def modules(*rooms: str) -> dict[str, str]:
    """Return the source of every module of some rooms, by path below the package."""
    files = [file for room in rooms for file in sorted((PACKAGE / room).rglob("*.py"))]
    assert files
    return {str(file.relative_to(PACKAGE)): file.read_text(encoding="utf-8") for file in files}


def test_schedules_write_no_wgsl():
    assert {name: found for name, source in modules("schedule").items() if (found := wgsl_in(source))} == {}


@pytest.mark.parametrize(
    "text", ["'rank(bits)'", "f'bitcast<f32>({x})'", "f'seen{n}.{\"xyzw\"[lane]}'", "'let x'", "'x[0]'"]
)
def test_wgsl_is_recognised(text):
    assert wgsl_in(f"value = {text}")


def test_a_single_operator_is_validated_without_graphs():
    program = (
        "import sys\n"
        "from dmlgpu import TensorDesc, descs, operators\n"
        "from dmlgpu.enums import DataType, FeatureLevel\n"
        "from dmlgpu.errors import InvalidDescription\n"
        "tensors = [TensorDesc(DataType.FLOAT32, (size,)) for size in (2, 3)]\n"
        "desc = descs.ElementWiseAbs(input_tensor=tensors[0], output_tensor=tensors[1])\n"
        "try:\n"
        "    operators.check_rules(desc, max(FeatureLevel))\n"
        "except InvalidDescription as error:\n"
        "    print(error.args[0].partition(':')[0], 'dmlgpu.graph' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "ELEMENT_WISE_ABS False\n"
