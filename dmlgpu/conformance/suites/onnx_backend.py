"""The suite of ONNX's backend tests: models with inputs and outputs that the package ``onnx`` brings.

A case's name is the kind of model and its name: ``node-test_abs``. Quick takes every sixteenth model of a single node,
standard all of them, full larger models too.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, TypeProto, numpy_helper
from onnx.backend.test.case.model import collect_testcases as collect_models
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.frontends.onnx.backend import DmlBackend
from dmlgpu.frontends.onnx.model import all_nodes
from dmlgpu.frontends.onnx.tensor_proto import DATA_TYPES, type_name
from dmlgpu.runtime.device import Device

Array = NDArray[Any]

KINDS = ("node", "simple", "light", "pytorch-operator", "pytorch-converted", "real")
"""The kinds of models; data of ``real`` ones are on few machines."""

_SAMPLE = 16
_PROFILES = {"quick": ("node",), "standard": ("node",), "full": ("node", "simple", "light")}
_CAST_ATTRIBUTES = ("to", "dtype", "output_dtype", "data_type", "stash_type")
_BITS = {"int4", "uint4", "int2", "uint2"}
BFLOAT16_TOLERANCE = 2.0**-6
"""Four roundings of bfloat16 (2^-8 each). A result is rounded once. ONNX's expected values of attention are rounded
after each step, and err by up to 2.5 roundings from float64; its tolerance of 0.001 is a quarter of a rounding."""


class OnnxBackendSuite(Suite):
    """ONNX's own tests; see the module."""

    profiles = tuple(_PROFILES)

    def names(self, profile: str) -> tuple[str, ...]:
        names = tuple(f"{kind}-{name}" for kind in _PROFILES[profile] for name in sorted(models(kind)))
        return names[::_SAMPLE] if profile == "quick" else names

    def has(self, name: str) -> bool:
        return find(name) is not None

    def run(self, name: str, device: Device) -> Outcome:
        """Run a model on its data and compare.

        Raises:
            InvalidArgument: No model of the name.
            NotSupported: If the model cannot be run.
        """
        case = find(name)
        if case is None:
            raise InvalidArgument(f"{name!r} names no model such as node-test_abs")
        data = list(data_of(case))
        if not data:
            raise NotSupported(f"{name}: its data are not on this machine")
        prepared = DmlBackend.prepare(model_of(case), dml_device=device)
        elements = 0
        for inputs, expected in data:
            for output, target in zip(prepared.run(inputs), expected, strict=True):
                why = difference(output, target, case.rtol, case.atol)
                if why:
                    return Outcome(name, Status.FAIL, message=why)
                elements += sum(map(np.size, output)) if isinstance(output, list) else np.size(output)
        return Outcome(name, Status.PASS, elements=elements)


@cache  # bounded by the kinds
def models(kind: str) -> dict[str, Any]:
    """Return the package's models of a kind by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own arithmetic overflows
        if kind == "node":
            return {model.name: model for model in collect_testcases("")}
        by_name = {model.name: model for model in load_model_tests(kind=kind)}
        return by_name | {model.name: model for model in collect_models()} if kind == "simple" else by_name


def find(name: str) -> Any:
    """Return the model that a case is named after, None if there is none."""
    kind = next((kind for kind in KINDS if name.startswith(f"{kind}-")), None)
    return None if kind is None else models(kind).get(name.removeprefix(f"{kind}-"))


def model_of(case: Any) -> onnx.ModelProto:
    """Return a case's model."""
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def data_of(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Return inputs and outputs of every set of a case's data; none if they are not on this machine."""
    if case.data_sets is not None:
        yield from ((_arrays(inputs), _arrays(outputs)) for inputs, outputs in case.data_sets)
        return
    folder = Path(case.model_dir) if case.model_dir else None
    if folder is None or not (folder / "model.onnx").exists():
        return
    for part in sorted(folder.glob("test_data_set_*")):
        yield _from_files(part, "input"), _from_files(part, "output")


def _from_files(folder: Path, which: str) -> list[Any]:
    arrays = []
    for file in sorted(folder.glob(f"{which}_*.pb"), key=lambda path: int(path.stem.split("_")[1])):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(file.read_bytes())
        arrays.append(numpy_helper.to_array(tensor))
    return arrays


def _value(proto: Any) -> Any:
    """Return a value of a case's data: an array, a list of arrays, or None."""
    if isinstance(proto, onnx.TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    return numpy_helper.to_optional(proto) if isinstance(proto, onnx.OptionalProto) else proto


def _arrays(values: Iterable[Any]) -> list[Any]:
    return [_value(value) for value in values]


def difference(output: Any, expected: Any, rtol: float, atol: float) -> str:
    """Return the difference of an output; empty if it is correct."""
    if isinstance(expected, list):
        if not isinstance(output, list) or len(output) != len(expected):
            return f"{type(output).__name__}, expected a list of length {len(expected)}"
        differences = (difference(*pair, rtol, atol) for pair in zip(output, expected, strict=True))
        return next((f"element {index}: {why}" for index, why in enumerate(differences) if why), "")
    if expected is None or output is None:
        return "" if expected is output else f"{type(output).__name__}, expected {type(expected).__name__}"
    expected = np.asarray(expected)
    if expected.dtype.name in _BITS:
        expected = expected.astype(np.uint8 if expected.dtype.name.startswith("u") else np.int8)
    if (output.dtype, output.shape) != (expected.dtype, expected.shape):
        return f"{output.dtype} of shape {output.shape}, expected {expected.dtype} of shape {expected.shape}"
    try:
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(output, expected)
        else:
            rtol = max(rtol, BFLOAT16_TOLERANCE) if expected.dtype.name == "bfloat16" else rtol
            np.testing.assert_allclose(output, expected, rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:400]
    return ""


_WITHIN = DATA_TYPES.keys() - {TensorProto.DOUBLE}
"""Types that DirectML computes with: float64 values are only moved and cast."""


def outside(model: onnx.ModelProto) -> str:
    """Return the reason why a model is out of scope for DirectML, a kind of values, a type, or a domain; empty if it is
    not."""
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    reason = next((why for info in infos if (why := _outside_type(info.type))), "")
    if reason:
        return reason
    nodes = list(all_nodes(model.graph))
    for element in _elements(model, nodes):
        if element and element not in _WITHIN:
            return type_name(element)
    domain = next((node.domain for node in nodes if node.domain not in ("", "ai.onnx")), "")
    return f"domain {domain}" if domain else ""


def _outside_type(value_type: TypeProto) -> str:
    while (kind := value_type.WhichOneof("value")) in ("sequence_type", "optional_type"):
        value_type = getattr(value_type, kind).elem_type
    if kind not in (None, "tensor_type"):
        return str(kind).removesuffix("_type")
    element = value_type.tensor_type.elem_type
    return "" if element in _WITHIN or not element else type_name(element)


def _elements(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Iterator[int]:
    """Return the types of constants, and those that casts name."""
    yield from (tensor.data_type for tensor in model.graph.initializer)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t.data_type
            elif attribute.name in _CAST_ATTRIBUTES and attribute.type == AttributeProto.INT:
                yield attribute.i
            elif attribute.type in (AttributeProto.STRINGS,) and re.match("value_strings?$", attribute.name):
                yield onnx.TensorProto.STRING
