"""The examples in docstrings of public functions print what they say, on the adapter ``numpy``."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Tensor, array, ops
from dmlgpu.tensors.tracing.compiled import CompiledFunction

NAMES = {"np": np, "dmlgpu": dmlgpu, "Tensor": Tensor, "ops": ops, "xp": array}
"""Names that the examples use without importing them, as the modules' docstrings explain."""

FUNCTIONS = {
    **{f"ops.{name}": getattr(ops, name) for name in ops.__all__},
    **{f"ops.linalg.{name}": getattr(ops.linalg, name) for name in ops.linalg.__all__},
    **{f"ops.fft.{name}": getattr(ops.fft, name) for name in ops.fft.__all__},
    **{f"array.{name}": getattr(array, name) for name in dir(array)},
    **{
        name: getattr(dmlgpu, name)
        for name in ("Tensor", "compile", "grad", "value_and_grad", "vmap", "cond", "scan", "set_float64")
    },
    "CompiledFunction": CompiledFunction,
}


def examples(name: str, value: Any) -> Iterator[doctest.DocTest]:
    """Yield the examples of a function or a class, including those of its methods and bases."""
    members = {name: value}
    if inspect.isclass(value):
        members |= {f"{name}.{key}": member for key, member in inspect.getmembers_static(value) if key[0] != "_"}
    parser = doctest.DocTestParser()
    for key, member in members.items():
        docstring = inspect.getdoc(member)
        if docstring is not None and ">>>" in docstring:
            yield parser.get_doctest(docstring, dict(NAMES), key, None, None)


TESTS = [
    test
    for name, value in FUNCTIONS.items()
    if not isinstance(value, ModuleType) and (inspect.isroutine(value) or inspect.isclass(value))
    for test in examples(name, value)
]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_examples_print_their_documented_output(test: doctest.DocTest) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    with dmlgpu.device("numpy"):
        runner.run(test, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


def test_every_function_of_ops_has_an_example() -> None:
    tested = {test.name for test in TESTS}
    functions = {name for name, value in FUNCTIONS.items() if name.startswith("ops.") and inspect.isfunction(value)}
    assert len(functions) > 90
    assert functions - tested == set()
