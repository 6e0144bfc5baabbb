"""Tensors against NumPy: views, copies, operators, memory, the host, refusals."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgpu import (
    DataType,
    Device,
    DeviceRemoved,
    InvalidArgument,
    InvalidState,
    NotSupported,
    OutOfMemory,
    Tensor,
    ops,
)
from dmlgpu.runtime.device import as_device
from dmlgpu.runtime.numpy.backend import NumPyBackend
from dmlgpu.tensors.layout import InvalidIndex
from dmlgpu.tensors.recorded_call import RecordedCall
from dmlgpu.tensors.session import CALLS, KEPT_BYTES, EagerSession, rounded, session_of
from tests.unit.device_objects import raises

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


@pytest.fixture
def x(device: Device) -> Tensor:
    return Tensor(ARRAY, device=device)


# ---- views and copies ------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "T": lambda a: a.T,
    "transpose": lambda a: a.transpose(1, 0, 2),
    "transpose of a tuple": lambda a: a.transpose((2, 0, 1)),
    "an index": lambda a: a[1],
    "a negative index": lambda a: a[-1, -2],
    "one element": lambda a: a[1, 2, 3],
    "slices": lambda a: a[:, 1:, ::2],
    "steps": lambda a: a[..., 1::3],
    "new axes": lambda a: a[None, :, None, 2],
    "reshape": lambda a: a.reshape(6, 4),
    "reshape of a slice": lambda a: a[:, :, 0].reshape(6),
    "reshape with -1": lambda a: a.reshape((4, -1)),
    "reshape of ones": lambda a: a[:, :1].reshape(2, 4),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "reshape of a transposed one": lambda a: a.T.reshape(6, 4),
    "reshape of columns": lambda a: a[:, :2].reshape(-1),
    "backwards": lambda a: a[:, ::-1],
    "backwards in steps": lambda a: a[1, ::-2, 3:0:-1],
    "integers": lambda a: a[np.array([1, 0, -1])],
}


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_selected_elements(x: Tensor, name: str) -> None:
    function = (VIEWS | COPIES)[name]
    result, expected = function(x), function(ARRAY)
    assert result.shape == expected.shape
    assert np.array_equal(result.numpy(), expected)
    assert result.is_view == (name in VIEWS)
    assert (result.buffer is x.buffer) == (name in VIEWS)
    assert np.array_equal((result + 1).numpy(), expected + 1)


def test_reshaping_says_where_it_copies(x: Tensor) -> None:
    assert not x.reshape(24, copy=True).is_view
    assert x.reshape(24, copy=False).is_view
    with raises(
        InvalidArgument,
        "Tensor.reshape: copy must not be False: [4, 3, 2] with strides [1, 4, 12] cannot be viewed as [24]",
    ):
        x.T.reshape(24, copy=False)


def test_every_reshape_agrees_with_numpy(device: Device) -> None:
    """Of all orders of axes and all sizes of 24 elements: a view just where NumPy makes one."""
    x = Tensor(ARRAY, device=device)
    shapes = [shape for shape in itertools.product((1, 2, 3, 4, 6, 8, 12, 24), repeat=3) if np.prod(shape) == 24]
    for order in itertools.permutations(range(3)):
        theirs, ours = ARRAY.transpose(order), x.transpose(order)
        for shape in shapes:
            result, expected = ours.reshape(shape), theirs.reshape(shape)
            assert result.is_view == np.shares_memory(expected, ARRAY)
            assert np.array_equal(result.numpy(), expected)


def test_broadcasting_repeats_by_strides(x: Tensor) -> None:
    result = x[:, :1].broadcast_to((5, 2, 3, 4))
    assert result.strides == (0, 12, 0, 1) and result.is_view
    assert np.array_equal(result.numpy(), np.broadcast_to(ARRAY[:, :1], (5, 2, 3, 4)))
    assert x.expand_dims((0, -1)).squeeze().sizes == x.sizes
    assert x[:, :1].squeeze(1).sizes == (2, 4)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
def test_a_view_may_begin_anywhere(device: Device, dtype: str) -> None:
    array = np.arange(60).astype(dtype).reshape(5, 12)
    x = Tensor(array, device=device)
    for row, column in itertools.product(range(5), range(12)):
        view = x[row:, column:]
        assert np.array_equal(view.numpy(), array[row:, column:])
        assert np.array_equal((view + view).numpy(), array[row:, column:] * 2)


def test_integers_of_four_bits(device: Device) -> None:
    array = np.arange(15, dtype=np.int8).reshape(3, 5) % 8
    x = Tensor(array, "int4", device=device)
    assert np.array_equal(x[1:, 2:].numpy(), array[1:, 2:])
    with raises(InvalidArgument, "Tensor: values must hold integers between 0 and 15 for UINT4"):
        Tensor([16], "uint4", device=device)


def test_elements_never_change(x: Tensor) -> None:
    with pytest.raises(InvalidArgument, match=r"^Tensor\[...\] = value: a view must not be assigned to"):
        x[0][1] = 1
    before = x
    x += 1
    assert np.array_equal(before.numpy(), ARRAY) and np.array_equal(x.numpy(), ARRAY + 1)


# ---- Python's operators ----------------------------------------------------------------------------------------------

PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
REAL: dict[str, Callable[[Any, Any], Any]] = {"/": lambda a, b: a / b, "**": lambda a, b: abs(a) ** b}


@pytest.mark.parametrize("symbol", [*PAIRS, *WHOLE, *REAL])
def test_operators(device: Device, symbol: str) -> None:
    function = {**PAIRS, **WHOLE, **REAL}[symbol]
    rng = np.random.default_rng(3)
    for dtype in ("int32", "float32"):
        if symbol in (REAL if dtype == "int32" else WHOLE):
            continue
        left, right = rng.integers(-9, 9, (3, 1)).astype(dtype), rng.integers(1, 9, 4).astype(dtype)
        a, b = Tensor(left, device=device), Tensor(right, device=device)
        for ours, theirs in (
            (function(a, b), function(left, right)),
            (function(a, 3), function(left, 3)),
            (function(7, b), function(7, right)),
            (function(a, right), function(left, right)),
            (function(left, b), function(left, right)),
        ):
            assert isinstance(ours, Tensor) and ours.shape == theirs.shape
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


def test_operators_on_one(device: Device) -> None:
    array = np.array([[-3, 0, 5]], np.int32)
    x = Tensor(array, device=device)
    for function in (lambda a: -a, lambda a: +a, abs, lambda a: ~a):
        assert np.array_equal(function(x).numpy(), function(array))
    words = Tensor(np.array([1, 2, 255], np.uint8), device=device)
    assert (-words).tolist() == [255, 254, 1] and (words << 1).tolist() == [2, 4, 254]
    assert (1 << Tensor(np.array([1, 2], np.uint8), device=device)).tolist() == [2, 4]


def test_scalars_stay_scalars(device: Device) -> None:
    x = Tensor(2.5, device=device)
    assert (x + 1).sizes == () and (x + 1).item() == 3.5
    assert float(x) == 2.5 and bool(x) and (x * np.ones(2, np.float32)).shape == (2,)
    assert ops.sum(Tensor([1.0, 2.0], device=device)).sizes == ()
    assert list(range(5))[Tensor(3, device=device)] == 3


# ---- the host --------------------------------------------------------------------------------------------------------


def test_to_the_host_and_back(x: Tensor, device: Device) -> None:
    assert np.array_equal(np.asarray(x), ARRAY)
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array_equal(np.from_dlpack(x.T), ARRAY.T)
    assert [row.tolist() for row in x] == ARRAY.tolist() and len(x) == 2
    assert ARRAY[1, 0] in x and -77.5 not in x and ARRAY[0] in x and "text" not in x
    assert np.array_equal(Tensor.from_numpy(ARRAY, device=device).numpy(), ARRAY)
    assert Tensor([True, False], device=device).data_type is DataType.UINT8
    assert Tensor([1.5], device=device).data_type is DataType.FLOAT32
    assert Tensor(np.ones(1), device=device).data_type is DataType.FLOAT64
    assert Tensor([1, 2], "float16", device=device).dtype == np.float16


def test_pickling_is_by_value(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgpu.runtime.device._Default.by_environment", as_device("test", "numpy"))
    result = pickle.loads(pickle.dumps(x[:, 1:]))
    assert np.array_equal(result.numpy(), ARRAY[:, 1:]) and result.device is as_device("test", "numpy")
    for copied in (copy.deepcopy(x), copy.copy(x)):
        copied[0] = 0
        assert np.array_equal(x.numpy(), ARRAY) and not copied[0].numpy().any()


def test_other_devices(x: Tensor, device: Device) -> None:
    other = Device("numpy")
    result = x.to(other)
    assert result.device is other and np.array_equal(result.numpy(), ARRAY) and x.to(device) is x
    assert as_device("test", "numpy") is as_device("test", "numpy")
    with pytest.raises(InvalidArgument, match=r"^a \+ b: b must be on the device of the other operands, .* copies it$"):
        x + result
    with pytest.raises(InvalidArgument, match=r"^softmax: device must be that of the tensors, .* copies them$"):
        ops.softmax(x, device=other)


def test_reprs(x: Tensor, device: Device) -> None:
    assert repr(x[0, 0]) == "Tensor(FLOAT32 [4] on 'numpy': [0., 1., 2., 3.])"
    assert len(repr(Tensor(np.ones((100, 100, 100)), device=device))) < 400
    x.release()
    assert repr(x) == "Tensor(FLOAT32 [2, 3, 4] on 'numpy': released)"


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_loop_of_temporaries_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device, created = Device("numpy"), []
    create = NumPyBackend.create_buffer
    monkeypatch.setattr(
        NumPyBackend, "create_buffer", lambda self, size, label: (created.append(size), create(self, size, label))[1]
    )
    x = Tensor(ARRAY, device=device)

    def step(tensor: Tensor) -> Tensor:
        return ops.softmax(tensor * 2 + 1) - tensor[:, ::-1].T.reshape(2, 3, 4)

    for _ in range(3):
        step(x)
    session, before = session_of(device), len(created)
    bindings = session.bindings
    for _ in range(20):
        step(x)
    assert len(created) == before
    assert session.bindings == bindings
    assert session.calls.info.entries <= 7


def test_copies_are_kept_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device("numpy")
    x = Tensor(ARRAY, device=device)
    run, looked = RecordedCall.run, []

    def looking(self: RecordedCall, session: EagerSession, on: Device, places: Any, label: str, **options: Any) -> Any:
        unused = {identity for memories in session.pool.unused.values() for identity in memories}
        looked.append({id(place[0]) for place in places} & unused)
        return run(self, session, on, places, label, **options)

    monkeypatch.setattr(RecordedCall, "run", looking)
    assert np.array_equal((x[:, 1:, 1:] + ARRAY[:, :2, 1:]).numpy(), ARRAY[:, 1:, 1:] + ARRAY[:, :2, 1:])
    assert looked == [set(), set()]  # a copy of the view, and the sum


def test_unused_memory_is_bounded_and_freed() -> None:
    device = Device("numpy")
    pool, backend = session_of(device).pool, device.backend
    assert isinstance(backend, NumPyBackend)
    big = [pool.take(device, KEPT_BYTES // 4, "big") for _ in range(6)]
    for buffer in big:
        buffer.release()
    assert pool.cached_bytes <= KEPT_BYTES and backend.allocated == pool.cached_bytes
    pool.take(device, KEPT_BYTES, "huge").release()
    assert backend.allocated == pool.cached_bytes
    ops.free_memory(device)
    assert pool.cached_bytes == backend.allocated == 0
    for size in (1, 256, 257, 4096, 5000, 10**6):
        assert size <= rounded(size) <= max(256, size * 9 // 8 + 16) and rounded(size) % 16 == 0


def test_memory_info_counts_tensors_and_unused_buffers() -> None:
    device = Device("numpy", memory_budget=10_000)
    assert ops.memory_info(device) == (0, 0, 10_000)
    x = Tensor(np.zeros(1000, np.float32), device=device)
    info = ops.memory_info(device)
    assert info.allocated - info.unused >= 4000 and info.unused == 0
    del x
    assert ops.memory_info(device) == (info.allocated, info.allocated, 10_000)
    ops.free_memory(device)
    assert ops.memory_info(device) == (0, 0, 10_000)


def test_unused_memory_makes_room() -> None:
    device = Device("numpy", memory_budget=10_000)
    Tensor(np.zeros(2000, np.float32), device=device)
    assert Tensor(np.zeros(1000, np.float64), device=device).size == 1000
    with pytest.raises(OutOfMemory, match=r"^buffer 'a \+ b': .* exceed the memory budget"):
        x = Tensor(np.zeros(1500, np.float32), device=device)
        x + x


def test_operators_that_are_kept_are_bounded() -> None:
    device = Device("numpy")
    x = Tensor(np.ones(4, np.float32), device=device)
    for index in range(CALLS + 10):
        ops.leaky_relu(x, index / 7)
    info = session_of(device).calls.info
    assert (info.entries, info.evictions) == (CALLS, 10)


def test_a_dropped_device_takes_its_memory_with_it() -> None:
    backend = NumPyBackend()
    device = Device.from_backend(backend)
    x = Tensor(ARRAY, device=device)
    assert np.array_equal((x + 1).numpy(), ARRAY + 1)
    assert backend.allocated > 0
    dropped = weakref.ref(device)
    gc.disable()
    try:
        del x, device
        assert dropped() is None and backend.allocated == 0
    finally:
        gc.enable()


def test_a_removed_device() -> None:
    device = Device("numpy")
    x = Tensor(ARRAY, device=device)
    device.remove()
    with pytest.raises(DeviceRemoved, match="is removed"):
        x + 1
    assert repr(x).endswith("gone with its device)")


# ---- refusals --------------------------------------------------------------------------------------------------------


def refusals(x: Tensor, device: Device) -> dict[str, Callable[[], Any]]:
    whole = Tensor([1, 2, 3, 4], device=device)
    return {
        "a + b: sizes must be equal or 1 to broadcast, got [2, 3, 4] of a and [4, 3, 2] of b": lambda: x + x.T,
        "a + b: operands must have a common type, got UINT64 of a and INT64 of b; convert one of them, "
        "such as b.astype('uint64')": (lambda: whole.astype("uint64") + whole),
        "a + b: a number for UINT8 must be an integer between 0 and 255, got 300; convert the tensor with "
        "astype('int64')": (lambda: Tensor([1], "uint8", device=device) + 300),
        "a - b: a and b must not both be masks; a ^ b (logical_xor) is where they differ, a.astype('int64') makes "
        "integers": lambda: (x > 0) - (x > 1),
        "-a: a must not be a mask; ~a inverts it, a.astype('int64') makes integers": lambda: -(x > 0),
        "+a: a must not be a mask; a.astype('int64') makes integers": lambda: +(x > 0),
        "~a: a must be of integers, got FLOAT32; astype('int32') converts values, "
        "reinterpret(sizes, dtype='uint32') reads bits": lambda: ~x,
        "a ** b: exponents of integers must not be negative, got -1; convert the base with astype('float32')": lambda: (
            whole**-1
        ),
        "a ** b: exponents of integers must not be negative, got -2; convert the base with astype('float32')": (
            lambda: whole ** np.array([1, -2, 0, 1])
        ),
        "softmax: axis must be an integer between -3 and 2, for 3 dimensions, got 3": lambda: ops.softmax(x, 3),
        "softmax: x must be a Tensor or an array, got str": lambda: ops.softmax("x"),  # type: ignore[arg-type]
        "softmax: x must be an array of real numbers, got NumPy type object": (
            lambda: ops.softmax(np.array([None, 1]), device=device)
        ),
        "a + b: b must be an array of real numbers, got NumPy type object": lambda: x + np.array([None]),
        "concatenate: arrays[1] must be an array of real numbers, got NumPy type complex128; arrays[1].real "
        "and arrays[1].imag are": (
            lambda: ops.concatenate([x, np.ones(4, complex)])  # type: ignore[list-item]
        ),
        "layer_norm: weight must broadcast to the sizes of x, [2, 3, 4], got [3]": (
            lambda: ops.layer_norm(x, weight=np.ones(3, np.float32))
        ),
        "rms_norm: weight must broadcast to the sizes of x, [2, 3, 4], got [3]": (
            lambda: ops.rms_norm(x, np.ones(3, np.float32))
        ),
        "gather: axis must be an integer between -3 and 2, for 3 dimensions, got 7": (
            lambda: ops.directml.gather(x, whole, axis=7, index_dimensions=1)
        ),
        "resize: mode must be one of nearest_neighbor, linear, got 'cubic'": lambda: ops.resize(x, (4,), mode="cubic"),
        "reduce: function must be one of argmax, argmin, average, l1, l2, log_sum, log_sum_exp, max, min, multiply, "
        "sum, sum_square, got 'total'": lambda: ops.directml.reduce(x, function="total"),
        "element_wise_add: b must be a Tensor or an array, got 'b' of type str": lambda: ops.directml.element_wise_add(
            x, "b"
        ),  # type: ignore[arg-type]
        "Tensor.broadcast_to: sizes must have at most 2^32 - 1 elements, got [1099511627776, 2, 3, 4], "
        "26388279066624 elements": lambda: x.broadcast_to((2**40, 2, 3, 4)),
        "matmul: the last size of a must equal the first of b's matrices, got [2, 3, 4], [2, 3, 4]": (
            lambda: ops.matmul(x, x)
        ),
        "Tensor.reshape: sizes must hold the tensor's 24 elements, got (5, -1)": lambda: x.reshape(5, -1),
        "Tensor.transpose: axes must name all 3 axes, got [0, 1]": lambda: x.transpose(0, 1),
        "Tensor.transpose: axes must name each axis once, got [0, 0, 1]": lambda: x.transpose(0, 0, 1),
        "Tensor.item: the tensor must have one element, got sizes [2, 3, 4]": x.item,
        "Tensor[...]: an index must be between -3 and 2 for axis 1, got 3": lambda: x[0, 3],
        "Tensor[...]: at most 3 indices must be given for [2, 3, 4], got 4": lambda: x[0, 0, 0, 0],
        "Tensor[...]: an index must be between -2 and 1 for axis 0, got 2": lambda: x[[0, 2]],
        "Tensor[...] = value: value must broadcast to [3, 4], got sizes [3]": lambda: x.copy().__setitem__(
            0, whole[:3]
        ),
        "conv2d: stride must be an integer of at least 0, or 2 of them, got (1, 1, 1)": (
            lambda: ops.conv2d(x[None], x[None], stride=(1, 1, 1))
        ),
        "conv2d: x must have 4 dimensions, got sizes [2, 3, 4]": lambda: ops.conv2d(x, x),
        "topk: k must be an integer between 1 and 4, got 9": lambda: ops.topk(x, 9),
    }


def test_rejections_name_the_called_function(x: Tensor, device: Device) -> None:
    for text, call in refusals(x, device).items():
        with raises(InvalidIndex if "an index must be between" in text else InvalidArgument, text):
            call()


def test_released_tensors(x: Tensor) -> None:
    view = x[1:]
    x.release()
    with raises(InvalidState, "softmax: input: the tensor, FLOAT32 [1, 3, 4], is released"):
        ops.softmax(view)
    with raises(InvalidState, "Tensor.numpy: the tensor, FLOAT32 [2, 3, 4], is released"):
        x.numpy()


def test_dtypes_that_adapters_cannot_compute_are_rejected_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device("numpy")

    def refuse(self: NumPyBackend, desc: Any) -> None:
        raise NotSupported(f"{desc.operator}: no such feature")

    monkeypatch.setattr(NumPyBackend, "check", refuse)
    with pytest.raises(NotSupported, match=r"^relu: ACTIVATION_RELU: no such feature$"):
        ops.relu(Tensor([1.0], device=device))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
@pytest.mark.parametrize("shape", [(4, 6), (3, 5), (2,), ()])
def test_arrays_go_in_and_come_out_as_copies(device: Device, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    original = array.copy()
    tensor = Tensor(array, device=device)
    swapped = Tensor(original.astype(original.dtype.newbyteorder("S")), dtype, device=device)
    reversed_rows = Tensor(original[::-1] if shape else original, device=device)
    array[...] = 0
    first, second = tensor.numpy(), tensor.numpy()
    first[...] = 0
    np.testing.assert_array_equal(second, original)
    np.testing.assert_array_equal(swapped.numpy(), original)
    np.testing.assert_array_equal(reversed_rows.numpy(), original[::-1] if shape else original)
    assert (second.dtype, second.shape) == (original.dtype, shape)
