"""``torch.compile(backend="dmlgpu")`` and programs of ``torch.export`` against PyTorch's CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from torch import nn  # noqa: E402 - after the check
from torch._dynamo import convert_frame  # noqa: E402

from dmlgpu.common.errors import InvalidArgument  # noqa: E402
from dmlgpu.demo import training  # noqa: E402
from dmlgpu.frontends.torch import compiled, indices  # noqa: E402
from dmlgpu.frontends.torch.exported import load  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Drop the graphs of earlier tests, which would count as other sizes."""
    torch.compiler.reset()
    torch.manual_seed(0)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 6, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (3, 4)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * 16, 10),
        ),
        (2, 1, 8, 8),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), (2, 5, 16)),
    "recurrent": (Recurrent, (5, 2, 4)),
}


def compiled_of(model: Any) -> Any:
    return torch.compile(model, backend="dmlgpu")


def unsupported_nodes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the operators that run outside of compiled graphs."""
    names: list[str] = []
    original = compiled.is_supported

    def recording(node: Any) -> bool:
        answer = original(node)
        if not answer:
            names.append(str(node.target))
        return answer

    monkeypatch.setattr(compiled, "is_supported", recording)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["dml", "cpu"])
def test_networks_train_as_on_the_cpu(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of training: results, gradients, parameters and running statistics agree."""
    outside = unsupported_nodes(monkeypatch)
    make, shape = NETWORKS[name]
    theirs = make()
    ours = copy.deepcopy(theirs).to(device)
    function = compiled_of(ours)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (theirs, ours)]
    for step in range(2):
        x = torch.randn(shape)
        expected, actual = theirs(x), function(x.to(device))
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), atol=1e-4, rtol=1e-4)
        weights = torch.arange(expected.numel()).reshape(expected.shape).float().cos()
        for result, optimizer in zip((expected, actual), optimizers, strict=True):
            optimizer.zero_grad()
            (result * weights.to(result.device)).sum().backward()
            optimizer.step()
        state = theirs.state_dict()
        for key, value in ours.state_dict().items():
            torch.testing.assert_close(value.cpu(), state[key], atol=1e-3, rtol=1e-3, msg=f"step {step}: {key}")
    assert outside == []


@pytest.mark.parametrize("checks_all", [False, True], ids=["one graph", "operator by operator"])
def test_attention_with_a_mask_trains(checks_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and gradients, also of the mask; what other backends save for the gradient is not required."""
    monkeypatch.setattr(indices, "checks_all", checks_all)
    shapes = (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (5, 7)
    theirs = [torch.randn(shape).requires_grad_() for shape in shapes]

    def attend(query: Any, key: Any, value: Any, mask: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)

    cotangent = torch.randn(2, 4, 5, 8)
    expected = attend(*theirs)
    expected.backward(cotangent)
    ours = [x.detach().to("dml").requires_grad_() for x in theirs]
    actual = compiled_of(attend)(*ours)
    actual.backward(cotangent.to("dml"))
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    for x, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.grad.cpu(), reference.grad, atol=1e-5, rtol=1e-5)


def test_inference_follows_parameters_that_change() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval()
    ours = copy.deepcopy(model).to("dml")
    function, x = compiled_of(ours), torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(function(x.to("dml")).cpu(), model(x), atol=1e-5, rtol=1e-5)
        for layers in (model, ours):
            layers[3].bias.add_(1)
            layers[0].weight[1].zero_()  # a write into part of a parameter
        torch.testing.assert_close(function(x.to("dml")).cpu(), model(x), atol=1e-5, rtol=1e-5)
        ours[3].weight.data = torch.zeros(3, 144).to("dml")
        expected = model[3].bias.expand(2, 3)
        torch.testing.assert_close(function(x.to("dml")).cpu(), expected, atol=1e-5, rtol=1e-5)


def test_inference_follows_parameters_that_share_memory() -> None:
    """Plans do not depend on parameters' values, but on their memory: other memory, and inputs that share it."""
    model = torch.nn.Linear(4, 4, bias=False).eval().to("dml")
    numbers = torch.arange(32.0)
    memory = numbers.to("dml")
    function, x = compiled_of(model), torch.eye(4)
    with torch.no_grad():
        for start in (0, 16, 4, 0):
            model.weight.data = memory[start : start + 16].view(4, 4)
            expected = numbers[start : start + 16].view(4, 4)
            torch.testing.assert_close(function(x.to("dml")).cpu(), expected.T)
            own = function(memory[8:24].view(4, 4)), function(model.weight)
            torch.testing.assert_close(own[0].cpu(), numbers[8:24].view(4, 4) @ expected.T)
            torch.testing.assert_close(own[1].cpu(), expected @ expected.T)


def test_other_sizes_run_as_one_dynamic_graph() -> None:
    graphs = []
    model = nn.Sequential(nn.Linear(4, 8), nn.Softmax(-1))
    ours = copy.deepcopy(model).to("dml")

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return compiled.backend(module, inputs)

    function = torch.compile(ours, backend=counting)
    with torch.no_grad():
        for count in (2, 3, 5, 7, 11):
            x = torch.randn(count, 4)
            torch.testing.assert_close(function(x.to("dml")).cpu(), model(x), atol=1e-5, rtol=1e-5)
    assert len(graphs) == 2  # the first size, then any


def test_results_alias_inputs_and_each_other() -> None:
    def function(x: Any, y: Any) -> Any:
        total = x.t() + y
        parts = total.split(2)
        return total, total[0], x, x.view(-1), total.t(), x > 0, 3, parts[1]

    x, y = torch.randn(3, 4), torch.randn(4, 3)
    expected, actual = function(x, y), compiled_of(function)(x.to("dml"), y.to("dml"))
    for theirs, ours in zip(expected, actual, strict=True):
        if isinstance(theirs, int):
            assert ours == theirs
            continue
        torch.testing.assert_close(ours.cpu(), theirs)
        assert (ours.stride(), ours.dtype) == (theirs.stride(), theirs.dtype)
    for results in (expected, actual):
        results[0].zero_()
        results[2].fill_(1)
    for index in (1, 3, 4, 7):
        torch.testing.assert_close(actual[index].cpu(), expected[index])


def test_inputs_written_in_place() -> None:
    def function(x: Any, y: Any) -> Any:
        x[1].mul_(2)
        y.add_(x)
        return x.sum()

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    ours = x.to("dml"), y.to("dml")
    torch.testing.assert_close(compiled_of(function)(*ours).cpu(), function(x, y))
    for actual, expected in zip(ours, (x, y), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam"])
def test_training_steps_are_three_graphs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss, gradients and optimizer: no operator runs outside of these, and parameters follow those of the CPU."""
    outside, graphs = unsupported_nodes(monkeypatch), list[Any]()
    original = compiled.CompiledAtenGraph.__init__

    def counting(graph: Any, *args: Any) -> None:
        original(graph, *args)
        graphs.append(len(graph.outputs))

    monkeypatch.setattr(compiled.CompiledAtenGraph, "__init__", counting)
    theirs = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    theirs.append(nn.Linear(4 * 9, 3))
    ours = copy.deepcopy(theirs).to("dml")

    def step_of(model: Any) -> Callable[[Any, Any], Any]:
        optimizer = getattr(torch.optim, name)(
            model.parameters(), lr=0.01, **({"momentum": 0.9} if name == "SGD" else {})
        )

        def step(x: Any, labels: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    steps = step_of(theirs), compiled_of(step_of(ours))
    for index in range(3):
        x, labels = torch.randn(5, 1, 8, 8), torch.arange(5) % 3
        expected, actual = steps[0](x, labels), steps[1](x.to("dml"), labels.to("dml"))
        torch.testing.assert_close(actual.cpu(), expected, atol=1e-4, rtol=1e-3, msg=f"step {index}")
    state = theirs.state_dict()
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value.cpu(), state[key], atol=1e-3, rtol=1e-3, msg=key)
    assert outside == []
    computing = [count for count in graphs if count]  # one more graph returns a view of the loss
    assert len(computing) == (4 if name == "SGD" else 3)  # the first step of SGD has no momentum


@pytest.mark.slow
def test_the_training_of_the_demo_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step runs three graphs, although its code is part of dmlgpu, whose kernels Dynamo does not trace."""
    pytest.importorskip("sklearn", reason="the demo trains on its digits")
    calls = list[int]()
    original = compiled.CompiledAtenGraph.__call__

    def counting(graph: Any, *args: Any) -> Any:
        if graph.outputs:
            calls.append(len(graph.nodes))
        return original(graph, *args)

    monkeypatch.setattr(compiled.CompiledAtenGraph, "__call__", counting)
    digits, parameters = training.load_digits(0), training.initial_parameters(0)
    order = training.batch_order(len(digits.train_images), 3, 8, 0)
    trainer = training.TorchTrainer(digits, order, parameters, training.Adam(), "dml")
    trainer.advance(2)
    calls.clear()
    trainer.advance(1)
    assert len(calls) == 3 and min(calls) > 20
    assert np.isfinite(trainer.losses()).all()


def test_dynamo_traces_no_function_that_a_kernel_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward of a compiled function allocates its first gradient while Dynamo traces what runs."""
    traced = list[str]()
    original = convert_frame._compile

    def recording(code: Any, *args: Any, **kwargs: Any) -> Any:
        traced.append(code.co_filename)
        return original(code, *args, **kwargs)

    def function(x: Any) -> None:
        total = (x * 2).sum()
        torch.dml.empty_cache()
        total.backward()

    monkeypatch.setattr(convert_frame, "_compile", recording)
    x = torch.ones(3, device="dml", requires_grad=True)
    compiled_of(function)(x)
    assert x.grad is not None
    assert set(traced) == {__file__}


def test_values_that_are_written_and_returned() -> None:
    """Elements that are swapped, written into a part of a tensor, and returned as well."""

    def function(x: Any, y: Any, z: Any) -> Any:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        z[1:].add_(x[0])
        z.mul_(2)
        return z + 0, z, x[1]

    inputs = torch.randn(3, 4), torch.randn(3, 4), torch.randn(2, 4)
    ours = tuple(x.to("dml") for x in inputs)
    for _ in range(3):
        expected, actual = function(*inputs), compiled_of(function)(*ours)
        for theirs, result in zip((*expected, *inputs), (*actual, *ours), strict=True):
            torch.testing.assert_close(result.cpu(), theirs)


@pytest.mark.slow
def test_dropout_draws_the_same_numbers_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = unsupported_nodes(monkeypatch)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.2)).to("dml")
    function, x = compiled_of(model), torch.randn(4, 8).to("dml")
    gradients, results = [], []
    for call in (model, function):
        torch.manual_seed(3)
        results.append([call(x) for _ in range(3)])
        model.zero_grad()
        results[-1][0].sum().backward()
        gradients.append(model[0].weight.grad.clone())
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(*gradients)
    assert not torch.equal(results[1][0], results[1][1])
    assert outside == []


def test_operators_outside_of_graphs_run_between_them() -> None:
    """``nonzero`` reads elements: the operators before and after it are compiled."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):

        def function(x: Any) -> Any:
            return (x * 2)[x > 0] + 1

        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled_of(function)(x.to("dml")).cpu(), function(x))
        with pytest.raises(Exception, match=r"aten::index\.Tensor is not supported in graphs on the CPU"):
            compiled_of(function)(x)


def test_constants_between_graphs() -> None:
    """A constant is read while PyTorch has only fake tensors, as in the first call of a model with a cache."""

    def function(x: Any) -> Any:
        return torch.cat([torch.tensor([], device=x.device), x]) + torch.tensor([1.0, 2.0], device=x.device)

    x = torch.ones(2)
    torch.testing.assert_close(compiled_of(function)(x.to("dml")).cpu(), torch.tensor([2.0, 3.0]))


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead", "fullgraph": True}, {"dynamic": True}])
def test_the_default_backend_compiles_for_the_device(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a backend, graphs on the device are this package's, also those without inputs; others are inductor's."""
    theirs, graphs = list[Any](), list[Any]()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, *_, **__: theirs.append(1) or module)
    original = compiled.CompiledAtenGraph.__init__
    monkeypatch.setattr(compiled.CompiledAtenGraph, "__init__", lambda *args: (graphs.append(1), original(*args))[1])

    @torch.compile(**options)
    def function(x: Any) -> Any:
        return (x * 2 + 1).relu()

    @torch.compile(**options)
    def filled() -> Any:
        return torch.ones(3, device="dml") + 2

    x = torch.randn(3, 4)
    torch.testing.assert_close(function(x.to("dml")).cpu(), (x * 2 + 1).relu())
    torch.testing.assert_close(filled().cpu(), torch.full((3,), 3.0))
    assert (len(theirs), len(graphs)) == (0, 2)
    torch.testing.assert_close(function(x), (x * 2 + 1).relu())
    assert (len(theirs), len(graphs)) == (1, 2)


def test_modes_are_rejected() -> None:
    function = torch.compile(lambda x: x + 1, backend="dmlgpu", mode="max-autotune")
    with pytest.raises(Exception, match="takes no mode and no options, got mode='max-autotune': leave it out"):
        function(torch.ones(1, device="dml"))


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Any, Path]:
    """A model, and the file of its program, whose first dimension is dynamic."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()).eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.randn(2, 1, 4, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    return model, tmp_path / "model.pt2"


@pytest.mark.slow
def test_exported_programs_run(exported: tuple[Any, Path]) -> None:
    model, path = exported
    run = load(path)
    for count in (2, 3, 5):
        x = torch.randn(count, 1, 4, 4)
        expected = model(x).detach()
        torch.testing.assert_close(run(x), expected, atol=1e-5, rtol=1e-5)
        array = run(x.numpy())
        assert isinstance(array, np.ndarray)
        assert np.allclose(array, expected.numpy(), atol=1e-5)
    assert run(x.to("dml")).device == torch.device("dml", 0)


def test_exported_programs_reject_other_arguments(exported: tuple[Any, Path], tmp_path: Path) -> None:
    run = load(exported[1])
    with pytest.raises(AssertionError, match=r"Guard failed: input.size\(\)\[1\] == 1"):
        run(torch.randn(2, 2, 4, 4))
    with pytest.raises(InvalidArgument, match="device must be a dml device such as 'dml' or 'dml:1', got 'cpu'"):
        load(exported[1], "cpu")
    with pytest.raises(InvalidArgument, match=r"program must be what torch\.export\.export returns.*got 3"):
        load(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.pt2")
