"""The nodes of ``onnx_samples`` with an attribute or input that does not fit: its numbers, length, rank or type."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import AttributeProto, helper

from dmlgpu.frontends.onnx.signatures import schema_of
from tests.onnx_samples import Array, Sample

INTEGERS = (0, -1, 5, 2**31, 2**62, -(2**63))
FLOATS = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e30)
KINDS = (np.float32, np.float16, np.float64, np.int64, np.int32, np.int8, np.uint8, np.bool_)


def mutants(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Yield samples with one change, and its description."""
    for name, value in _attributes(sample):
        yield f"{name}={str(value)[:40]}", replace(sample, attributes={**sample.attributes, name: value})
    for index, array in enumerate(sample.inputs):
        if array is None:
            continue
        before, behind = sample.inputs[:index], sample.inputs[index + 1 :]
        for what, changed in _arrays(array):
            yield f"input {index} {what}", replace(sample, inputs=(*before, np.asarray(changed), *behind))
        yield f"input {index} omitted", replace(sample, inputs=(*before, None, *behind))
        yield f"{index} inputs", replace(sample, inputs=before)
    yield "more inputs", replace(sample, inputs=(*sample.inputs, *sample.inputs[:1]))
    yield "more outputs", replace(sample, outputs=sample.outputs + 3)


def _attributes(sample: Sample) -> Iterator[tuple[str, Any]]:
    schema = schema_of(sample.domain, sample.op, sample.opset)
    kinds = (
        {}
        if schema is None
        else {
            name: int(getattr(attribute.type, "value", attribute.type)) for name, attribute in schema.attributes.items()
        }
    )
    kinds |= {name: helper.make_attribute(name, value).type for name, value in sample.attributes.items()}
    for name, kind in kinds.items():
        value = sample.attributes.get(name)
        count = len(value) if isinstance(value, list) and value else 2
        values: dict[int, tuple[Any, ...]] = {
            AttributeProto.INT: INTEGERS,
            AttributeProto.FLOAT: FLOATS,
            AttributeProto.STRING: ("", "nonsense", "ij,jk->iz", "ij,jk->ii", "ij...,jk->"),
            AttributeProto.INTS: (
                *([number] * count for number in (0, -1, 9, 2**31, 2**62)),
                *([1] * other for other in (count + 1, count - 1)),
            ),
            AttributeProto.FLOATS: ([math.nan], [math.inf, 1.0], [0.0] * 2, [-1.0] * 4),
        }
        for changed in (*values.get(kind, ()), 1, 1.5, "text", [1, 2], [1.5]):
            if changed != []:  # whose type cannot be told
                yield name, changed


def _arrays(array: Array) -> Iterator[tuple[str, Array]]:
    if array.ndim <= 1 and array.size <= 16:
        numbers = {"i": INTEGERS, "u": (0, 5, 255), "f": FLOATS}.get(array.dtype.kind, ())
        for number in numbers:
            try:
                changed = np.full(array.shape, number, array.dtype)
            except OverflowError:
                continue
            yield f"= {number}", changed
            if array.size > 1:
                yield f"[-1] = {number}", np.append(array[:-1], changed[-1:])
    if array.ndim == 0:
        yield "of two", np.array([array, array])
        yield "of rank 2", array.reshape(1, 1)
        yield "empty", np.zeros(0, array.dtype)
    else:
        yield "longer", np.concatenate([array, array[:1]])
        yield "shorter", array[:-1]
        yield "empty", array[:0]
        yield "of a rank more", array[None]
        yield "flat", array.reshape(-1)
        yield "scalar", array.reshape(-1)[0].reshape(()) if array.size else array
        if array.ndim > 1:
            yield "of a rank less", array[0]
            yield "wider", np.concatenate([array, array[..., :1]], -1)
    for kind in KINDS:
        if array.dtype != kind:
            with np.errstate(all="ignore"):
                yield f"as {np.dtype(kind).name}", array.astype(kind)
