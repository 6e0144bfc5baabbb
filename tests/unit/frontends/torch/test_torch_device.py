"""The PyTorch device as a whole: module, autograd, optimizers, adapters, errors, fallback, torch_directml."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")
functional = torch.nn.functional

ROOT = Path(__file__).parents[4]


def run(code: str, *arguments: str, **environment: str) -> str:
    """Return the output of a script in a process of its own, on the adapter numpy."""
    result = subprocess.run(
        [sys.executable, *(arguments or ("-c", textwrap.dedent(code)))],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "DMLGPU_ADAPTER": "numpy", "PYTHONPATH": str(ROOT), **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# ---- torch.dml -------------------------------------------------------------------------------------------------------


def test_the_module() -> None:
    assert torch.dml.is_available() and torch.dml.device_count() >= 1
    assert torch.device("dml", 0) == torch.device("dml:0") == torch.device("privateuseone:0")
    assert [torch.dml.device_name(index) for index in range(torch.dml.device_count())] == [
        torch.dml.get_device_name(f"dml:{index}") for index in range(torch.dml.device_count())
    ]
    with pytest.raises(RuntimeError, match="dml device 99 does not exist: there are"):
        torch.ones(1, device="dml:99")
    with pytest.raises(RuntimeError, match="Expected a dml device, but got: cpu"):
        torch.dml.set_device("cpu")
    torch.dml.synchronize()
    torch.accelerator.synchronize()
    assert torch.accelerator.current_accelerator().type == "dml"
    assert torch.ones(1, device="dml").is_dml and not torch.ones(1).is_dml


def test_seeds() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(7)
        draws.append(torch.rand(4, device="dml").tolist() + torch.rand(4, device="dml").tolist())
    assert draws[0] == draws[1] and draws[0][:4] != draws[0][4:]
    state = torch.dml.get_rng_state()
    first = torch.randn(3, device="dml").tolist()
    torch.dml.set_rng_state(state)
    assert torch.randn(3, device="dml").tolist() == first
    with torch.random.fork_rng(devices=[0], device_type="dml"):
        torch.rand(1, device="dml")
    assert torch.dml.get_rng_state().tolist() != state.tolist()
    with pytest.raises(RuntimeError, match=r"must be a torch\.ByteTensor of 16 bytes"):
        torch.dml.set_rng_state(torch.zeros(3))
    generator = torch.Generator().manual_seed(3)
    assert torch.rand(2, device="dml", generator=generator).tolist() != torch.rand(2, device="dml").tolist()


def test_modules_move() -> None:
    layer = torch.nn.Linear(3, 2)
    weight = layer.weight.detach().clone()
    assert layer.to("dml").weight.device.type == "dml" and type(layer.weight) is torch.nn.Parameter
    assert layer.cpu().weight.equal(weight) and layer.dml().weight.is_dml


# ---- autograd --------------------------------------------------------------------------------------------------------


def test_modules_move_while_gradients_may_still_be_computed() -> None:
    """Parameters stay the same objects, as an optimizer and tied layers need."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 3)
    expected = model(x)
    expected.sum().backward()
    gradient = model[0].weight.grad.clone()
    model.to("dml")
    assert model[1].weight is model[0].weight is optimizer.param_groups[0]["params"][0]
    assert model[0].weight.grad.is_dml
    optimizer.zero_grad()
    actual = model(x.to("dml"))
    actual.sum().backward()
    torch.testing.assert_close(actual.cpu(), expected)
    torch.testing.assert_close(model[0].weight.grad.cpu(), gradient)
    assert model.cpu()(x).allclose(expected)


@pytest.mark.slow
def test_the_accelerator_counts_memory() -> None:
    before = torch.accelerator.memory_allocated()
    x = torch.empty(1000, device="dml")
    assert torch.accelerator.memory_allocated() == before + 4000 <= torch.accelerator.max_memory_allocated()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == before + 4000
    torch.accelerator.empty_cache()
    assert x.dtype in torch.accelerator.get_device_capability()["supported_dtypes"]
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free < total and torch.dml.mem_get_info() == (free, total)  # of numpy's budget
    torch.accelerator.empty_host_cache()
    torch.accelerator.reset_accumulated_memory_stats()
    with pytest.raises(RuntimeError, match="max_memory_allocated"):
        torch.accelerator.max_memory_reserved()


def test_data_parallel_calls_the_module() -> None:
    layer = torch.nn.Linear(2, 2)
    x = torch.ones(3, 2)
    assert torch.nn.DataParallel(layer)(x).equal(layer(x))
    assert torch.nn.DataParallel(layer.to("dml"))(x.to("dml")).is_dml


def test_gradients_accumulate_and_graphs_are_retained() -> None:
    x = torch.tensor([1.0, -2.0, 3.0], device="dml", requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, -8, 12]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    (second,) = torch.autograd.grad(torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum(), x)
    assert second.tolist() == [6, -12, 18]


def test_a_saved_tensor_that_was_changed_in_place_is_noticed() -> None:
    x = torch.ones(3, device="dml", requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
        x.add_(1)


def test_in_place_writes_through_views_have_gradients() -> None:
    gradients = []
    for device in ("cpu", "dml"):
        x = torch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        y = x * 2
        y[:, 1].mul_(3)
        y.t()[0] = y[1, 2]
        y.pow(2).sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(*gradients)


def test_backward_in_threads() -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        x = torch.full((8,), float(number), device="dml", requires_grad=True)
        for _ in range(20):
            x.grad = None
            (x * x * x).sum().backward()
        results.append((number, x.grad.tolist()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(index, [3.0 * index**2] * 8) for index in range(4)]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_optimizers_follow_the_cpu(name: str, foreach: bool) -> None:
    losses = []
    for device in ("cpu", "dml"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        x, y = torch.randn(16, 4), torch.randn(16, 1)
        model, x, y = model.to(device), x.to(device), y.to(device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.02, foreach=foreach)
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"fused": True, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("SGD", {"fused": True, "momentum": 0.9, "dampening": 0.2, "maximize": True}),
        ("Adam", {}),
        ("Adam", {"fused": True, "amsgrad": True, "weight_decay": 0.1}),
        ("AdamW", {"fused": True, "maximize": True}),
        ("Adagrad", {"fused": True, "lr_decay": 0.1, "weight_decay": 0.1}),
    ],
)
def test_scaled_gradients_and_fused_optimizers_follow_the_cpu(name: str, options: dict[str, Any]) -> None:
    """The second loss is infinite, so its step is skipped and the scale falls; it grows after three others."""
    results, scales = [], []
    for device in ("cpu", "dml"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        x = torch.randn(16, 4).to(device)
        model = model.to(device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.02, **options)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=3)
        for step in range(5):
            optimizer.zero_grad()
            loss = (model(x) * (float("inf") if step == 1 else 1) - 1).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu())
        scales.append(scaler.get_scale())
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)
    assert scales == [1024.0, 1024.0]


def test_a_checkpoint_repeats_random_numbers() -> None:
    model = torch.nn.Dropout(0.5)
    x = torch.ones(64, device="dml", requires_grad=True)
    for is_reentrant in (False, True):
        x.grad = None
        y = torch.utils.checkpoint.checkpoint(lambda x: model(x).square(), x, use_reentrant=is_reentrant)
        y.sum().backward()
        assert torch.equal(x.grad, 2 * y)  # y is 4 or 0, and its gradient is 8 or 0


def test_a_normalized_weight_has_gradients() -> None:
    gradients = []
    for device in ("cpu", "dml"):
        torch.manual_seed(0)
        layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2)).to(device)
        layer(torch.ones(1, 3, device=device)).square().sum().backward()
        gradients.append([parameter.grad.cpu() for parameter in layer.parameters()])
    for actual, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(actual, expected)


def test_autocast() -> None:
    a = torch.ones(2, 2, device="dml")
    with torch.autocast("dml", dtype=torch.float16):
        assert (a @ a).dtype is torch.float16
        assert torch.softmax((a @ a), -1).dtype is torch.float32
        assert (a + a).dtype is torch.float32
    assert (a @ a).dtype is torch.float32


# ---- plans: calls that repeat what an earlier call executed ----------------------------------------------------------


def test_a_repeated_call_computes_with_its_own_arguments() -> None:
    x, y = torch.tensor([1.0, -0.0], device="dml"), torch.tensor([3.0, 4.0], device="dml")
    for _ in range(3):
        assert [(x + x).tolist(), (x + y).tolist(), (y + y).tolist()] == [[2, 0], [4, 4], [6, 8]]
        assert [(y * 2).tolist(), (y * 3).tolist(), (y / 2).tolist()] == [[6, 8], [9, 12], [1.5, 2]]
        assert [str((x[1] * number).item()) for number in (1.0, -1.0, 0.0, -0.0)] == ["-0.0", "0.0", "-0.0", "0.0"]
        assert torch.eq(torch.tensor([1, 2], device="dml"), True).tolist() == [True, False]
        assert (torch.tensor([1, 2], device="dml") + 1.0).dtype is torch.float32
        assert (torch.tensor([1, 2], device="dml") + 1).dtype is torch.int64


def test_a_repeated_call_sees_which_operands_share_memory() -> None:
    base = torch.arange(8.0).to("dml")
    for start in (0, 4, 1, 4, 0):
        assert (base[start : start + 4] + base[:4]).tolist() == [2.0 * index + start for index in range(4)]
        assert (base[:4] - base[start : start + 4]).tolist() == [-start] * 4
    halves = torch.arange(8, dtype=torch.float16).to("dml")
    for start in (0, 1, 2, 3, 1):
        assert (halves[start : start + 3] * 2).tolist() == [2.0 * (index + start) for index in range(3)]


def test_repeated_draws_differ() -> None:
    x = torch.zeros(16, device="dml")
    assert len({tuple(torch.rand_like(x).tolist()) for _ in range(4)}) == 4
    assert len({tuple(torch.nn.functional.dropout(x + 1).tolist()) for _ in range(6)}) > 1


def test_repeated_results_are_new_memory() -> None:
    x = torch.ones(3, device="dml")
    results = [x + 1 for _ in range(3)]
    results[0].zero_()
    results[1].mul_(5)
    assert [result.tolist() for result in results] == [[0, 0, 0], [10, 10, 10], [2, 2, 2]]


# ---- several adapters ------------------------------------------------------------------------------------------------


def two_adapters() -> None:
    if torch.dml.device_count() < 2:
        pytest.skip("there is one adapter only")


def test_tensors_of_two_adapters_move_and_do_not_mix() -> None:
    two_adapters()
    x = torch.ones(2, device="dml:0")
    y = torch.arange(2.0).to("dml:1")
    assert (y.device.index, (y + y).tolist(), y.to("dml:0").device.index) == (1, [0, 2], 0)
    y[1:] = 5
    assert y.tolist() == [0, 5]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + y
    x.copy_(y)
    assert x.tolist() == [0, 5]


def test_the_current_device() -> None:
    two_adapters()
    with torch.dml.device(1):
        assert torch.dml.current_device() == 1
        assert torch.zeros(1, device="dml").device.index == 1
    assert torch.dml.current_device() == 0 and torch.zeros(1, device="dml").device.index == 0


def test_gradients_reach_tensors_of_every_adapter() -> None:
    """A network of which one half is on another adapter, whose loss moves to the first one."""
    two_adapters()
    last = f"dml:{torch.dml.device_count() - 1}"

    def gradients(first: str, second: str) -> list[Any]:
        x = torch.arange(6.0).reshape(2, 3).to(first).requires_grad_()
        weight = torch.ones(3, 2).to(second).requires_grad_()
        ((x * x).to(second) @ weight).exp().log().to(first).pow(2).sum().backward()
        return [x.grad.cpu(), weight.grad.cpu()]

    for first, second in (("dml:0", last), (last, "dml:0"), (last, last), ("cpu", last)):
        torch.testing.assert_close(gradients(first, second), gradients("cpu", "cpu"))


TRAINING = """
    import torch

    def losses(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(64, 10),
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        images, labels = torch.randn(16, 1, 8, 8).to(device), torch.randint(10, (16,)).to(device)
        results = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            results.append(loss.item())
        return torch.tensor(results)

    for device in ("dml", f"dml:{torch.dml.device_count() - 1}"):
        torch.testing.assert_close(losses(device), losses("cpu"), rtol=1e-3, atol=1e-3)
    print(torch.dml.device_name())
"""


@pytest.mark.slow
@pytest.mark.parametrize("index", range(3))
def test_training_on_each_adapter(index: int) -> None:
    """Any adapter that DMLGPU_ADAPTER names is dml:0."""
    if index >= torch.dml.device_count():
        pytest.skip("there are fewer adapters")
    name = torch.dml.device_name(index)
    assert run(TRAINING, DMLGPU_ADAPTER=name) == name


# ---- errors ----------------------------------------------------------------------------------------------------------


def filled(device: str, *sizes: int, dtype: Any = torch.float32) -> Any:
    """A tensor of ones."""
    return torch.ones(*sizes, dtype=dtype, device=device)


HALF, LONG, BOOL = torch.float16, torch.int64, torch.bool
WRONG_SHAPES: dict[str, Callable[..., Any]] = {
    "add": lambda x: x(2, 3) + x(4),
    "add_": lambda x: x(2).add_(x(2, 2)),
    "matmul": lambda x: x(2, 3) @ x(2, 3),
    "addmm": lambda x: torch.addmm(x(7), x(2, 3), x(3, 4)),
    "bmm": lambda x: torch.bmm(x(2, 3, 4), x(3, 4, 5)),
    "linear": lambda x: functional.linear(x(2, 3), x(4, 5)),
    "conv2d": lambda x: functional.conv2d(x(1, 3, 8, 8), x(4, 2, 3, 3)),
    "conv2d of a small input": lambda x: functional.conv2d(x(1, 3, 2, 2), x(4, 3, 3, 3)),
    "max_pool2d": lambda x: functional.max_pool2d(x(1, 3, 2, 2), 3),
    "avg_pool2d": lambda x: functional.avg_pool2d(x(1, 3, 2, 2), 3),
    "avg_pool2d of a matrix": lambda x: functional.avg_pool2d(x(3, 2), 3),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x(3, 2), 3),
    "layer_norm": lambda x: functional.layer_norm(x(2, 3), (4,)),
    "batch_norm": lambda x: functional.batch_norm(x(2, 3), x(4), x(4)),
    "embedding": lambda x: functional.embedding(x(2, dtype=LONG), x(3)),
    "cross_entropy": lambda x: functional.cross_entropy(x(2, 3), x(3, dtype=LONG)),
    "weights of cross_entropy": lambda x: functional.cross_entropy(x(2, 3), x(2, dtype=LONG), x(4)),
    "lstm": lambda x: torch.nn.LSTM(3, 4).to(x(1).device)(x(5, 2, 4)),
    "mask of attention": lambda x: functional.scaled_dot_product_attention(*[x(1, 2, 3, 4)] * 3, x(2, 2)),
    "interpolate": lambda x: functional.interpolate(x(1, 2, 3, 3), size=(0, 4)),
    "pad": lambda x: functional.pad(x(1, 2, 3), (4, 4), mode="reflect"),
    "sum": lambda x: x(2).sum(3),
    "softmax": lambda x: x(2, 3).softmax(5),
    "view": lambda x: x(2).view(3),
    "select": lambda x: x(2)[5],
    "cat": lambda x: torch.cat([x(2, 2), x(3, 3)]),
    "copy_": lambda x: x(2, 3).copy_(x(4)),
    "item": lambda x: x(2).item(),
    "flip": lambda x: x(3).flip(1),
    "roll": lambda x: x(3).roll((1,), (0, 1)),
    "trace": lambda x: x(3).trace(),
    "cross": lambda x: torch.linalg.cross(x(3), x(4)),
    "gather": lambda x: x(2, 3).gather(0, x(2, 4, dtype=LONG)),
    "index_select": lambda x: x(2, 3).index_select(0, x(2, 2, dtype=LONG)),
    "index_fill": lambda x: x(3).index_fill(0, x(2, 2, dtype=LONG), 1.0),
    "topk": lambda x: x(3).topk(5),
    "kthvalue": lambda x: x(3).kthvalue(5),
    "histc": lambda x: x(3).histc(0),
    "arange": lambda x: torch.arange(0, 3, -1, device=x(1).device),
}
WRONG_DTYPES: dict[str, Callable[..., Any]] = {
    "add_": lambda x: x(2, dtype=LONG).add_(0.5),
    "mm": lambda x: torch.mm(x(2, 3), x(3, 3, dtype=HALF)),
    "dot": lambda x: torch.dot(x(3), x(3, dtype=HALF)),
    "linear": lambda x: functional.linear(x(2, 3), x(4, 3, dtype=HALF)),
    "conv2d": lambda x: functional.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3, dtype=HALF)),
    "index": lambda x: x(2, 3)[x(2)],
    "where": lambda x: torch.where(x(2), x(2), x(2)),
    "masked_fill": lambda x: x(3).masked_fill(x(3), 1.0),
    "cross_entropy": lambda x: functional.cross_entropy(x(2, 3), x(2, dtype=torch.int32)),
    "clamp": lambda x: x(3).clamp(),
    "mean": lambda x: x(2, dtype=LONG).mean(),
}


@pytest.mark.parametrize("name", [*WRONG_SHAPES, *(f"dtypes of {name}" for name in WRONG_DTYPES)])
def test_errors_are_those_of_the_cpu(name: str) -> None:
    call = WRONG_SHAPES.get(name) or WRONG_DTYPES[name.removeprefix("dtypes of ")]
    messages = []
    for device in ("cpu", "dml", "dml"):  # a wrong call is not cached as a valid one
        with pytest.raises((RuntimeError, IndexError, ValueError)) as caught:
            call(functools.partial(filled, device))
        messages.append((caught.type, str(caught.value).splitlines()[0]))
    assert messages[1] == messages[2] == messages[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x(3) & x(3),
        lambda x: x(3).bitwise_not(),
        lambda x: x(3, dtype=LONG).softmax(0),
        lambda x: functional.gelu(x(3, dtype=LONG)),
        lambda x: x(3, dtype=BOOL).abs(),
        lambda x: functional.threshold(x(3, dtype=BOOL), 1, 2),
        lambda x: x(3, dtype=BOOL).relu(),
        lambda x: functional.relu6(x(3, dtype=BOOL)),
        lambda x: -x(3, dtype=BOOL),
        lambda x: x(3, dtype=BOOL) - x(3, dtype=BOOL),
    ],
)
def test_dtypes_that_an_operator_lacks_are_rejected_as_by_the_cpu(call: Any) -> None:
    for device in ("cpu", "dml"):  # a RuntimeError, which is a NotImplementedError for some operators
        with pytest.raises(RuntimeError, match=r"not (implemented for|supported)"):
            call(functools.partial(filled, device))


def test_an_in_place_overload_has_more_defaults_than_the_functional_one() -> None:
    assert set(torch.empty(100, device="dml").bernoulli_().tolist()) == {0.0, 1.0}


def test_attention_rejects_several_dtypes() -> None:
    x = torch.ones(1, 1, 2, 2, device="dml")
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        functional.scaled_dot_product_attention(x, x.half(), x)


def test_tensors_of_two_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device="dml") + torch.ones(2)
    assert (torch.ones(2, device="dml") + torch.tensor(1.0)).tolist() == [2, 2]


FALLBACK = """
    import warnings, torch, dmlgpu.torch
    warnings.simplefilter("always")
    x = torch.eye(2).to("dml")
    with warnings.catch_warnings(record=True) as seen:
        for _ in range(2):
            print(torch.linalg.householder_product(x, x[0]).abs().tolist(), x.device)
    print([str(entry.message) for entry in seen if "CPU" in str(entry.message)])
"""


def test_missing_operators_are_rejected_by_name() -> None:
    with pytest.raises(
        NotImplementedError, match=r"aten::linalg_householder_product is not implemented for the dml device \(inputs: "
    ):
        torch.linalg.householder_product(torch.ones(2, 2, device="dml"), torch.ones(2, device="dml"))


def test_a_rejection_describes_tensors_in_lists() -> None:
    from dmlgpu.frontends.torch.dispatch import fallback

    x = torch.ones(2, device="dml")
    with pytest.raises(NotImplementedError, match=r"inputs: float32\[2\], float32\[2\]\)"):
        fallback(torch.ops.aten.cat.default, [x, x])


def test_missing_operators_of_other_libraries_keep_their_namespace() -> None:
    library = torch.library.Library("a_library", "FRAGMENT")
    library.define("an_operator(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match=r"^a_library::an_operator is not implemented for the dml device"):
        torch.ops.a_library.an_operator(torch.ones(2, device="dml"))


@pytest.mark.slow
def test_the_fallback_lists_each_operator_once() -> None:
    lines = run(FALLBACK, DMLGPU_TORCH_FALLBACK="1").splitlines()
    assert lines[:2] == ["[[0.0, 0.0], [0.0, 1.0]] dml:0"] * 2
    assert lines[2].count("is computed on the CPU: the dml device does not have it") == 1


@pytest.mark.slow
def test_a_removed_device_says_so_and_the_next_tensor_opens_it_again() -> None:
    code = """
    import torch, dmlgpu.torch
    from dmlgpu.frontends.torch import adapters
    x = torch.ones(2, device="dml")
    adapters.device_of(0).remove("the test removed it")
    try:
        print((x + x).tolist())
    except torch.AcceleratorError as error:
        print("the test removed it" in str(error))
    print(torch.ones(2, device="dml").tolist())
    """
    assert run(code).splitlines() == ["True", "[1.0, 1.0]"]


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_data_loader_workers(method: str, tmp_path: Path) -> None:
    """Workers prepare batches on the CPU, however they are started, after the device is in use."""
    script = tmp_path / "script.py"  # processes that are spawned import it
    script.write_text(
        "import sys, torch, dmlgpu.torch\n"
        "if __name__ == '__main__':\n"
        "    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1))\n"
        "    torch.ones(1, device='dml').sum().item()\n"
        "    for pin in (False, True):\n"
        "        options = {'num_workers': 2, 'pin_memory': pin, 'multiprocessing_context': sys.argv[1]}\n"
        "        loader = torch.utils.data.DataLoader(data, batch_size=4, **options)\n"
        "        print(sum(batch.to('dml', non_blocking=True).sum().item() for (batch,) in loader))\n"
    )
    assert run("", str(script), method) == "28.0\n28.0"


# ---- registration ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_entry_point_registers_the_device_once() -> None:
    code = (
        "from dmlgpu.frontends import torch_backend; torch_backend.register(); torch_backend.register(); import torch"
    )
    assert run(f"{code}; print(torch.ones(1, device='dml').item())") == "1.0"


@pytest.mark.slow
def test_the_rest_of_the_package_does_not_import_torch() -> None:
    code = "import sys, dmlgpu, dmlgpu.ops, dmlgpu.onnx; dmlgpu.Tensor([1.0]) + 1; print('torch' in sys.modules)"
    assert run(code) == "False"


@pytest.mark.slow
def test_torch_directml(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torch_directml as dml\n"
        "d = dml.device(dml.default_device())\n"
        "assert dml.is_available() and dml.device_count() >= 1 and dml.device_name(0) == 'numpy'\n"
        "assert dml.has_float64_support() is False and dml.disable_tiled_resources(True) is None\n"
        "x = torch.ones(1 << 18).to(d)\n"
        "assert sum(dml.gpu_memory()) >= 1\n"
        "print(d, x.sum().item(), sys.argv[1:])\n"
    )
    assert run("", "-m", "dmlgpu.frontends.torch", str(script), "a") == "dml:0 262144.0 ['a']"
    code = "from dmlgpu.frontends.torch import torch_directml; torch_directml.install(); import torch_directml as d"
    assert run(f"{code}; print(d.device())") == "dml:0"


def test_warnings_of_the_device_are_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.nn.functional.relu(torch.ones(2, device="dml")).sum().item()


@pytest.mark.slow
def test_the_fallback_computes_arguments_that_an_operator_does_not_take() -> None:
    code = """
    import torch, dmlgpu.torch
    host = torch.ones(3, dtype=torch.complex64)
    x = host.to("dml")
    print(x.asinh().cpu().equal(host.asinh()), x.asinh_().cpu().equal(host.asinh()))
    """
    assert run(code, DMLGPU_TORCH_FALLBACK="1") == "True True"
    x = torch.ones(3, dtype=torch.complex64).to("dml")
    with pytest.raises(NotImplementedError, match=r"aten::asinh is not supported .*complex64.*DMLGPU_TORCH_FALLBACK=1"):
        x.asinh()
