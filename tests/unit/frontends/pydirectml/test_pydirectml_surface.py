"""The module has the names, parameters, defaults and numbers of Microsoft's, listed in data/pydirectml."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu.frontends import pydirectml as dml
from dmlgpu.frontends.pydirectml.calls import REQUIRED

SURFACE = json.loads((Path(__file__).parents[3] / "data/pydirectml/surface.json").read_text(encoding="utf-8"))
ENUMERATIONS, CLASSES, FUNCTIONS = SURFACE["enumerations"], SURFACE["classes"], SURFACE["functions"]
EXPORTED = {
    member: (enumeration, number)
    for enumeration, entry in ENUMERATIONS.items()
    if entry["exported"]
    for member, number in entry["members"].items()
}
"""Members that are names of the module, the later of two with one name."""


def parameters(function: Any) -> str:
    """Return a function's parameters as the list writes them."""
    result: list[str] = []
    positional = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        assert parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            result.append("/")
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        default = parameter.default
        if default in (parameter.empty, REQUIRED):
            result.append(parameter.name)
        elif isinstance(default, dml.FusedActivation):
            assert repr(default) == "dml.FusedActivation(OperatorType.INVALID, 0, 0)"
            result.append(f"{parameter.name}=no activation")
        else:
            written = default if type(default).__name__ in ENUMERATIONS else repr(default)
            result.append(f"{parameter.name}={written}")
    return ", ".join([*result, "/"] if positional else result)


def public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def test_the_module_has_these_names_and_no_others() -> None:
    names = {*ENUMERATIONS, *CLASSES, *FUNCTIONS, *EXPORTED}
    assert (len(ENUMERATIONS), len(CLASSES), len(FUNCTIONS)) == (11, 13, 26)
    assert set(dir(dml)) == names
    assert sorted(dml.__all__) == sorted(set(dml.__all__))
    starred: dict[str, Any] = {}
    exec("from dmlgpu.frontends.pydirectml import *", starred)
    assert set(starred) - {"__builtins__"} == names
    with pytest.raises(AttributeError, match=r"module .*pydirectml' has no attribute 'activation_gelu'"):
        dml.activation_gelu  # noqa: B018


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations(name: str) -> None:
    enumeration, members = getattr(dml, name), ENUMERATIONS[name]["members"]
    assert {member: int(value) for member, value in enumeration.__members__.items()} == members
    for member, number in members.items():
        value = getattr(enumeration, member)
        assert (value.name, value.value, enumeration(number)) == (member, number, value)
        assert str(value) == f"{name}.{member}"
        assert repr(value) == f"<{name}.{member}: {number}>"
        assert (value == number) is (name != "OutputOptions")
        assert (value != number) is (name == "OutputOptions")
        assert {value: member}[enumeration(number)] == member


def test_members_that_are_names_of_the_module() -> None:
    assert len(EXPORTED) > 110
    for member, (enumeration, number) in EXPORTED.items():
        assert getattr(dml, member) is getattr(dml, enumeration)(number)
    assert dml.NONE is dml.ExecutionFlags.NONE
    assert dml.FORWARD is dml.ConvolutionDirection.FORWARD
    assert dml.CONVOLUTION is dml.OperatorType.CONVOLUTION
    assert dml.BIDIRECTIONAL is dml.RecurrentNetworkDirection.BIDIRECTIONAL
    assert not hasattr(dml, "Both")


def test_flags_that_combine() -> None:
    flags = dml.ExecutionFlags
    both = flags.DISABLE_META_COMMANDS | flags.DESCRIPTORS_VOLATILE
    assert (both, flags(6), both & 4, int(flags.ALLOW_HALF_PRECISION_COMPUTATION)) == (6, both, 4, 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    assert parameters(getattr(dml, name)) == FUNCTIONS[name]
    assert getattr(dml, name).__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    cls, listed = getattr(dml, name), CLASSES[name]
    methods = listed.get("methods", {})
    attributes = [*listed.get("read_only", ()), *listed.get("read_write", ()), *listed.get("static_read_only", ())]
    assert public(cls) == {*methods, *attributes}
    for method, taken in methods.items():
        assert parameters(getattr(cls, method)) == taken
    for attribute in listed.get("read_only", ()):
        assert vars(cls)[attribute].fset is None
    for attribute in listed.get("read_write", ()):
        assert vars(cls)[attribute].fset is not None
    assert set(listed.get("operators", ())) <= set(vars(cls))


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "TensorDesc"])
def test_constructors(name: str) -> None:
    cls, forms = getattr(dml, name), CLASSES[name]["constructors"]
    if not forms:
        with pytest.raises(TypeError, match=f"^{name}: no constructor defined; "):
            cls()
    elif name == "TensorData":
        assert parameters(cls.__new__).replace("cls, ", "") == forms[0]
    else:
        assert [parameters(cls.__init__)] == forms


F32, U32, OWNED = dml.TensorDataType.FLOAT32, dml.TensorDataType.UINT32, dml.TensorFlags.OWNED_BY_DML
NHWC = dml.TensorPolicy.interleaved_channel
DESCRIPTIONS = {
    "data_type, sizes, tensor_policy=TensorPolicy.default": [
        ((F32, [2, 3]), (F32, 0, [2, 3], None, 24, 0)),
        ((U32, [1, 2, 3, 4], NHWC), (U32, 0, [1, 2, 3, 4], [24, 1, 8, 2], 96, 0)),
        ((F32, [3], NHWC), (F32, 0, [3], [1], 12, 0)),
        ((dml.TensorDataType.INT8, [5], dml.TensorPolicy.default), (dml.TensorDataType.INT8, 0, [5], None, 8, 0)),
    ],
    "data_type, flags, sizes, tensor_policy=TensorPolicy.default": [
        ((F32, OWNED, (2, 3)), (F32, 1, [2, 3], None, 24, 0)),
        ((F32, OWNED, [1, 2, 3], NHWC), (F32, 1, [1, 2, 3], [6, 1, 2], 24, 0)),
    ],
    "data_type, sizes, strides": [
        ((F32, [1, 8, 28, 28], [8, 1, 0, 0]), (F32, 0, [1, 8, 28, 28], [8, 1, 0, 0], 32, 0)),
        ((F32, np.array([2, 2]), None), (F32, 0, [2, 2], None, 16, 0)),
    ],
    "data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment": [
        ((F32, OWNED, [2, 2], [4, 1], 64, 16), (F32, 1, [2, 2], [4, 1], 64, 16)),
        ((F32, dml.TensorFlags.NONE, [2], None, 8, 0), (F32, 0, [2], None, 8, 0)),
    ],
}
"""By form of the constructor: arguments, and the attributes afterwards, written by hand."""


@pytest.mark.parametrize("form", CLASSES["TensorDesc"]["constructors"])
def test_descriptions_of_tensors(form: str) -> None:
    names = [name.partition("=")[0] for name in form.split(", ")]
    for arguments, expected in DESCRIPTIONS[form]:
        for desc in (dml.TensorDesc(*arguments), dml.TensorDesc(**dict(zip(names, arguments, strict=False)))):
            result = tuple(getattr(desc, name) for name in CLASSES["TensorDesc"]["read_only"])
            assert result == expected
            assert (type(result[0]), type(result[1]), type(result[2])) == (dml.TensorDataType, dml.TensorFlags, list)
    with pytest.raises(AttributeError):
        desc.sizes = [1]


def test_texts() -> None:
    desc = dml.TensorDesc(U32, OWNED, [1, 3, 28, 28])
    assert repr(desc) == "dml.TensorDesc of type 3 and shape [1,3,28,28] with flags 1"
    assert repr(dml.Expression()) == "dml.Expression, empty"


def test_small_structures() -> None:
    size = dml.Size2D(2, 3)
    size.width += 5
    size.height = np.uint32(9)
    assert (size.width, size.height, type(size.height)) == (7, 9, int)
    expression, other = dml.Expression(), dml.Expression()
    for cls, names in ((dml.MaxPoolingOutputs, ("values", "indices")), (dml.GRUOutputs, ("sequence", "single"))):
        outputs = cls(expression, other)
        for name in names:
            assert isinstance(getattr(outputs, name), dml.Expression)
            setattr(outputs, name, other)
            with pytest.raises(
                TypeError, match=rf"^{cls.__name__}\.{name}: {name} must be an Expression, got 3 of type int$"
            ):
                setattr(outputs, name, 3)
