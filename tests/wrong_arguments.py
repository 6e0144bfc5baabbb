"""Every public callable with wrong values for each of its arguments, for devices on any adapter."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dmlgpu
from dmlgpu import DataType, DmlError, descs
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.tensors.methods import Methods
from tests.life_cycle import compile_operator, row, subtract


class Hostile:
    """An object whose every method raises."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise RuntimeError("unexpected")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __repr__ = __str__ = __len__ = _refuse
    __index__ = __int__ = __float__ = __iter__ = __getitem__ = __contains__ = __add__ = __call__ = __array__ = _refuse


class HostileSequence(Sequence[Any]):
    """A sequence by its class alone."""

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError("no entries")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class HostileMapping(Mapping[str, Any]):
    """A mapping by its class alone."""

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no values")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class HostileKey:
    """Can be hashed once, to become the key of a dictionary."""

    hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        if self.hashed > 1:
            raise RuntimeError("once is enough")
        return 1


HUGE = 10**5000
"""Python refuses to write integers of more than 4,300 digits."""

NO_NUMBERS = ("1", b"1", "\udc80", [], [1], {}, 1j, True, np.bool_(True), np.array([1, 2]), object(), Hostile())
NO_INTEGERS = (*NO_NUMBERS, 1.5, 1.0, float("nan"), float("inf"), np.float32(1), HUGE, -HUGE)
NO_TEXT = (1, 1.5, True, b"x", ["x"], "\udc80", "a\0b", HUGE, object(), Hostile())
NO_BOOLS = (0, 1, 1.0, "yes", [], HUGE, object(), Hostile())
NO_MEMBERS = (*NO_NUMBERS, 1.0, "FLOAT32", "NONE", -1, 99, DataType, FeatureLevel.LEVEL_6_4 + 1, HUGE)
NO_OBJECTS = (1, "x", b"x", "\udc80", [], object, object(), HUGE, Hostile())
NO_SEQUENCES = (1, "text", b"bytes", {}, {1}, object(), HUGE, Hostile(), HostileSequence(), iter(()))
NO_ENTRIES = ([1], ["x"], [Hostile()], [HUGE], [object()])
NO_MAPPINGS = (
    *NO_SEQUENCES[:3],
    *([], [("a", 1)], HostileMapping(), Hostile(), HUGE),
    *({1: 1}, {b"a": 1}, {"\udc80": 1}, {HostileKey(): 1}, {"a": "b"}, {"a": True}, {"a": 0}, {"a": HUGE}),
    *({"a": -1}, {"a": 1.5}, {"a": None}, {"a": Hostile()}),
)
NO_DATA = (
    None,
    1,
    "text",
    [1],
    object(),
    HUGE,
    Hostile(),
    np.array([None]),
    np.zeros(2, "V0"),
    memoryview(b"abcd")[::2],
)

NO_DEVICES = (1, 1.5, b"numpy", [], object(), HUGE, Hostile())
NO_ARRAYS = (
    None,
    "text",
    b"x",
    [1, "x"],
    [[1], [1, 2]],
    1j,
    object(),
    HUGE,
    Hostile(),
    np.array([None]),
)

WRONG: dict[str, tuple[Any, ...]] = {
    "int": (*NO_INTEGERS, -1),
    "float": (*NO_NUMBERS, HUGE),
    "bool": NO_BOOLS,
    "str": NO_TEXT,
    "Choice": (*NO_OBJECTS[4:], 1.5, True, -1, 99, "²", "9" * 5000, "no such adapter", "\udc80", Hostile()),
    "FeatureLevel": NO_MEMBERS,
    "ExecutionFlags": (*NO_NUMBERS, -1, 8, DataType.FLOAT32, HUGE),
    "Collection[str]": (*NO_SEQUENCES[:2], *NO_SEQUENCES[5:], [1], ["\ud800"], {1}, [Hostile()]),
    "vmap(out_axes)": NO_INTEGERS,
    "vmap(in_axes)": (1.5, "x", {1}, object(), [1.5], ["x"], Hostile()),
    "Hashable": ([], {}, {1}, Hostile()),
    "Device | str": NO_DEVICES,
    "TypeLike": (1, "x", b"x", [], object(), HUGE, Hostile(), complex, np.dtype("U1")),
    "Callable[..., Any]": (1, "x", b"x", [], object(), HUGE),
    "compile(function)": (1, "x", b"x", [], object(), HUGE),
    "compile(cache_size)": (*NO_INTEGERS, 0, -1),
    "Tensor(values)": NO_ARRAYS,
    "NDArray[Any]": (*NO_ARRAYS, []),
    "Tensor.broadcast_to(sizes)": (None, "x", 1.5, [2], (3, 3), (0, 3), (-1, 2, 3), (2**40, 2, 3), (HUGE,), Hostile()),
    "Tensor.expand_dims(axis)": (None, "x", 1.5, 9, -9, (0, 0), HUGE, Hostile(), range(7), [Hostile()]),
    "Tensor.squeeze(axis)": ("x", 1.5, 0, 9, HUGE, Hostile()),
    "Tensor.flip(axis)": ("x", 1.5, 9, -9, (0, 0), HUGE, Hostile()),
    "TensorDesc.of(array)": (None, 1, "x", [1.0], object(), HUGE, Hostile(), np.array([None]), np.array(["x"])),
    "Sequence[Array]": (*NO_SEQUENCES, *NO_ENTRIES, np.zeros((2, 1, 1, 1, 4), np.float32), [[1, [2]], Hostile()]),
    "OperatorDesc": (*NO_OBJECTS, dmlgpu.OperatorDesc()),
    "Buffer.write(data)": NO_DATA,
    "DataType": NO_MEMBERS,
    "Sequence[int]": (*NO_SEQUENCES, ["x"], [1.5], [Hostile()], [HUGE], [object()]),
    "ArrayLike": (object(), HUGE, Hostile(), ["x"], [], np.array([None])),
    "str | Policy": (1, "x", b"x", [], HUGE),
    "DataType.from_numpy(dtype)": (None, 1, "x", bool, complex, object, object(), HUGE, Hostile()),
}
"""Wrong values by annotation, apart from None, or by argument; objects and sequences of them follow rules."""


def wrong_values(argument: str, annotation: str) -> Iterator[Any]:
    """Yield what an argument, ``Buffer.write(data)``, must not be."""
    single = annotation.removesuffix(" | None").replace("Array | None", "Array")
    if argument in WRONG or annotation == "Any":
        yield from WRONG.get(argument, ())
        return
    if single == annotation and single not in ("Bindable", "Choice", "Hashable"):
        yield None
    if single in WRONG:
        yield from WRONG[single]
    elif single.startswith("Sequence"):
        yield from (*NO_SEQUENCES, *NO_ENTRIES)
    else:
        yield from NO_OBJECTS


@dataclass
class Call:
    """A callable with arguments that it takes."""

    label: str
    function: Callable[..., Any]
    good: dict[str, Any]

    def with_wrong_values(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each argument's name and all arguments, that one being wrong."""
        for parameter in inspect.signature(self.function).parameters.values():
            for value in wrong_values(f"{self.label}({parameter.name})", parameter.annotation):
                yield parameter.name, self.good | {parameter.name: value}


def one_node_graph() -> dmlgpu.GraphDesc:
    """Return a graph of one node."""
    edges = (dmlgpu.InputEdge(0, 0, 0), dmlgpu.InputEdge(0, 0, 1))
    return dmlgpu.GraphDesc(1, 1, (dmlgpu.OperatorNode(subtract()),), edges, (), (dmlgpu.OutputEdge(0, 0, 0),))


class World:
    """One object of each public class on a device, and good arguments for their methods."""

    def __init__(self, device: dmlgpu.Device):
        compiled = compile_operator(device, subtract())
        self.device, self.compiled = device, compiled
        self.source, self.target = device.create_buffer(64, "source"), device.create_buffer(64, "target")
        self.table = device.create_binding_table(compiled)
        self.table.bind_inputs([self.source, self.source])
        self.table.bind_outputs([self.target])
        graph = dmlgpu.Graph(device)
        tensor = dmlgpu.Tensor(np.ones((2, 3), np.float32), device=device)
        self.expression = graph.input((2, 3)) * 2.0
        self.objects = {
            type(argument).__name__: argument
            for argument in (
                device,
                compiled,
                self.source,
                self.source.read_async(),
                self.table,
                device.queue,
                device.create_operator(subtract()),
                device.create_operator_initializer([compiled]),
                device.create_command_list(),
                device.create_command_recorder(),
                device.create_fence(),
                graph,
                tensor,
                tensor.desc,
                dmlgpu.KernelProfile(),
            )
        }

    def instance(self, name: str) -> Any:
        """Return an object of a class by its public name; ``Expression`` is a tensor of a graph."""
        return self.expression if name == "Expression" else self.objects[name]

    def good(self, label: str) -> dict[str, Any]:
        """Return arguments that are taken; omitted ones have defaults."""
        objects, two = self.objects, [row(1, 2, 3, 4), row(1, 2, 3, 4)]
        copy = {"destination_offset": 0, "source": self.source, "source_offset": 16, "size": 32}
        recorded = {"command_list": objects["CommandList"], "dispatchable": self.compiled, "bindings": self.table}
        closed = self.device.create_command_list()
        closed.close()
        known: dict[str, dict[str, Any]] = {
            "compile": {"function": abs, "device": "numpy", "cache_size": 2},
            "cond": {"condition": True, "true_function": list, "false_function": list},
            "vmap": {"function": abs},
            "scan": {"function": lambda carry, x: (carry, x), "carry": 0, "xs": np.ones(2, np.float32)},
            "evaluate": {"desc": subtract(), "inputs": two, "device": self.device},
            "Device": {"adapter": "numpy"},
            "Device.from_backend": {"backend": self.device.backend},
            "Device.create_operator": {"desc": subtract()},
            "Device.compile_operator": {"operator": objects["Operator"]},
            "Device.compile_graph": {"graph": one_node_graph()},
            "Device.create_buffer": {"size": 16},
            "Device.evict": {"objects": [self.source, self.compiled]},
            "Device.make_resident": {"objects": (self.source, self.compiled)},
            "Device.check_feature_support": {"query": dmlgpu.FeatureLevelsQuery([FeatureLevel.LEVEL_1_0])},
            "Buffer.write": {"data": bytes(8)},
            "BindingTable.reset": {"dispatchable": self.compiled},
            "BindingTable.bind_inputs": {"bindings": [self.source, self.source]},
            "BindingTable.bind_outputs": {"bindings": [self.target]},
            "BindingTable.bind_temporary_resource": {"binding": None},
            "BindingTable.bind_persistent_resource": {"binding": None},
            "CommandList.copy_buffer": {"destination": self.target, **copy},
            "CommandRecorder.record_dispatch": recorded,
            "Queue.execute": {"command_lists": [closed]},
            "Queue.measure": {"command_lists": [closed]},
            "Queue.signal": {"fence": objects["Fence"], "value": 1},
            "Fence.wait": {"value": 0},
            "BufferBinding": {"buffer": self.source},
            "Graph": {"device": self.device},
            "Graph.compile": {"outputs": [self.expression]},
            "Graph.append": {"desc": subtract(), "inputs": [self.expression, self.expression]},
            "Graph.constant": {"array": np.ones(3, np.float32)},
            "Graph.desc": {"outputs": [self.expression]},
            "Graph.evaluate": {"outputs": [self.expression], "inputs": [np.ones((2, 3), np.float32)]},
            "Graph.input": {"desc": (2, 3)},
            "Graph.policy": {"policy": "interleaved_channel"},
            "Tensor": {"values": [1.0, 2.0], "device": self.device},
            "Tensor.astype": {"dtype": "int32"},
            "Tensor.broadcast_to": {"sizes": (4, 2, 3)},
            "Tensor.expand_dims": {"axis": 0},
            "Tensor.flip": {"axis": 1},
            "Tensor.from_numpy": {"array": np.ones(3, np.float32), "device": self.device},
            "Tensor.reinterpret": {"sizes": (6,)},
            "Tensor.squeeze": {"axis": None},
            "Tensor.to": {"device": "numpy"},
            "TensorDesc.of": {"array": np.ones(3)},
            "DataType.from_numpy": {"dtype": np.float32},
            "FeatureLevel.from_label": {"label": "6_4"},
            "descs.by_name": {"operator": "GATHER"},
        }
        return known.get(label.replace("Expression.", "Tensor."), {"name": "a name", "key": 1, "data": 2})

    def call(self, label: str, function: Callable[..., Any]) -> Call:
        """Return a callable with good arguments."""
        good, taken = self.good(label), inspect.signature(function).parameters
        return Call(label, function, {name: value for name, value in good.items() if name in taken})


ELSEWHERE = {
    "Buffer.check_usable": "takes words of messages",
    "Buffer.from_wgpu": "needs wgpu",
    "Device.from_wgpu": "needs wgpu",
    "Device.remove": "ends the device",
    "Device.wrap_buffer": "needs wgpu",
    "Expression.numpy": "a graph's tensor has no elements",
    "Expression.cpu": "a graph's tensor has no elements",
    "Expression.tolist": "a graph's tensor has no elements",
    "Expression.to": "a graph's tensor has no elements",
    "ElementwiseKernel": "tests/gpu/test_own_kernels.py",
    "Kernel": "tests/gpu/test_own_kernels.py",
    "Kernel.compile": "tests/gpu/test_own_kernels.py",
    "Kernel.workgroups": "tests/gpu/test_own_kernels.py",
    "device": "tests/unit/tensors/test_default_device.py",
    "set_default_device": "tests/unit/tensors/test_default_device.py",
    "grad": "tests/unit/tensors/gradients/test_grad.py",
    "value_and_grad": "tests/unit/tensors/gradients/test_grad.py",
    "set_float64": "tests/unit/tensors/test_array_likes.py",
    "Graph.add": "checks as descriptions do",
    "Graph.describe": "takes what expressions hold",
    "Graph.save": "writes files: a test of its own",
    "OperatorDesc.replace": "checks as the constructor",
    "load": "reads files: tests/unit/frontends/onnx/test_onnx_session.py",
    **dict.fromkeys(
        (f"Tensor.{name}" for name, member in vars(Methods).items() if inspect.isfunction(member)),
        "is the function of ops: tests/unit/ops/test_ops_functions.py",
    ),
    "Tensor.permute": "is Tensor.transpose: a test of its own",
    "Tensor.item": "needs a tensor of one element: a test of its own",
    "Tensor.reshape": "takes any number of arguments: a test of its own",
    "Tensor.to_device": "is Tensor.to: a test of its own",
    "Tensor.transpose": "takes any number of arguments: a test of its own",
    "TensorDesc.decode": "a test of its own",
    "TensorDesc.encode": "a test of its own",
    "default_device": "takes no arguments and loads a driver",
}
"""What the walk leaves out, with the reason."""

CONSTRUCTORS = ("BufferArrayBinding", "BufferBinding", "Device", "Graph", "Tensor")
"""Classes whose constructors check arguments of their own; descriptions have fields, all others are made by methods."""


def public_calls(device: dmlgpu.Device) -> Iterator[Call]:
    """Yield every public callable, each with objects of its own."""
    for name in dmlgpu.__all__:
        if name in dmlgpu._MODULES:  # of which torch needs PyTorch
            continue
        public = getattr(dmlgpu, name)
        if inspect.isfunction(public) or name in CONSTRUCTORS:
            yield from _call(device, name, public)
        if inspect.isclass(public) and not issubclass(public, Exception):
            for base in public.__mro__:
                for attribute, member in vars(base).items() if base.__module__.startswith("dmlgpu") else ():
                    yield from _method(device, name, public, attribute, member)
    yield from _call(device, "descs.by_name", descs.by_name)


def _method(device: dmlgpu.Device, name: str, cls: type, attribute: str, member: object) -> Iterator[Call]:
    label = f"{name}.{attribute}"
    if attribute.startswith("_") or not {label, label.replace("Expression.", "Tensor.")}.isdisjoint(ELSEWHERE):
        return
    if isinstance(member, classmethod):
        yield from _call(device, label, getattr(cls, attribute))
    elif inspect.isfunction(member):
        world = World(device)
        yield world.call(label, getattr(world.instance(name), attribute))
    elif isinstance(member, property) and member.fset is not None:
        world = World(device)
        yield world.call(label, types.MethodType(member.fset, world.instance(name)))


def _call(device: dmlgpu.Device, label: str, function: Callable[..., Any]) -> Iterator[Call]:
    if label not in ELSEWHERE:
        yield World(device).call(label, function)


FIELDS: dict[str, tuple[Any, ...]] = {
    "int": NO_INTEGERS,
    "float": (*NO_NUMBERS, HUGE, -HUGE),
    "int | float": (*NO_NUMBERS, HUGE),
    "bool": NO_BOOLS,
    "str": (1, b"x", ["x"], HUGE, object(), Hostile()),
    "tuple[str, ...]": (*NO_SEQUENCES, ["x"], (1,), (Hostile(),)),
    "bytes": (1, "x", [1], HUGE, object(), Hostile()),
    **dict.fromkeys(
        (f"tuple[{kind}, ...]" for kind in ("Node", "InputEdge", "IntermediateEdge", "OutputEdge")),
        (*NO_SEQUENCES, [None], [1], [Hostile()]),
    ),
    "dict[str, int]": (*NO_SEQUENCES[:3], {1: 2}, {"a": "b"}, {"a": Hostile()}, [], Hostile()),
    "Mapping[str, int]": NO_MAPPINGS,
    "Mapping[str, tuple[int, ...]]": (*NO_MAPPINGS, {"a": [1, "x"]}, {"a": [0]}, {"a": [HUGE]}, {"a": "12"}),
    "DataType": (*NO_MEMBERS, FeatureLevel.LEVEL_1_0),
    "TensorFlags": (*NO_NUMBERS, -1, 2, HUGE, DataType.FLOAT32),
    "tuple[int, ...]": (*NO_SEQUENCES, ["1"], [1.5], [True], [None], [HUGE], [Hostile()], np.array(3), np.zeros(2)),
    "tuple[float, ...]": (*NO_SEQUENCES, ["1"], [True], [None], [HUGE], [Hostile()]),
    "tuple[TensorDesc, ...]": (*NO_SEQUENCES, [None], [1], [Hostile()]),
    "tuple[OperatorDesc, ...]": (*NO_SEQUENCES, [None], [1], [Hostile()]),
}
"""Values of the wrong kind for the fields of descriptions, by annotation, apart from None."""


def wrong_fields(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a description with values of the wrong kind."""
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    for field in dataclasses.fields(cls):
        annotation = str(field.type)
        single = annotation.removesuffix(" | None")
        if single == annotation and defaults[field.name] is not None:
            yield field.name, None
        is_member = single not in FIELDS and hasattr(dmlgpu.catalog.enums, single)
        for value in NO_MEMBERS if is_member else FIELDS.get(single, NO_OBJECTS):
            yield field.name, value


NAMED_OTHERWISE = {
    "BindingTable.bind_inputs(bindings)": "a_tensor (input 0)",
    "BindingTable.bind_outputs(bindings)": "output_tensor (output 0)",
    "BindingTable.bind_persistent_resource(binding)": "the persistent resource",
    "BindingTable.bind_temporary_resource(binding)": "the temporary resource",
    "Buffer.write(data)": "write takes bytes",
    "CommandList.copy_buffer(destination_offset)": "destination: offset",
    "CommandList.copy_buffer(source_offset)": "source: offset",
    "DataType.from_numpy(dtype)": "NumPy type",
    "Device.create_operator(desc)": "DirectML has no operator ''",
    "evaluate(desc)": "DirectML has no operator ''",
    "Graph.append(desc)": "DirectML has no operator ''",
    "evaluate(inputs)": "a_tensor (input 0)",
}
"""Words that stand for an argument in messages about some of its values."""

RULES = ("must", "takes", "matches", "has no ")


def check_refusal(label: str, argument: str, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Assert that a call raises one of our exceptions, whose message names the argument."""
    where = f"{label}({argument}={_kind(arguments[argument])})"
    other = NAMED_OTHERWISE.get(f"{label}({argument})", argument)
    try:
        function(**arguments)
    except DmlError as refused:
        text = str(refused)
        text.encode()
        assert len(text) < 1000, where
        assert argument in text or other in text, f"{where}: {text}"
        assert any(rule in text for rule in RULES), f"{where}: {text}"
    except Exception as error:
        raise AssertionError(f"{where} raises {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{where} is taken")


def _kind(value: object) -> str:
    try:
        return f"{type(value).__name__} {value!r:.40}"
    except Exception:
        return type(value).__name__
