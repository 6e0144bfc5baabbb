"""Runs of patterns equal those of translations for the same sizes: ONNX's node tests with free dimensions, and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from dmlgpu import Device, DmlError
from dmlgpu.conformance.suites.onnx_backend import data_of, model_of, models, outside
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.frontends.onnx.patterns import SizedStage

SAMPLE = 12
"""Every so many of the node tests."""

LEAST_SHARE = 0.5
"""Least share of the runs with new sizes that follow from patterns."""


def free(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose inputs have any sizes."""
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    for number, value in enumerate((*freed.graph.input, *freed.graph.output)):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"size {number} {axis}"
    return freed


def resized(inputs: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield inputs with other sizes: all that are equal change alike, to few values in turn."""
    sizes = sorted({size for array in inputs for size in array.shape})
    changes = [{size: value} for size in sizes for value in (size + 1, size + 3, 2 * size + 2) if size]
    for change in [*changes, {size: size + 2 for size in sizes}, {size: 2 * size for size in sizes}]:
        yield [np.resize(array, [change.get(size, size) for size in array.shape]) for array in inputs]


def result_of(session: Session, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Return the outputs, or the class of the error."""
    names = [info.name for info in session.inputs]
    try:
        return [*session.run(dict(zip(names, inputs, strict=True))).values()]
    except DmlError as error:
        return f"{type(error).__name__}: {error}"


def check(model: onnx.ModelProto, runs: Sequence[Sequence[np.ndarray]], device: Device) -> int:
    """Compare a session with one that translates for all sizes; return how many runs followed from patterns."""
    session, translating = load(model, device), load(model, device)
    translating._runner._patterns = None
    followed = 0
    for inputs in runs:
        results, expected = result_of(session, inputs), result_of(translating, inputs)
        if isinstance(expected, str) or isinstance(results, str):
            assert results == expected
            continue
        for result, reference in zip(results, expected, strict=True):
            assert (result.dtype, result.shape) == (reference.dtype, reference.shape)
            np.testing.assert_array_equal(result, reference)
        followed += isinstance(session._runner._last[0], SizedStage)
    return followed


def cases(step: int) -> Iterator[tuple[str, onnx.ModelProto, list[list[np.ndarray]]]]:
    """Yield every so many of the node tests: the name, the model, and the inputs of runs."""
    for name, case in sorted(models("node").items())[::step]:
        model = model_of(case)
        if outside(model) or "random" in name or "bernoulli" in name or "dropout" in name:
            continue
        (inputs, _), *_ = data_of(case)
        if inputs and all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in inputs):
            yield name, free(model), [inputs, *resized(inputs), inputs]


def test_node_tests_with_free_dimensions() -> None:
    device, runs, followed = Device("numpy"), 0, 0
    for name, model, inputs in cases(SAMPLE):
        try:
            followed += check(model, inputs, device)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        except DmlError:  # unsupported
            continue
        runs += len(inputs) - 2
    assert followed > LEAST_SHARE * runs, (followed, runs)
