"""Complete DxDispatch models: dispatchables, bindings and commands, with full error messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.catalog.enums import (
    TensorFlags,
)
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import Dispatch, Print, WriteFile
from tests.unit.frontends.dxdispatch.dxdispatch_models import MODELS, broken, complaint, subtraction, tensor, values


def test_what_the_small_model_says() -> None:
    model = dxdispatch.load(subtraction())
    dispatch, printed, written = model.commands
    assert isinstance(dispatch, Dispatch) and isinstance(printed, Print) and isinstance(written, WriteFile)
    first, second = dispatch.inputs
    assert first is not None and second is not None
    assert (first.buffer, first.offset, first.size, second.buffer) == ("A", 0, 12, "B")
    assert (printed.resource, printed.verbose) == ("my out", False)
    assert (written.target, written.dimensions) == (Path("out.npy"), None)


def test_offsets_counts_and_arrays() -> None:
    model = {
        "resources": {
            "A": values(*range(16)),
            "B": values(1),
            "mixed": {"initialValues": [{"type": "FLOAT32", "value": 1}] * 8},
            "Out": values(*[0] * 6),
        },
        "dispatchables": {
            "join": {
                "type": "JOIN",
                "desc": {
                    "InputTensors": [tensor(3), tensor(1), tensor(2)],
                    "OutputTensor": tensor(6),
                    "Axis": 0,
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "join",
                "threadGroupCount": [2, 1, 1],
                "bindings": {
                    "InputTensors": [
                        {"name": "A", "elementCount": 5, "elementOffset": 4, "format": "R32_FLOAT", "shape": [3]},
                        "B",
                        {"name": "mixed", "elementSizeInBytes": 8, "elementOffset": 2},
                    ],
                    "OutputTensor": ["Out"],
                },
            }
        ],
    }
    (dispatch,) = dxdispatch.load(model).commands
    assert isinstance(dispatch, Dispatch)
    ranges = [(bound.buffer, bound.offset, bound.size) for bound in dispatch.inputs + dispatch.outputs if bound]
    assert ranges == [("A", 16, 20), ("B", 0, 4), ("mixed", 16, 8), ("Out", 0, 24)]


def test_owned_tensors_are_bound_by_the_dispatchable() -> None:
    model = subtraction()
    dispatchable = model["dispatchables"]["subtract"]
    dispatchable["desc"]["BTensor"]["Flags"] = "DML_TENSOR_FLAG_OWNED_BY_DML"
    dispatchable["bindings"] = {"BTensor": "B"}
    del model["commands"][0]["bindings"]["BTensor"]
    loaded = dxdispatch.load(model)
    nothing, owned = loaded.dispatchables["subtract"].initial_inputs
    assert nothing is None and owned is not None
    assert (owned.buffer, owned.tensor.flags) == ("B", TensorFlags.OWNED_BY_DML)
    dispatch = loaded.commands[0]
    assert isinstance(dispatch, Dispatch)
    assert dispatch.inputs[1] is None

    model["commands"][0]["bindings"]["BTensor"] = "B"
    assert complaint(model) == (
        "$.commands[0].bindings.BTensor: "
        "BTensor has the flag OWNED_BY_DML: the dispatchable binds it, not the dispatch command"
    )
    del dispatchable["bindings"]
    assert complaint(model) == (
        "$.dispatchables.subtract.bindings.BTensor: "
        "BTensor needs a resource at initialization, as it has the flag OWNED_BY_DML, but none is bound"
    )
    dispatchable["bindings"] = {"BTensor": "B", "ATensor": "A"}
    assert complaint(model) == (
        "$.dispatchables.subtract.bindings.ATensor: "
        "ATensor lacks the flag OWNED_BY_DML: the dispatch command binds it, not the dispatchable"
    )


def bind(**bindings: Any) -> Callable[[dict[str, Any]], object]:
    return lambda model: model["commands"][0]["bindings"].update(bindings)


BOUND = "$.commands[0].bindings"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda model: model.pop("resources"), "$.resources: a model needs the key 'resources'"),
        (lambda model: model.update(command=[]), "$.command: a model has no key 'command'; did you mean 'commands'?"),
        (lambda model: model.update(commands={}), "$.commands: must be an array, got an object"),
        (lambda model: model.update(resources=[]), "$.resources: must be an object, got an array of 0"),
        (
            lambda model: model["dispatchables"].update(shade={"type": "HLSL", "sourcePath": "a.hlsl"}),
            "$.dispatchables.shade.type: HLSL is not supported: port the shader to WGSL (StructuredBuffer becomes "
            "var<storage, read>, RWStructuredBuffer var<storage, read_write>, cbuffer var<uniform>, numthreads "
            "@workgroup_size, -D an override), and give it as type 'wgsl' with 'sourcePath', 'entryPoint' and "
            "'constants'; the commands stay as they are",
        ),
        (
            lambda model: model["dispatchables"].update(net={"type": "onnx", "sourcePath": "a.onnx"}),
            "$.dispatchables.net.sourcePath: there is no file 'a.onnx'",
        ),
        (
            lambda model: model["dispatchables"].update(g={"type": "dmlSerializedGraph", "sourcePath": "a.bin"}),
            "$.dispatchables.g.sourcePath: there is no file 'a.bin'",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(type="DML_OPERATOR_ELEMENTWISE_SUBTRACT"),
            "$.dispatchables.subtract.type: "
            "DirectML has no operator 'ELEMENTWISE_SUBTRACT'; did you mean 'ELEMENT_WISE_SUBTRACT'?",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].pop("type"),
            "$.dispatchables.subtract.type: a dispatchable needs the key 'type'",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(executionFlag="NONE"),
            "$.dispatchables.subtract.executionFlag: "
            "an operator given by type and desc has no key 'executionFlag'; did you mean 'executionFlags'?",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(dmlCompileType="Graph"),
            "$.dispatchables.subtract.dmlCompileType: must be 'DmlCompileOp' or 'DmlCompileGraph', got 'Graph'",
        ),
        (
            lambda model: model["commands"][0].update(type="wait"),
            "$.commands[0].type: commands of type 'wait' are not supported, only 'dispatch', 'print' and 'writeFile'",
        ),
        (
            lambda model: model["commands"][0].update(dispatchable="substract"),
            "$.commands[0].dispatchable: the model has no dispatchable 'substract'; did you mean 'subtract'?",
        ),
        (
            lambda model: model["commands"][0].pop("bindings"),
            "$.commands[0].bindings: a dispatch command needs the key 'bindings'",
        ),
        (
            lambda model: model["commands"][0].update(threadGroupCount=[1, 1]),
            "$.commands[0].threadGroupCount: must be three integers, got an array of 2",
        ),
        (
            lambda model: model["commands"][1].update(resource="out"),
            "$.commands[1].resource: the model has no resource 'out'; did you mean 'my out'?",
        ),
        (
            lambda model: model["commands"][1].update(verbose=1),
            "$.commands[1].verbose: must be true or false, got 1",
        ),
        (
            lambda model: model["commands"][2].update(dimensions=[2**32 - 1] * 1000),
            "$.commands[2].dimensions: must multiply to the 3 elements of 'my out', got 4294967295 or more",
        ),
        (
            lambda model: model["commands"][2].update(targetPath="a/../../b.npy"),
            "$.commands[2].targetPath: must lie below the output directory, got 'a/../../b.npy'",
        ),
        (
            lambda model: model["commands"][2].update(targetPath="b.PNG", dimensions=[1, 1, 3]),
            "$.commands[2].targetPath: an image must have dimensions [1, channels, height, width] with 1, 3 or 4 "
            "channels, got [1, 1, 3]",
        ),
        (
            lambda model: model["commands"][2].update(targetPath=""),
            "$.commands[2].targetPath: must name a file, got an empty path",
        ),
        (
            lambda model: model["commands"][2].update(dimensions=[2, 2]),
            "$.commands[2].dimensions: must multiply to the 3 elements of 'my out', got 4",
        ),
        (bind(ATensor="C"), f"{BOUND}.ATensor: the model has no resource 'C'"),
        (bind(ATensor=None), f"{BOUND}.ATensor: ATensor needs a resource, but none is bound"),
        (bind(ATensor=["A", "B"]), f"{BOUND}.ATensor: ATensor has 1 tensor, got 2 resources"),
        (
            bind(InputTensor="A"),
            f"{BOUND}.InputTensor: ELEMENT_WISE_SUBTRACT has no such tensor to bind here: 'InputTensor'; "
            "did you mean 'OutputTensor'?",
        ),
        (
            bind(ATensor={"name": "A", "elementOffset": 1}),
            f"{BOUND}.ATensor: ATensor needs 12 bytes from byte 4 on, but resource 'A' has 12 bytes",
        ),
        (
            bind(ATensor={"name": "A", "elementCount": 2}),
            f"{BOUND}.ATensor: gives ATensor 8 bytes, but it takes 12",
        ),
        (
            bind(ATensor={"name": "A", "elementOfset": 0}),
            f"{BOUND}.ATensor.elementOfset: a binding has no key 'elementOfset'; did you mean 'elementOffset'?",
        ),
        (
            bind(ATensor={"elementOffset": 0}),
            f"{BOUND}.ATensor.name: a binding needs the key 'name'",
        ),
    ],
)
def test_bad_models(change: Callable[[dict[str, Any]], object], text: str) -> None:
    assert broken(change) == text


def test_paths_quote_keys_that_are_no_identifiers() -> None:
    assert broken(lambda model: model["resources"].update({"my out": 1})) == (
        '$.resources["my out"]: must be an object, got 1'
    )


def test_an_element_size_is_needed_for_offsets_into_mixed_types() -> None:
    model = subtraction()
    model["resources"]["A"] = {"initialValues": [{"type": "FLOAT32", "value": 1}] * 8}
    model["commands"][0]["bindings"]["ATensor"] = {"name": "A", "elementOffset": 4}
    assert complaint(model) == (
        "$.commands[0].bindings.ATensor: "
        "elementSizeInBytes must be given, as resource 'A' holds mixed types and has no element size"
    )


def test_every_key_of_the_published_schema_is_accepted() -> None:
    """The keys and spellings of DxDispatch's models/_schema.json that concern DirectML operators, all at once."""
    model = {
        "$schema": "./_schema.json",
        "resources": {
            "A": {
                "type": "buffer",
                "initialValues": {"valueCount": 3, "valueStart": "-inf", "valueDelta": 1},
                "initialValuesDataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                "initialValuesOffsetInBytes": 0,
                "sizeInBytes": 64,
            },
            "B": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 3, "value": "nan"}},
            "C": {
                "initialValuesDataType": "DML_TENSOR_DATA_TYPE_UNKNOWN",
                "initialValues": [{"name": "n", "type": "DML_TENSOR_DATA_TYPE_UINT64", "value": 1}] * 2,
            },
        },
        "dispatchables": {
            "copy": {
                "type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
                "desc": {"InputTensor": tensor(3), "OutputTensor": tensor(3)},
                "executionFlags": ["NONE", "DML_EXECUTION_FLAG_DISABLE_META_COMMANDS"],
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "copy",
                "bindings": {
                    "InputTensor": {
                        "name": "A",
                        "format": "DXGI_FORMAT_R32_FLOAT",
                        "elementCount": 3,
                        "elementSizeInBytes": 4,
                        "elementOffset": 4,
                        "counter": "C",
                        "shape": [3],
                    },
                    "OutputTensor": [{"name": "B"}],
                },
                "threadGroupCount": [1, 1, 1],
            },
            {"type": "print", "resource": "B", "verbose": True},
        ],
    }
    loaded = dxdispatch.load(model)
    dispatch = loaded.commands[0]
    assert isinstance(dispatch, Dispatch)
    assert dispatch.inputs[0] is not None and dispatch.inputs[0].offset == 16
    assert [resource.size for resource in loaded.resources.values()] == [64, 12, 16]


def test_optional_tensors() -> None:
    state, out = tensor(6, data_type="UINT32"), tensor(4, data_type="UINT32")
    model: dict[str, Any] = {
        "resources": {name: values(*[0] * 6, data_type="UINT32") for name in ("state", "out", "next")},
        "dispatchables": {
            "random": {
                "type": "RANDOM_GENERATOR",
                "desc": {
                    "InputStateTensor": state,
                    "OutputTensor": out,
                    "OutputStateTensor": None,
                    "Type": "PHILOX_4X32_10",
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "random",
                "bindings": {"InputStateTensor": "state", "OutputTensor": "out"},
            }
        ],
    }
    (dispatch,) = dxdispatch.load(model).commands
    assert isinstance(dispatch, Dispatch)
    assert [bound and bound.buffer for bound in dispatch.outputs] == ["out", None]
    model["commands"][0]["bindings"]["OutputStateTensor"] = "next"
    assert complaint(model) == (
        "$.commands[0].bindings.OutputStateTensor: "
        "the description leaves out the optional tensor OutputStateTensor, so nothing can be bound to it"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.json")))
def test_shipped_models_load(name: str) -> None:
    model = dxdispatch.load(MODELS / name)
    assert model.commands
    assert model.source == MODELS / name
