"""Memory of the PyTorch device: views share it, and in-place writes through views change the base, as on the CPU."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

import dmlgpu  # noqa: E402
from dmlgpu.frontends.torch.adapters import device_of  # noqa: E402 - imports torch
from dmlgpu.tensors.session import session_of  # noqa: E402
from tests.unit.frontends.torch import torch_programs as programs  # noqa: E402

FUZZED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
    assert (ours.shape, ours.stride(), ours.storage_offset()) == (
        theirs.shape,
        theirs.stride(),
        theirs.storage_offset(),
    )


@pytest.mark.slow
@FUZZED
@given(programs.shapes(), st.sampled_from(programs.DTYPES), programs.view_steps())
def test_views_show_the_same_elements(shape: Any, dtype: Any, steps: Any) -> None:
    host = programs.numbers(shape, dtype)
    same(programs.views(host.to("dml"), steps), programs.views(host, steps))


@pytest.mark.slow
@FUZZED
@given(programs.shapes(), st.sampled_from(programs.DTYPES), programs.view_steps(), st.integers(0, 2))
def test_writes_through_views_change_the_base(shape: Any, dtype: Any, steps: Any, kind: int) -> None:
    host = programs.numbers(shape, dtype)
    base = host.to("dml")
    theirs, ours = programs.views(host, steps), programs.views(base, steps)
    if programs.may_overlap(theirs):
        return
    values = programs.numbers(tuple(theirs.shape), dtype, seed=1)
    for target, source in ((theirs, values), (ours, values.to("dml"))):
        if kind == 0:
            target.copy_(source)
        elif kind == 1:
            target.fill_(1)
        else:
            target.mul_(source)
    torch.testing.assert_close(base.cpu(), host, rtol=0, atol=0)


@FUZZED
@given(programs.shapes(), programs.view_steps(), programs.view_steps())
def test_copies_between_views_of_one_tensor(shape: Any, first: Any, second: Any) -> None:
    host = programs.numbers(shape, torch.float32)
    base = host.to("dml")
    theirs, ours = programs.views(host, first), programs.views(base, first)
    if programs.may_overlap(theirs):
        return
    source = programs.views(host, second).clone()
    if source.numel() < theirs.numel():
        return
    values = source.flatten()[: theirs.numel()].reshape(theirs.shape)
    theirs.copy_(values)
    ours.copy_(programs.views(base, second).flatten()[: ours.numel()].reshape(ours.shape))
    torch.testing.assert_close(base.cpu(), host, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", programs.DTYPES)
@pytest.mark.parametrize("start", range(5))
def test_writes_at_any_offset(dtype: Any, start: int) -> None:
    host = programs.numbers((11,), dtype)
    base = host.to("dml")
    for x in (host, base):
        x[start : start + 3] = x[6:9].clone()
        x[start::4].fill_(1)
    torch.testing.assert_close(base.cpu(), host, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.complex64])
def test_repeated_writes_through_views(dtype: Any) -> None:
    """Later calls repeat the write of the first one: at other rows, of other memory, of operands in the same memory."""
    host = [torch.arange(24).reshape(6, 4).to(dtype) + offset for offset in (0, 1)]
    ours = [x.to("dml") for x in host]
    for rows in ((1, 2), (3, 4), (1, 2), (4, 1), (2, 2)):
        for tensors in (host, ours, ours[::-1], host[::-1]):
            x, other = tensors
            x[rows[0]].add_(x[rows[1]], alpha=2)
            x[rows[0]].sub_(other[rows[1]])
            x[:, 1].mul_(other[:, rows[1] % 4])
            x[1:3, 1:].add_(1)
            x.view(-1)[rows[0] : rows[0] + 3].add_(other.view(-1)[rows[1] : rows[1] + 3])
            x.div_(4, **({} if dtype.is_floating_point or dtype.is_complex else {"rounding_mode": "floor"}))
        for mine, reference in zip(ours, host, strict=True):
            torch.testing.assert_close(mine.cpu(), reference, rtol=1e-2 if dtype is torch.float16 else 1e-5, atol=1e-5)


_KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int64, torch.complex64]


@pytest.mark.parametrize("kind", _KINDS)
def test_copies_into_views_convert(kind: Any) -> None:
    """Copies of all dtypes into views, of memory of their own or of the target, once and repeated."""
    numbers = torch.arange(-3.0, 5).reshape(2, 4) * 1.5
    for target in _KINDS:
        if kind.is_complex and not target.is_complex:
            continue  # warns about the imaginary parts
        for start in (0, 1, 2):
            results = []
            for device in ("cpu", "dml"):
                y = numbers.abs().to(kind).to(device)
                x = torch.ones(4, 5, dtype=target, device=device)
                x[start, :4] = y[1]
                x[:2, start : start + 2] = y[:, 1:3].flip(1)
                x[:, 4] = y[0, start]
                x[2:, 1:] = x[:2, :4]
                results.append(x.cpu())
            torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_a_copy_into_a_view_is_one_kernel(kind: Any) -> None:
    x, y = torch.zeros(4, 8, device="dml"), torch.ones(8, device="dml").to(kind)
    x[1] = y
    with dmlgpu.profile() as profile:
        x[2] = y
    assert len(profile.kernels) == 1
    assert x.cpu()[1:3].eq(1).all()


def test_the_host_forgets_indices_at_a_repeated_write() -> None:
    table = torch.arange(4.0, device="dml")
    for _ in range(3):
        places = torch.tensor([9, 3]).to("dml")
        places[:1].sub_(8)
        assert table[places].tolist() == [1, 3]


def test_a_write_into_elements_that_share_places_is_rejected_as_by_the_cpu() -> None:
    x = torch.zeros(1, 3, device="dml").expand(2, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.fill_(1)


def test_overlapping_strides_take_writes() -> None:
    host = torch.arange(5.0)
    base = host.to("dml")
    for x in (host, base):
        x.as_strided((2, 3), (1, 1)).fill_(7)
    torch.testing.assert_close(base.cpu(), host)


def test_a_view_of_other_bits() -> None:
    x = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(x.to("dml").view(torch.int32).cpu(), x.view(torch.int32))
    torch.testing.assert_close(x.to("dml").view(torch.uint8).cpu(), x.view(torch.uint8))


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "full_like"])
def test_tensors_like_others(name: str) -> None:
    arguments = (2.5,) if name == "full_like" else ()
    options: list[dict[str, Any]] = [
        {}, {"dtype": torch.int64}, {"dtype": torch.bool}, {"dtype": torch.complex64}, {"device": "cpu"},
        {"memory_format": torch.contiguous_format}, {"requires_grad": True},
    ]  # fmt: skip
    for host in (torch.randn(3, 4), torch.randn(4, 3).T, torch.ones(2, 3, dtype=torch.int32), torch.ones(0, 2)):
        for option in options:
            if option.get("requires_grad") and not host.dtype.is_floating_point:
                continue
            for _ in range(2):
                ours, theirs = (getattr(torch, name)(x, *arguments, **option) for x in (host.to("dml"), host))
                same(ours, theirs)
                assert ours.device.type == option.get("device", "dml")
                assert ours.requires_grad == theirs.requires_grad
                ours.detach().fill_(1)  # of its own memory
    with pytest.raises(RuntimeError, match="cannot be converted to type float"):
        torch.full_like(torch.ones(2, device="dml"), 1j)


def test_zeros_like_a_tensor_take_memory_once() -> None:
    x = torch.ones(1 << 18, device="dml")
    torch.zeros_like(x)
    torch.dml.empty_cache()
    before = torch.dml.memory_reserved()
    zeros = torch.zeros_like(x)
    assert torch.dml.memory_reserved() - before == zeros.nbytes


def test_results_do_not_share_memory_with_operands() -> None:
    x = torch.ones(3, device="dml")
    copies = [x.clone(), x.to(torch.float32, copy=True), x + 0, torch.relu(x), x.reshape(3).clone()]
    for y in copies:
        y.zero_()
    assert x.tolist() == [1, 1, 1]


def test_aliases() -> None:
    x = torch.zeros(2, 2, device="dml")
    detached, alias = x.detach(), x.view(4)
    detached[0, 0] = 1
    alias[3] = 2
    assert x.tolist() == [[1, 0], [0, 2]]
    other = torch.zeros(2, 2, device="dml")
    other.data = x
    other.add_(1)
    assert x.tolist() == [[2, 1], [1, 3]]


def test_set_and_resize() -> None:
    x = torch.arange(6.0).to("dml")
    y = torch.empty(0, device="dml").set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1, 2], [3, 4]]
    y.fill_(9)
    assert x.tolist() == [0, 9, 9, 9, 9, 5]
    assert x.clone().resize_(8)[:6].tolist() == x.tolist()
    assert x.clone().resize_(2).tolist() == [0, 9]
    assert torch.empty(0, device="dml").set_(x).data_ptr() == x.data_ptr()


def test_out() -> None:
    x, out = torch.ones(3, device="dml"), torch.zeros(3, device="dml")
    assert torch.add(x, x, out=out) is out and out.tolist() == [2, 2, 2]
    small = torch.empty(0, device="dml")
    torch.add(x, x, out=small)
    assert small.tolist() == [2, 2, 2]
    base = torch.zeros(6, device="dml")
    torch.add(x, x, out=base[::2])
    assert base.tolist() == [2, 0, 2, 0, 2, 0]
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(x, x, out=torch.zeros(2, device="dml"))
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        torch.add(x, x, out=torch.zeros(3, dtype=torch.int64, device="dml"))


def test_storages() -> None:
    x = torch.tensor([1, 2], dtype=torch.int16).to("dml")
    storage = x.untyped_storage()
    assert (storage.nbytes(), storage.tolist(), storage.device.type) == (4, [1, 0, 2, 0], "dml")
    storage[2] = 5
    assert x.tolist() == [1, 5]
    assert storage.clone().tolist() == [1, 0, 5, 0] and storage.cpu().tolist() == [1, 0, 5, 0]
    assert torch.UntypedStorage(8, device="dml").nbytes() == 8
    assert storage.resize_(0).nbytes() == 0
    with pytest.raises(RuntimeError, match=r"of 4 bytes cannot grow to 100; tensor.resize_\(\)"):
        storage.resize_(100)


def test_pickle_save_load_and_deepcopy() -> None:
    x = torch.arange(4.0).to("dml")
    views = [x, x[1:3]]
    assert [y.tolist() for y in pickle.loads(pickle.dumps(views))] == [[0, 1, 2, 3], [1, 2]]
    restored = copy.deepcopy(views)
    restored[1].fill_(9)
    assert restored[0].tolist() == [0, 9, 9, 3] and restored[0].device.type == "dml"
    assert x.tolist() == [0, 1, 2, 3]
    file = io.BytesIO()
    torch.save({"x": x, "p": torch.nn.Parameter(x)}, file)
    for location, kind in ((None, "dml"), ("cpu", "cpu"), ("dml:0", "dml")):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert (loaded["x"].device.type, loaded["x"].tolist()) == (kind, [0, 1, 2, 3])
        assert type(loaded["p"]) is torch.nn.Parameter
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    assert torch.load(file, map_location="dml").device.type == "dml"


@pytest.mark.slow
def test_memory_returns() -> None:
    gc.collect()
    before = torch.dml.memory_allocated()
    x = torch.zeros(1000, device="dml")
    assert torch.dml.memory_allocated() == before + 4000
    y = x[:10]
    del x
    assert torch.dml.memory_allocated() == before + 4000
    del y
    assert torch.dml.memory_allocated() == before
    assert torch.dml.max_memory_allocated() >= before + 4000


@pytest.mark.slow
def test_thousands_of_steps_take_no_more_memory() -> None:
    layer = torch.nn.Linear(4, 4).to("dml")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    x = torch.ones(2, 4).to("dml")

    def step() -> None:
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    for _ in range(5):
        step()
    gc.collect()
    before, objects = torch.dml.memory_allocated(), len(gc.get_objects())
    for _ in range(1000):
        step()
    gc.collect()
    assert torch.dml.memory_allocated() <= before  # less if memory of earlier tests was released meanwhile
    assert len(gc.get_objects()) < objects + 500


def test_repeated_calls_keep_the_order_of_writes_and_bind_once() -> None:
    host = torch.arange(12.0).reshape(3, 4)
    query = torch.arange(48.0).reshape(1, 2, 6, 4) / 48

    def step(x: Any, query: Any) -> list[Any]:
        x.mul_(0.5)
        row = x[1]
        before = row.clone()
        row.add_(x[0])
        x.copy_(x.t().contiguous().view(3, 4) + 1)
        norm = torch.nn.functional.layer_norm(x, (4,))
        attention = torch.nn.functional.scaled_dot_product_attention(query, query, query)
        return [before, row * 1, x.half(), torch.zeros_like(x), norm, attention]

    ours, same_query, session = host.to("dml"), query.to("dml"), session_of(device_of(0))
    for count in range(12):
        bindings = session.bindings
        results, expected = step(ours, same_query), step(host, query)
        for result, other in zip(results, expected, strict=True):
            torch.testing.assert_close(result.cpu(), other)
        del results, result
        assert count < 9 or session.bindings - bindings <= 1  # of more than two places in turn


def test_threads_get_their_own_results_and_addresses() -> None:
    def work(number: int) -> set[int]:
        x, addresses = torch.full((4,), float(number)).to("dml"), set()
        results = []
        for step in range(50):
            results.append(torch.relu(x * 2 + step))
            addresses.add(results[-1].data_ptr())
        assert [result[3].item() for result in results] == [2 * number + step for step in range(50)]
        return addresses

    with ThreadPoolExecutor(4) as pool:
        addresses = list(pool.map(work, range(4)))
    assert len(set().union(*addresses)) == 200


@pytest.mark.parametrize("dtype", programs.DTYPES)
@pytest.mark.parametrize(("shape", "strides"), [((), ()), ((2, 0), (1, 1)), ((2, 3), (1, 2)), ((2, 3), (8, 2))])
def test_new_tensors_have_any_strides(dtype: Any, shape: Any, strides: Any) -> None:
    x = torch.empty_strided(shape, strides, dtype=dtype, device="dml")
    y = torch.empty_strided(shape, strides, dtype=dtype)
    assert (x.shape, x.stride(), x.dtype, x.device.index) == (y.shape, y.stride(), dtype, 0)
    assert x.untyped_storage().nbytes() == y.untyped_storage().nbytes()


def test_out_of_memory_is_torchs() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="dml out of memory"):
        torch.empty(1 << 44, dtype=torch.uint8, device="dml")


def test_printing() -> None:
    x = torch.arange(3.0).to("dml")
    assert repr(x) == "tensor([0., 1., 2.], device='dml:0')"
    assert "device='dml:0'" in repr(torch.zeros(5000, device="dml"))
    assert repr(torch.nn.Parameter(x)).endswith("device='dml:0', requires_grad=True)")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64, torch.bool], ids=str)
def test_empty_tensors_have_the_strides_of_the_cpu_after_a_copy(kind: Any) -> None:
    for shape in (0,), (0, 5), (2, 0, 3):
        x = torch.empty(shape, dtype=kind)
        for copied in x.to("dml").cpu(), x.to("dml").conj().clone().cpu():
            assert (copied.stride(), copied.dtype) == (x.stride(), kind), shape


def test_host_arrays() -> None:
    x = torch.arange(3.0).to("dml")
    with pytest.raises(TypeError, match=r"can't convert dml:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        x.numpy()
    assert torch.from_dlpack(x).tolist() == [0, 1, 2]
    assert torch.ones(2).pin_memory().tolist() == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.ones(2).to("dml", non_blocking=True).to("cpu", non_blocking=True).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.complex32])
def test_dtypes_that_are_rejected(dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"the dml device does not support {dtype}"):
        torch.ones(2, dtype=dtype).to("dml")


def test_float64_is_moved_and_cast() -> None:
    x = torch.tensor([1.5, -2.0], dtype=torch.float64)
    assert x.to("dml").cpu().equal(x)
    assert x.to("dml").float().tolist() == [1.5, -2.0]
