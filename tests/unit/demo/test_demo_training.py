"""The demo that trains: its gradients against float64 differences, its steps against ADAM's formula, its command."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from dmlgpu import Device
from dmlgpu.catalog.enums import DataType
from dmlgpu.cli import demo_train
from dmlgpu.cli.main import main
from dmlgpu.demo.training import (
    Adam,
    Digits,
    Trainer,
    batch_order,
    draw_losses,
    first_difference,
    initial_moments,
    initial_parameters,
    learn,
    load_digits,
    torch_losses,
)
from dmlgpu.tensors.graphs.graph import Graph

FILTERS = (2, 3)
BATCH = 5


@pytest.fixture(scope="module")
def device():
    return Device("numpy")


@pytest.fixture(scope="module")
def parameters():
    """Parameters with no symmetry: scales and shifts are no ones and zeros."""
    draw = np.random.default_rng(7)
    start = initial_parameters(3, FILTERS)
    return {name: (array + draw.normal(0, 0.2, array.shape)).astype(np.float32) for name, array in start.items()}


@pytest.fixture(scope="module")
def batch():
    draw = np.random.default_rng(8)
    return draw.random((BATCH, 1, 8, 8), np.float32), draw.integers(0, 10, BATCH).astype(np.uint32)


def loss_of(parameters, images, labels):
    """The network's loss and the moments of its blocks in float64, computed independently of dmlgpu."""
    values, moments = images.astype(np.float64), {}
    for number in (1, 2):
        filters = parameters[f"filter{number}"]
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(values, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
        )
        values = np.einsum("nchwyx,ocyx->nohw", windows, filters, optimize=True)
        mean, variance = (kind(axis=(0, 2, 3), keepdims=True) for kind in (values.mean, values.var))
        moments |= {f"mean{number}": mean, f"variance{number}": variance}
        values = (values - mean) / np.sqrt(variance + 1e-5) * parameters[f"scale{number}"] + parameters[
            f"shift{number}"
        ]
        count, channels, height, width = values.shape
        values = np.maximum(values, 0).reshape(count, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    scores = values.reshape(len(values), -1) @ parameters["weights"][0, 0].T + parameters["bias"][0, 0]
    likelihoods = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -likelihoods[np.arange(len(labels)), labels].mean(), moments


def gradients_of(parameters, images, labels):
    """Central differences of the loss in float64, one parameter after the other."""
    doubles = {name: array.astype(np.float64) for name, array in parameters.items()}
    gradients = {name: np.zeros_like(array) for name, array in doubles.items()}
    for name, array in doubles.items():
        for place in np.ndindex(array.shape):
            original, sides = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = original + step
                sides.append(loss_of(doubles, images, labels)[0])
            array[place] = original
            gradients[name][place] = (sides[0] - sides[1]) / 2e-6
    return gradients


def learned(device, parameters, images, labels):
    """What the graph computes for a batch: loss, moments, gradients."""
    graph = Graph(device)
    operands = (
        graph.input(images.shape, name="images"),
        graph.input((1, 1, len(labels), 1), DataType.UINT32, name="labels"),
    )
    forward = learn(graph, *operands, {name: graph.input(array.shape, name=name) for name, array in parameters.items()})
    outputs = {"loss": forward.loss, **forward.moments, **forward.gradients}
    arrays = {"images": images, "labels": labels.reshape(1, 1, -1, 1), **parameters}
    return dict(zip(outputs, graph.evaluate(list(outputs.values()), arrays), strict=True))


def test_loss_moments_and_gradients_are_those_of_float64(device, parameters, batch):
    results = learned(device, parameters, *batch)
    loss, moments = loss_of(parameters, *batch)
    np.testing.assert_allclose(results["loss"].item(), loss, rtol=1e-5)
    for name, expected in (moments | gradients_of(parameters, *batch)).items():
        assert results[name].shape == expected.shape
        np.testing.assert_allclose(results[name], expected, rtol=1e-3, atol=2e-6, err_msg=name)


def test_steps_follow_adams_formula(device, parameters):
    draw = np.random.default_rng(9)
    digits = made_up(draw, 20)
    order = batch_order(20, 3, BATCH, 0)
    adam = Adam(0.01, 0.8, 0.95, 1e-6)
    trainer = Trainer(device, digits, order, parameters, adam)
    now = {name: array.astype(np.float64) for name, array in parameters.items()}
    first = {name: np.zeros_like(array) for name, array in now.items()}
    second = {name: np.zeros_like(array) for name, array in now.items()}
    running, losses = initial_moments(FILTERS), []
    for step, numbers in enumerate(order, 1):
        trainer.advance(1)
        images, labels = digits.train_images[numbers], digits.train_labels[numbers]
        results = learned(device, {name: array.astype(np.float32) for name, array in now.items()}, images, labels)
        losses.append(results["loss"].item())
        running = {name: 0.9 * value + 0.1 * results[name] for name, value in running.items()}
        alpha = 0.01 * np.sqrt(1 - 0.95**step) / (1 - 0.8**step)
        first = {name: 0.8 * moment + 0.2 * results[name] for name, moment in first.items()}
        second = {name: 0.95 * moment + 0.05 * results[name] ** 2 for name, moment in second.items()}
        change = {name: alpha * first[name] / (np.sqrt(second[name]) + 1e-6) for name in parameters}
        now = {name: value - change[name] for name, value in now.items()}
    np.testing.assert_allclose(trainer.losses(), losses, rtol=1e-4)
    for name, expected in now.items():
        np.testing.assert_allclose(trainer.parameters()[name], expected.ravel(), atol=2e-4, err_msg=name)
    for name, expected in running.items():
        read = trainer.state[name].read().view(np.float32)
        np.testing.assert_allclose(read, expected.ravel(), rtol=1e-3, atol=1e-5, err_msg=name)
    with pytest.raises(ValueError, match="count must be at most 0, got 1"):
        trainer.advance(1)


def made_up(draw, count):
    """Images of which the brightest row says the digit, and some more held out."""
    labels = draw.integers(0, 8, 2 * count).astype(np.uint32)
    images = draw.random((2 * count, 1, 8, 8), np.float32) * 0.5
    images[np.arange(2 * count), 0, labels] += 0.5
    return Digits(images[:count], labels[:count], images[count:], labels[count:])


def test_it_learns_and_reads_unseen_digits(device):
    digits = made_up(np.random.default_rng(10), 64)
    trainer = Trainer(device, digits, batch_order(64, 60, 16, 0), initial_parameters(0, (4, 8)), Adam(0.02))
    before = trainer.accuracy()
    trainer.advance(60)
    losses = trainer.losses()
    assert losses[-5:].mean() < losses[:5].mean() / 4
    assert trainer.accuracy() > max(0.8, before)


def test_held_out_digits_are_no_others_and_batches_take_all_in_turn():
    digits = load_digits(0)
    assert (digits.train_images.shape, digits.test_images.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert (digits.train_images.min(), digits.train_images.max()) == (0, 1)
    everything = np.concatenate([digits.train_images, digits.test_images]).sum()
    assert everything == pytest.approx(np.concatenate([load_digits(1).train_images, load_digits(1).test_images]).sum())
    order = batch_order(10, 7, 4, 0)
    assert order.shape == (7, 4)
    assert sorted(order.ravel()[:10]) == sorted(order.ravel()[10:20]) == list(range(10))
    assert not np.array_equal(order.ravel()[:10], order.ravel()[10:20])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_computes_the_same_losses(device):
    digits, order = load_digits(0), batch_order(1437, 10, 16, 0)
    parameters = initial_parameters(0, (4, 8))
    trainer = Trainer(device, digits, order, parameters)
    trainer.advance(10)
    assert first_difference(trainer.losses(), torch_losses(digits, order, parameters, Adam())) < 1e-4


def test_a_curve_lies_between_the_powers_of_ten_around_it():
    losses = np.geomspace(2, 0.02, 50).astype(np.float32)
    picture = np.asarray(draw_losses({"dmlgpu": losses, "torch": losses * 1.5}, "Loss", "words"), np.int64)
    blue = np.argwhere(np.abs(picture - (72, 149, 239)).sum(axis=-1) < 40)
    plotted = blue[(blue[:, 0] >= 110) & (blue[:, 1] >= 96)]
    grid = 480 - 110 - 64  # 0.01 to 10: three powers
    for column, loss in ((97, 2), (922, 0.02)):
        rows = plotted[plotted[:, 1] == column, 0]
        assert rows.mean() == pytest.approx(416 - grid * (np.log10(loss) + 2) / 3, abs=3)
    assert draw_losses({"dmlgpu": losses[:1]}, "", "").size == (960, 480)


@pytest.mark.parametrize(
    ("factor", "code", "said"),
    [
        (1.00001, 0, "torch: losses of the first 3 steps differ by at most 1.0e-05"),
        (1.01, 1, "at most 9.9e-03"),
        (None, 0, "torch is not installed"),
    ],
)
def test_the_command_prints_losses_and_writes_the_curve(factor, code, said, *, device, tmp_path, monkeypatch, capsys):
    def theirs(digits, order, parameters, adam):
        if factor is None:
            raise ModuleNotFoundError("torch")
        trainer = Trainer(device, digits, order, parameters, adam)
        trainer.advance(len(order))
        return trainer.losses() * np.float32(factor)

    monkeypatch.setattr(demo_train, "torch_losses", theirs)
    monkeypatch.setattr(demo_train, "initial_parameters", lambda seed: initial_parameters(seed, (2, 2)))
    target = tmp_path / "loss.png"
    assert main(["demo", "train", "--steps", "3", "--batch", "8", "-a", "numpy", "-o", str(target)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("adapter: NumPy")
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert any(line.startswith("a step is one graph of ") for line in lines)
    assert any("of 360 held-out digits are read right" in line for line in lines)
    assert any(said in line for line in lines)
    with Image.open(target) as written:
        assert written.size == (960, 480)


@pytest.mark.slow
def test_pytorch_trains_on_its_device(tmp_path):
    pytest.importorskip("torch", reason="PyTorch, which trains, is not installed")
    options = ["--torch", "--steps", "3", "--batch", "8", "--adapter", "numpy", "--output", str(tmp_path / "loss.png")]
    command = [sys.executable, "-m", "dmlgpu", "demo", "train", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "a step is compiled by torch.compile: the first step after " in done.stdout
    assert "torch: losses of the first 3 steps differ by at most " in done.stdout
