"""Compiled functions against the same functions run eagerly: values, structures, views, caches, refusals."""

from __future__ import annotations

import inspect
import re
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import Device, InvalidArgument, InvalidState, Tensor, ops
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.tracing.compiled import CompiledFunction
from tests.eager_functions import EXAMPLES, SHAPED_BY_VALUES, Example, floats

ARRAY = floats(4, 6)
WEIGHT: Any = None  # of `test_a_variable_may_hold_another_tensor`

Pair = namedtuple("Pair", "first second")


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


@pytest.fixture
def x(device: Device) -> Tensor:
    return Tensor(ARRAY, device=device)


def operators(compiled: CompiledFunction[..., Any], *args: Any) -> list[str]:
    """The operators of the graph that a call runs, in order."""
    nodes = compiled.graph(*args).nodes
    return [node.desc.operator for node in nodes if isinstance(node.desc, dmlgpu.OperatorDesc)]


def raises(kind: type[Exception], part: str) -> Any:
    """Expect an exception whose message has this part."""
    return pytest.raises(kind, match=re.escape(part))


def same(result: Any, expected: Any) -> None:
    """Compare results bit for bit, tensors by their elements."""
    if isinstance(expected, tuple | list):
        assert type(result) is type(expected) and len(result) == len(expected)
        for item, other in zip(result, expected, strict=True):
            same(item, other)
        return
    assert type(result) is type(expected)
    if isinstance(expected, Tensor):
        assert (result.sizes, result.strides, result.data_type) == (
            expected.sizes,
            expected.strides,
            expected.data_type,
        )
        assert result.is_view == expected.is_view
        result, expected = result.numpy(), expected.numpy()
    np.testing.assert_array_equal(result, expected)


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_compiled_results_match_eager_ones(example: Example, device: Device) -> None:
    operands = [Tensor(operand, device=device) for operand in example.operands]
    compiled = dmlgpu.compile(example.call)
    if example.name in SHAPED_BY_VALUES:
        with pytest.raises(
            InvalidState, match=rf": {example.name.split()[0]}\(x\) must not read the elements of a Tensor"
        ):
            compiled(*operands)
        return
    for _ in range(2):
        same(compiled(*operands), example.call(*operands))
    assert compiled.cache_info().misses == 1


def assigned(x: Tensor) -> Tensor:
    changed = x + 0
    changed[0, :] = 1.0
    return changed


STANDARD: dict[str, Callable[..., Any]] = {
    "truth": lambda x, flags, empty: (x > 0) & flags,
    "a flag itself": lambda x, flags, empty: flags,
    "other bits of the same memory": lambda x, flags, empty: xp.copysign(x * 2, x + 1),
    "a shift": lambda x, flags, empty: (xp.astype(x, xp.int32) + 1) >> 1,
    "nothing": lambda x, flags, empty: (x + 1, empty + 1),
    "nothing joined": lambda x, flags, empty: xp.concat([x, empty]),
    "nothing summed": lambda x, flags, empty: x + xp.sum(empty, axis=0),
    "statistics": lambda x, flags, empty: (x - xp.mean(x, axis=0)) / xp.std(x, axis=0),
    "sorted": lambda x, flags, empty: xp.sort(-x, axis=1),
    "assigned": lambda x, flags, empty: assigned(x),
}


@pytest.mark.parametrize("name", STANDARD)
def test_functions_of_the_array_api(name: str, x: Tensor) -> None:
    function, device = STANDARD[name], x.device
    flags = Tensor([True, False, True, True, False, True], device=device)
    arguments = (x, flags, Tensor(np.zeros((0, 6), np.float32), device=device))
    expected, result = function(*arguments), dmlgpu.compile(function)(*arguments)
    for want, got in zip(
        *(value if isinstance(value, tuple) else (value,) for value in (expected, result)), strict=True
    ):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_arrays_give_arrays(device: Device) -> None:
    compiled = dmlgpu.compile(lambda a, b: (a @ b.T, a), device=device)
    product, returned = compiled(ARRAY, ARRAY)
    np.testing.assert_allclose(product, ARRAY @ ARRAY.T, rtol=1e-5)
    assert isinstance(returned, np.ndarray) and returned is not ARRAY and np.array_equal(returned, ARRAY)


def test_arrays_with_a_tensor_give_tensors(x: Tensor) -> None:
    compiled = dmlgpu.compile(lambda a, b: a + b)
    for factor in (1, 2):
        assert np.array_equal(compiled(x, ARRAY * factor).numpy(), ARRAY + ARRAY * factor)
    assert compiled.cache_info().entries == 1


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a slice": lambda a: abs(a[1:, 2:5]),
    "columns": lambda a: a[:, 1] + a[:, 3],
    "steps": lambda a: a[::2, 1::2] * 2,
    "an element": lambda a: a + a[1, 2],
    "transposed": lambda a: a.T + a.T[:, :1],
    "broadcast": lambda a: a[2].broadcast_to((5, 6)) - 1,
    "reshaped": lambda a: abs(a).reshape(2, 12)[1:].reshape(3, 4),
    "a view of a view of a result": lambda a: abs(abs(a)[1:].T[2:, 1:]),
    "reversed": lambda a: a[::-1, 1:] + a[:, 1:],
    "rows": lambda a: [row + 1 for row in a],
    "new axes": lambda a: a[None, 3:, :, None] * 2,
    "a product of slices": lambda a: a[:, 1:3] @ a[1:3, :],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_match_eager_ones(name: str, x: Tensor) -> None:
    same(dmlgpu.compile(VIEWS[name])(x), VIEWS[name](x))


@pytest.mark.parametrize("view", ["T", "slice"])
def test_arguments_may_be_views(view: str, x: Tensor) -> None:
    def function(a: Tensor) -> Any:
        return a[1:] * 2, a

    compiled, view_of_x = dmlgpu.compile(function), x.T if view == "T" else x[1:, 3:]
    results = compiled(view_of_x)
    same(results, function(view_of_x))
    assert results[1] is view_of_x


def test_views_call_no_operator(x: Tensor) -> None:
    compiled = dmlgpu.compile(lambda a: abs(a.T.reshape(6, 2, 2).broadcast_to((3, 6, 2, 2))))
    assert operators(compiled, x) == ["ELEMENT_WISE_ABS"]
    compiled = dmlgpu.compile(lambda a: abs(a)[1:])
    assert operators(compiled, x) == ["ELEMENT_WISE_ABS"]


# ---- structures ------------------------------------------------------------------------------------------------------


def test_subclasses_of_dict_are_structures(x: Tensor) -> None:
    parameters = OrderedDict(weight=x, bias=x[0])
    gradient = dmlgpu.grad(lambda p, a: ops.sum(p["weight"] * a + p["bias"]))
    for function in (gradient, dmlgpu.compile(gradient)):
        result = function(parameters, x)
        assert type(result) is OrderedDict and list(result) == ["weight", "bias"]
        assert np.array_equal(result["weight"].numpy(), ARRAY) and result["bias"].tolist() == [4.0] * 6


def test_structures_come_back_as_they_are(x: Tensor) -> None:
    shared = Tensor([1.0, 2.0], device=x.device)
    array = np.arange(3)

    def function(mapping: dict[str, Any], *, scale: float = 1) -> Any:
        y = mapping["a"][0] * scale
        return {"y": y, "again": [y, y[1:]], "pair": Pair(mapping["b"], 3), "none": None, "shared": shared, "n": array}

    compiled = dmlgpu.compile(function)
    result = compiled({"a": (x,), "b": x.T}, scale=2)
    assert list(result) == ["y", "again", "pair", "none", "shared", "n"]
    assert np.array_equal(result["y"].numpy(), ARRAY * 2)
    assert result["again"][0] is result["y"] and result["again"][1].buffer is result["y"].buffer
    assert isinstance(result["pair"], Pair) and result["pair"].first.buffer is x.buffer and result["pair"].second == 3
    assert result["shared"] is shared and result["none"] is None
    assert np.array_equal(result["n"], array) and result["n"] is not array


def test_an_argument_comes_back_itself(x: Tensor) -> None:
    compiled = dmlgpu.compile(lambda a: (a, a.T))
    result, view = compiled(x)
    assert result is x and view.is_view and view.buffer is x.buffer
    with raises(InvalidState, "<lambda>: nothing is computed from these arguments: the function calls no operator"):
        compiled.operator(x)


def test_results_live_on_after_the_next_call(x: Tensor) -> None:
    compiled = dmlgpu.compile(lambda a: a + 1)
    first = compiled(x)
    second = compiled(x * 2)
    assert np.array_equal(first.numpy(), ARRAY + 1) and np.array_equal(second.numpy(), ARRAY * 2 + 1)


def test_an_output_that_is_not_returned(x: Tensor) -> None:
    compiled = dmlgpu.compile(lambda a: ops.topk(a, k=2, axis=1)[1])
    assert np.array_equal(compiled(x).numpy(), np.argsort(-ARRAY, axis=1)[:, :2])


def test_coordinates_of_nonzero_elements_end_in_zeros(device: Device) -> None:
    def function(a: Tensor) -> Any:
        count, coordinates = ops.directml.nonzero_coordinates(a)
        return count, coordinates + 1

    x = Tensor(np.array([[0, 5, 0, 7]], np.int32), device=device)
    Tensor(np.full(64, 9, np.uint32), device=device).release()  # what the pool hands out next is not zero
    same(dmlgpu.compile(function)(x), function(x))


def test_methods_and_decorators(x: Tensor) -> None:
    class Layer:
        """A doubling."""

        def __init__(self, factor: Tensor):
            self.factor = factor

        @dmlgpu.compile(cache_size=2)
        def forward(self, a: Tensor) -> Tensor:
            """Double."""
            return a * self.factor

    layers = [Layer(Tensor([factor], "float32", device=x.device)) for factor in (2, 3)]
    for layer, factor in zip(layers, (2, 3), strict=True):
        assert np.array_equal(layer.forward(x).numpy(), ARRAY * factor)
    assert Layer.forward.cache_info().entries == 2
    assert (Layer.forward.__name__, Layer.forward.__doc__) == ("forward", "Double.")
    assert list(inspect.signature(Layer.forward).parameters) == ["self", "a"]


# ---- cached graphs ---------------------------------------------------------------------------------------------------


def test_graphs_are_cached_by_the_key_of_tracing(x: Tensor) -> None:
    calls: list[Any] = []

    @dmlgpu.compile
    def function(a: Tensor, n: Any = None) -> Tensor:
        calls.append(n)
        return a + 1

    differing = [(x,), (x.T,), (x[1:],), (x.astype("float16"),), (x, 0), (x, False), (x, 0.0), (x, -0.0)]
    differing += [(x, np.float32(0)), (x, (0,)), (x, [0]), (x, {"k": 0}), (x, "0"), (x[0],), (x[0, 0],), (x[:1, 0],)]
    for _ in range(2):
        for args in differing:
            function(*args)
    function(Tensor(ARRAY + 1, device=x.device))
    function(x[:4])
    assert len(calls) == len(differing) == function.cache_info().entries
    function.cache_clear()
    assert function.cache_info().entries == 0
    function(x)
    assert len(calls) == len(differing) + 1


def test_the_cache_is_bounded(x: Tensor) -> None:
    function = dmlgpu.compile(lambda a, n: a + n, cache_size=3)
    for index in range(5):
        assert np.array_equal(function(x, index).numpy(), ARRAY + np.float32(index))
    assert (function.cache_info().entries, function.cache_info().evictions) == (3, 2)


def test_a_call_allocates_nothing_and_records_nothing_again(x: Tensor) -> None:
    function = dmlgpu.compile(lambda a: ops.softmax(a @ a.T) * 2)
    session = session_of(x.device)
    for _ in range(3):
        function(x)
    before = session.pool.allocations, session.bindings
    for _ in range(5):
        function(x)
    assert (session.pool.allocations, session.bindings) == before


# ---- tensors from outside --------------------------------------------------------------------------------------------


def test_elements_of_a_tensor_from_outside_are_not_frozen(x: Tensor) -> None:
    bias = Tensor(np.ones(6, np.float32), device=x.device)
    holder = [bias[2:], bias[1:3]]

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        return a + bias * 2 + holder[0][0] + holder[1][1]

    assert np.array_equal(function(x).numpy(), ARRAY + 2 + 1 + 1)
    bias.buffer.write(np.full(6, 2, np.float32))
    assert np.array_equal(function(x).numpy(), ARRAY + 4 + 2 + 2)
    assert function.cache_info().misses == 1


def test_a_variable_may_hold_another_tensor(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    bias = Tensor(1.0, "float32", device=x.device)

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        return a * WEIGHT + bias

    for weight in (2.0, 3.0):
        monkeypatch.setitem(globals(), "WEIGHT", Tensor(weight, "float32", device=x.device))
        expected = ARRAY * np.float32(weight) + bias.numpy()
        assert np.array_equal(function(x).numpy(), expected)
        bias = Tensor(5.0, "float32", device=x.device)
        assert np.array_equal(function(x).numpy(), ARRAY * np.float32(weight) + np.float32(5))
    assert function.cache_info().entries == 1


def test_arrays_alone_are_computed_when_the_function_is_traced(x: Tensor) -> None:
    table = np.array([3, 1, 2], np.float32)

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        ordered = ops.sort(table, device="numpy")
        assert isinstance(ordered, np.ndarray)
        return a[:, :3] + ordered

    assert np.array_equal(function(x).numpy(), ARRAY[:, :3] + np.sort(table))


# ---- nesting, threads, exceptions ------------------------------------------------------------------------------------


def test_a_compiled_function_in_another_is_part_of_it(x: Tensor) -> None:
    inner = dmlgpu.compile(lambda a: a * 2)

    @dmlgpu.compile
    def power(a: Tensor, n: int) -> Tensor:
        return a if n == 0 else inner(power(a, n - 1))

    assert np.array_equal(power(x, 3).numpy(), ARRAY * 8)
    assert operators(power, x, 3) == ["ELEMENT_WISE_MULTIPLY"] * 3
    assert inner.cache_info().entries == 0 and power.cache_info().entries == 1


def test_exceptions_pass_and_leave_no_state(x: Tensor) -> None:
    broken = True

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        y = a + 1
        if broken:
            raise KeyError("mine")
        return y

    with pytest.raises(KeyError, match="mine") as caught:
        function(x)
    assert caught.value.__cause__ is None and recorder() is None
    broken = False
    assert np.array_equal(function(x).numpy(), ARRAY + 1)


def test_threads(x: Tensor) -> None:
    function = dmlgpu.compile(lambda a, n: ops.softmax(a * n, axis=1) + n)
    expected = [function.__wrapped__(x, n).numpy() for n in range(1, 4)]
    failures: list[Any] = []

    def work() -> None:
        for _ in range(10):
            failures.extend(n for n in range(1, 4) if not np.array_equal(function(x, n).numpy(), expected[n - 1]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and function.cache_info().entries == 3


# ---- what it became --------------------------------------------------------------------------------------------------


def test_the_graph_can_be_inspected(x: Tensor) -> None:
    def dense(a: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        return ops.relu(a @ parameters["weight"] + 1)

    compiled = dmlgpu.compile(dense)
    args = (x, {"weight": x.T})
    graph = compiled.graph(*args)
    inputs = "('a' FLOAT32 [4, 6], \"parameters['weight']\" FLOAT32 [6, 4])"
    assert repr(graph) == f"<Graph 'dense': inputs {inputs}, 3 operators, 1 constant>"
    assert "GEMM" in graph.to_dot() and "test_compiled_functions.py:" in graph.nodes[0].location
    assert compiled.desc(*args).output_count == 1
    assert [port.desc and port.desc.sizes for port in compiled.operator(*args).outputs] == [(4, 4)]
    assert repr(compiled) == "<compiled function dense: 1 graph>"


def test_the_repr_of_a_traced_tensor_says_so(x: Tensor) -> None:
    texts: list[str] = []

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        texts.append(repr(a + 1))
        texts.append(repr(x[0, :0:-5]))
        return a

    function(x)
    assert texts[0] == f"Tensor(FLOAT32 [4, 6] on {x.device.adapter.name!r}: traced, computed when the function runs)"


# ---- refusals --------------------------------------------------------------------------------------------------------

LOOKS: dict[str, tuple[str, Callable[[Tensor], Any]]] = {
    "a condition such as `if x`": ("bool", lambda a: 1 if a[0, 0] > 0 else 2),
    "float(x)": ("float", lambda a: float(a[0, 0])),
    "int(x)": ("int", lambda a: int(a[0, 0])),
    "an index": ("index", lambda a: [1, 2][a.astype("int32")[0, 0]]),
    "x.numpy()": ("numpy", lambda a: a.numpy()),
    "x.tolist()": ("tolist", lambda a: (a + 1).tolist()),
    "x.item()": ("item", lambda a: a[0, 0].item()),
    "np.asarray(x)": ("array", lambda a: np.asarray(a) + 1),
    "Tensor(x)": ("Tensor", lambda a: Tensor(a, device=a.device)),
    "x.__dlpack__()": ("dlpack", lambda a: np.from_dlpack(a) + 1),
    "a copy by pickle": ("pickle", lambda a: a.__reduce__()),
    "x[mask]": ("mask", lambda a: a[a > 0]),
}


@pytest.mark.parametrize("what", LOOKS)
def test_looking_at_elements_is_rejected_with_the_line(what: str, x: Tensor) -> None:
    function = LOOKS[what][1]
    line = function.__code__.co_firstlineno
    is_condition = what.startswith("a condition")
    condition_cure = "ops.where(condition, a, b) chooses between tensors, dmlgpu.cond between functions"
    cure = condition_cure if is_condition else "read them outside of the function"
    with pytest.raises(InvalidState) as caught:
        dmlgpu.compile(function)(x)
    assert str(caught.value) == (
        f"<lambda>: {what} must not read the elements of a Tensor while the function is traced, since they are not "
        f"computed yet (tests/unit/tensors/tracing/test_compiled_functions.py:{line}, in <lambda>); {cure}"
    )
    function(x)


def test_elements_of_captured_tensors_are_not_read_either(x: Tensor) -> None:
    with raises(InvalidState, "x.tolist() must not read the elements"):
        dmlgpu.compile(lambda a: a + float(x.tolist()[0][0]))(x)


def test_tensors_that_the_function_did_not_make_are_not_assigned_to(x: Tensor) -> None:
    outside = [Tensor(ARRAY, device=x.device)]
    before = outside[0].buffer

    def assigning(a: Tensor, target: Tensor) -> None:
        target.buffer = (a + 1).buffer  # as an assignment does

    for function in (lambda a: assigning(a, a), lambda a: assigning(a + outside[0], outside[0])):
        with raises(
            InvalidArgument, "<lambda>: a Tensor that the function did not make, FLOAT32 [4, 6], must not be as"
        ):
            dmlgpu.compile(function)(x)
        assert outside[0].buffer is before and np.array_equal(x.numpy(), ARRAY)

    def local(a: Tensor) -> Tensor:
        b = a * 2
        assigning(a, b)
        return b

    assert np.array_equal(dmlgpu.compile(local)(x).numpy(), ARRAY + 1)


def test_a_variable_whose_tensor_was_assigned_to(x: Tensor) -> None:
    weight = Tensor(ARRAY, device=x.device)
    function = dmlgpu.compile(lambda a: a @ weight.T)
    function(x)
    weight.buffer = (weight * 3).buffer  # as an assignment does
    np.testing.assert_allclose(function(x).numpy(), ARRAY @ ARRAY.T * 3, rtol=1e-5)


def test_rejections_name_the_function(x: Tensor) -> None:
    def step(a: Any, b: Any = None) -> Any:
        return a + 1 if b is None else a + b

    compiled, other = dmlgpu.compile(step, device=x.device), Tensor(ARRAY, device=Device("numpy"))
    gone = Tensor(ARRAY, device=x.device)
    gone.release()
    with raises(InvalidArgument, f"step: b must be on the device of the other arguments, '{x.device.adapter}'"):
        compiled(x, other)
    with raises(InvalidState, "step: a[0], FLOAT32 [4, 6], is released"):
        compiled([gone])
    with raises(InvalidArgument, "step: b must be a Tensor, an array, a tuple, list, dict or dataclass of such"):
        compiled(x, {1, 2})
    with raises(InvalidArgument, "a + b: sizes must be equal or 1 to broadcast, got [4, 6] of a and [4, 5] of b"):
        compiled(x, x[:, 1:])
    with raises(InvalidArgument, "step: b must be an array of real numbers, got NumPy type object"):
        compiled(x, np.array([None]))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled()
    with raises(
        InvalidArgument, "<lambda>: results must be Tensors, arrays, numbers, strings or None, in tuples, lists"
    ):
        dmlgpu.compile(lambda a: object())(x)
    outside = [Tensor(ARRAY, device=x.device)]
    late = dmlgpu.compile(lambda a: a + outside[0])
    late(x)
    outside[0].release()
    with raises(InvalidState, "<lambda>: a Tensor from outside, FLOAT32 [4, 6], is released"):
        late(x)
    with raises(InvalidArgument, "a + b: b must be on the device of the other operands"):
        dmlgpu.compile(lambda a: a + other)(x)


def test_a_tensor_of_a_trace_has_no_elements_outside(x: Tensor) -> None:
    escaped: list[Tensor] = []

    @dmlgpu.compile
    def function(a: Tensor) -> Tensor:
        escaped.append(a * 2)
        return a + 1

    function(x)
    message = "it was made while a function was traced, and has no elements"
    for use in (escaped[0].numpy, lambda: escaped[0] + 1, lambda: x + escaped[0]):
        with raises(InvalidState, message):
            use()
    assert "traced" in repr(escaped[0])
    with raises(InvalidState, "<lambda>: a Tensor, FLOAT32 [4, 6], was made while another call was traced"):
        dmlgpu.compile(lambda a: a + escaped[0])(x)


def test_wrong_arguments_of_compile() -> None:
    with raises(InvalidArgument, "compile: function must be callable, got 3"):
        dmlgpu.compile(3)  # type: ignore[call-overload]
    with raises(InvalidArgument, "compile: cache_size must be an integer between 1 and"):
        dmlgpu.compile(abs, cache_size=0)
    with raises(InvalidArgument, "compile: device must be a Device, the name of an adapter or None, got int"):
        dmlgpu.compile(abs, device=3)  # type: ignore[call-overload]


def test_calls_write_to_the_memory_of_earlier_calls() -> None:
    """Results that replace their operand alternate between two memories, regardless of other calls in between."""
    device = Device("numpy")
    step = dmlgpu.compile(lambda x: x * 0.5 + 1.0)
    x, others, memories = Tensor(np.ones(8, np.float32), device=device), [], []
    for _ in range(6):
        x = step(x)
        memories.append(id(x.buffer.memory))
        others.append(x + 2.0)
        _ = x + 3.0
    assert memories == memories[:2] * 3
    assert x.tolist() == [2 - 0.5**6] * 8
    pool = session_of(device).pool
    assert sum(map(len, pool.reserved.values())) == 1
    del step
    _ = x + 1.0  # what a thread of finalizers deferred
    assert not pool.reserved
