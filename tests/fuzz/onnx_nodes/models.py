"""Models of nodes that were drawn: alone, chained, or with something wrong on purpose."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.onnx_nodes.draw import GENERATORS, MICROSOFT, NEWEST, OLDEST, Array, Draw, NodeCase, schema_of
from tests.fuzz.values import FLOATS, INTEGERS

_IR_VERSION = 10
_FUNCTIONS = "local"
_IN_FUNCTIONS = 0.05
"""How often a node is the body of a local function."""

Outputs = list[Array | None]


@dataclass(frozen=True)
class Step:
    """A node of a graph with what it computes, as an oracle has it; None where it names no output."""

    case: NodeCase
    outputs: Outputs


@dataclass(frozen=True)
class Drawn:
    """A model, what a run is given, and what it is about.

    Attributes:
        model: the model.
        feeds: its inputs.
        cases: its nodes.
        outputs: by name, the node and the position of the output.
        malformed: the deliberate fault; empty if there is none.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    cases: tuple[NodeCase, ...]
    outputs: dict[str, tuple[int, int]]
    malformed: str = ""

    def describe(self) -> str:
        """The model as text, with the elements of its inputs."""
        lines = [f"malformed: {self.malformed}"] if self.malformed else []
        lines += [f"opset {self.cases[0].version}", onnx.printer.to_text(self.model.graph)]
        lines += [f"{name} = {text_of(array)}" for name, array in self.feeds.items()]
        return "\n".join(lines)[:2900]


def text_of(array: Array) -> str:
    """An array in one line that NumPy reads again, if it is small."""
    text = np.array2string(array.reshape(-1), separator=",", threshold=80, max_line_width=10**6, floatmode="unique")
    return f"{array.dtype} {list(array.shape)} {text}"


# ---- versions -------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def versions_of(name: str, domain: str) -> tuple[int, ...]:
    """The versions of ONNX's operator set that have an operator."""
    if domain:
        return tuple(range(OLDEST, NEWEST + 1))
    schemas = ((version, schema_of(name, domain, version)) for version in range(OLDEST, NEWEST + 1))
    # What is deprecated is refused by onnxruntime, and by ONNX's checker; dmlgpu may compute it.
    return tuple(version for version, schema in schemas if schema is not None and not schema.deprecated) or (17,)


def draw_version(rng: random.Random, versions: Sequence[int]) -> int:
    """One of several versions, often one of those that exporters write today."""
    usual = [version for version in versions if 13 <= version <= 23]
    return rng.choice(usual if usual and rng.random() < 0.6 else versions)


# ---- building -------------------------------------------------------------------------------------------------------


def build(
    cases: Sequence[NodeCase],
    rng: random.Random,
    is_result: Callable[[int, int], bool] = lambda node, position: True,
    computed: Sequence[Outputs] = (),
    malformed: str = "",
) -> Drawn:
    """A model of nodes.

    Args:
        cases: the nodes; an array that is one of ``computed`` is an edge.
        rng: decides what is a constant and what an input of the run.
        is_result: whether an output of a node is an output of the model.
        computed: the outputs of the nodes, where they are known.
        malformed: what is wrong on purpose.
    """
    edges = {
        id(array): f"n{node}_{position}"
        for node, outputs in enumerate(computed)
        for position, array in enumerate(outputs)
        if array is not None
    }
    names: dict[int, str] = {}
    feeds: dict[str, Array] = {}
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    functions: list[onnx.FunctionProto] = []
    results: dict[str, tuple[int, int]] = {}
    share = rng.choice((0.0, 0.3, 0.6, 1.0))

    def name_of(array: Array | None, chance: float, *, constant: bool = False) -> str:
        if array is None:
            return ""
        name = edges.get(id(array)) or names.get(id(array))
        if name is None:
            name = names[id(array)] = f"x{len(names)}"
            if constant or array.dtype.kind == "V" or rng.random() < chance:
                weights.append(numpy_helper.from_array(array, name))
            else:
                feeds[name] = array
        return name

    for index, case in enumerate(cases):
        inputs = [
            name_of(array, share if at else share / 3, constant=at in case.constants)
            for at, array in enumerate(case.inputs)
        ]
        outer = [(name_of(array, share), name) for name, array in case.captured.items()]
        nodes += [helper.make_node("Identity", [known], [name]) for known, name in outer]
        outputs = ["" if at in case.absent else f"n{index}_{at}" for at in range(case.outputs)]
        results |= {name: (index, at) for at, name in enumerate(outputs) if name and is_result(index, at)}
        node = helper.make_node(
            case.op_type, inputs, outputs, domain=case.domain, name=f"node{index}", **case.attributes
        )
        if _is_plain(case) and not malformed and rng.random() < _IN_FUNCTIONS:
            node, function = _as_function(node, case.version, rng)
            functions.append(function)
        nodes.append(node)
    graph = helper.make_graph(
        nodes,
        "fuzz",
        [_input_info(name, array, rng) for name, array in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
        weights,
    )
    sets = [helper.make_opsetid("", cases[0].version)]
    if any(case.domain == MICROSOFT for case in cases):
        sets.append(helper.make_opsetid(MICROSOFT, 1))
    if functions:
        sets.append(helper.make_opsetid(_FUNCTIONS, 1))
    model = helper.make_model(graph, opset_imports=sets, ir_version=_IR_VERSION, functions=functions)
    return Drawn(model, feeds, tuple(cases), results, malformed)


_PLAIN = (
    *(onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING),
    *(onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS),
)


def _is_plain(case: NodeCase) -> bool:
    """Whether a local function may hold a node; onnxruntime dies of operators there that are functions themselves."""
    schema = schema_of(case.op_type, case.domain, case.version)
    is_function = schema is None or schema.has_function or schema.has_context_dependent_function
    return not case.domain and not case.captured and not is_function


def _as_function(node: onnx.NodeProto, version: int, rng: random.Random) -> tuple[onnx.NodeProto, onnx.FunctionProto]:
    """The call of a local function of one node; some of its attributes are the function's, given or by default."""
    name = f"F_{node.name}"
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    # An input that the node reads twice is one of the function.
    read = list(dict.fromkeys(filter(None, node.input)))
    call = helper.make_node(name, read, list(filter(None, node.output)), node.name, domain=_FUNCTIONS)
    inner.input[:] = [x and f"in_{x}" for x in node.input]
    inner.output[:] = [y and f"out_{y}" for y in node.output]
    required, usual = [], []
    for attribute in inner.attribute:
        if attribute.type not in _PLAIN or rng.random() < 0.4:
            continue
        outer = onnx.AttributeProto()
        outer.CopyFrom(attribute)
        outer.name = f"outer_{attribute.name}"
        kind, attribute_name = attribute.type, attribute.name
        attribute.Clear()
        attribute.name, attribute.type, attribute.ref_attr_name = attribute_name, kind, outer.name
        if rng.random() < 0.5:
            usual.append(outer)
        else:
            required.append(outer.name)
            call.attribute.append(outer)
    function = helper.make_function(
        _FUNCTIONS,
        name,
        [f"in_{x}" for x in call.input],
        [f"out_{y}" for y in call.output],
        [inner],
        [helper.make_opsetid("", version)],
        required,
        usual,
    )
    return call, function


def _input_info(name: str, array: Array, rng: random.Random) -> onnx.ValueInfoProto:
    """A declaration; at times with dimensions that only a run knows."""
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    shape: list[int | str] = list(array.shape)
    if rng.random() < 0.2:
        shape = [f"{name}_{at}" for at in range(array.ndim)]
    return helper.make_tensor_value_info(name, element, shape)


# ---- drawing --------------------------------------------------------------------------------------------------------

_IN_CHAINS = {
    "elementwise": 6.0,
    "reductions": 3.0,
    "layout": 2.0,
    "matrix": 2.0,
    "normalization": 2.0,
    "windows": 1.0,
    "indexing": 0.7,
}
"""How often operators of a module come in graphs; those of others do as seldom as .2."""
_NOT_IN_CHAINS = {"Unique", "NonZero", "Compress", "Det", "BitCast"}
"""Operators whose results depend on elements in their shapes, or on bits."""


def single(rng: random.Random, operators: Sequence[tuple[str, str]] = ()) -> NodeCase:
    """A node of any operator."""
    domain, name = rng.choice(operators or list(GENERATORS))
    version = draw_version(rng, versions_of(name, domain))
    return GENERATORS[domain, name](Draw(rng, name, domain, version))


def chain(rng: random.Random, compute: Callable[[NodeCase], Outputs | None]) -> list[Step]:
    """Nodes of which most read what others before them compute.

    Args:
        rng: source of choices.
        compute: what an oracle makes of a node; None where it refuses.
    """
    version = draw_version(rng, range(OLDEST, NEWEST + 1))
    operators, weights = _chain_operators(version)
    steps: list[Step] = []
    pool: list[Array] = []
    count = rng.randint(2, 6)
    for _ in range(4 * count):
        if len(steps) == count:
            break
        domain, name = rng.choices(operators, weights)[0]
        case = GENERATORS[domain, name](Draw(rng, name, domain, version, pool=pool))
        if steps and not any(array is known for array in case.inputs for known in pool) and rng.random() < 0.8:
            continue
        outputs = compute(case)
        if outputs is None or any(array is not None and array.size > 4096 for array in outputs):
            continue
        steps.append(Step(case, outputs))
        inputs = [array for array in case.inputs if array is not None and array.dtype.kind != "V"]
        pool += [array for array in inputs if not any(array is known for known in pool)]
        if not case.random and not case.slack:
            pool += [array for array in outputs if array is not None]
    return steps


@functools.lru_cache(maxsize=64)
def _chain_operators(version: int) -> tuple[list[tuple[str, str]], list[float]]:
    operators = [
        (domain, name)
        for domain, name in GENERATORS
        if version in versions_of(name, domain) and name not in _NOT_IN_CHAINS
    ]
    members: dict[str, list[tuple[str, str]]] = {}
    for domain, name in operators:
        members.setdefault(_topic(domain, name), []).append((domain, name))
    weights = [
        _IN_CHAINS.get(_topic(*operator), 0.5) / len(members[_topic(*operator)]) * (3 if operator[1] == "Cast" else 1)
        for operator in operators
    ]
    return operators, weights


def _topic(domain: str, name: str) -> str:
    function: Any = GENERATORS[domain, name]
    function = function.args[0] if isinstance(function, functools.partial) else function
    return str(function.__module__).rpartition(".")[2]


def ends(steps: Sequence[Step], rng: random.Random) -> Callable[[int, int], bool]:
    """The outputs of a graph: those that no node reads, and some others."""
    read = {id(array) for step in steps for array in step.case.inputs if array is not None}
    shown = {
        (index, position)
        for index, step in enumerate(steps)
        for position, array in enumerate(step.outputs)
        if id(array) not in read or rng.random() < 0.1
    }
    return lambda node, position: (node, position) in shown


# ---- what is wrong on purpose ---------------------------------------------------------------------------------------

_HUGE = (2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**40)


def malformed(case: NodeCase, rng: random.Random) -> tuple[NodeCase, str]:
    """The node with an attribute or an input that is not as it should be, and what it is."""
    inputs, attributes = list(case.inputs), dict(case.attributes)
    plain = [name for name, value in attributes.items() if isinstance(value, int | float | str | list | bytes)]
    numeric = [at for at, array in enumerate(inputs) if array is not None and array.dtype.kind in "fiub"]
    if plain and (not numeric or rng.random() < 0.5):
        name = rng.choice(plain)
        if rng.random() < 0.07:
            del attributes[name]
            return replace(case, attributes=attributes), f"attribute {name} omitted"
        kind = "flag" if attributes[name] in (0, 1) else "attribute"
        attributes[name] = _wrong_attribute(attributes[name], rng)
        return replace(case, attributes=attributes), f"{kind} {name} {attributes[name]!r:.40}"
    if not numeric:
        return case, "nothing"
    at = rng.choice(numeric)
    # Small integers decide about shapes most of the time.
    small = [at for at in numeric if inputs[at].dtype.kind in "iu" and inputs[at].size <= 8]  # type: ignore[union-attr]
    if small and rng.random() < 0.6:
        at = rng.choice(small)
    array = inputs[at]
    assert array is not None
    if case.op_type == "Loop" and at == 0:
        return case, "nothing"  # without a number of trips, most bodies go on for ever
    inputs[at], what = _wrong_input(array, rng)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return replace(case, inputs=inputs), f"input {at} {what}"


def _wrong_attribute(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list) and value:
        kind = rng.randrange(5)
        if kind == 0:
            return value[:-1] or value * 2
        if kind == 1:
            return [*value, value[-1]]
        changed = list(value)
        changed[rng.randrange(len(value))] = _wrong_attribute(value[0], rng)
        return changed
    if isinstance(value, str | bytes):
        return rng.choice(("", "x", "NOTSET", "linear", "ij->", "\u00e9"))
    if isinstance(value, float):
        return float(
            rng.choice(
                [number for number in FLOATS if not abs(number) > 3.4e38 or number in (float("inf"), -float("inf"))]
            )
        )
    return rng.choice((0, -1, -2, 3, 7, *_HUGE[:5], rng.choice(INTEGERS)))


def _wrong_input(array: Array, rng: random.Random) -> tuple[Array | None, str]:
    changes: list[tuple[Array | None, str]] = [
        (None, "omitted"),
        (array[None], "of one dimension more"),
        (array.reshape(-1), "in a row"),
    ]
    if array.ndim:
        changes += [
            (array[:-1], "shorter"),
            (np.concatenate([array, array[-1:]]), "longer"),
            (array[:0], "empty"),
        ]
    other = rng.choice(("float32", "float16", "int64", "int32", "uint8", "bool", "float64"))
    with np.errstate(all="ignore"):
        changes.append((array.astype(other), f"of type {other}"))
    if not array.size or array.dtype == bool or rng.random() < 0.65:
        return rng.choice(changes)
    if array.dtype.kind == "f":
        number: Any = rng.choice((float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e30, -1e30))
    else:
        limits = np.iinfo(array.dtype)
        number = min(max(rng.choice((0, -1, -7, 5, 100, *_HUGE)), int(limits.min)), int(limits.max))
    changed = array.copy()
    with np.errstate(all="ignore"):
        changed.reshape(-1)[rng.randrange(changed.size)] = number
    return changed, f"with {number}"
