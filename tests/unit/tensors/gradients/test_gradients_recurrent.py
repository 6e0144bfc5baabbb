"""Gradients through recurrent layers, compared with PyTorch's, in float64: its own layers, and ONNX's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ops
from tests.unit.tensors.gradients.gradient_checks import draw

torch = pytest.importorskip("torch", reason="PyTorch, with whose gradients these are compared, is not installed")

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
LENGTHS = [5, 2, 3]


def arguments(kind: str, directions: int, peephole: bool = False) -> dict[str, Any]:
    rows = GATES[kind] * HIDDEN
    shapes = {
        "x": (STEPS, BATCH, INPUTS),
        "weight": (directions, rows, INPUTS),
        "recurrence": (directions, rows, HIDDEN),
        "bias": (directions, 2 * rows),
        "hidden": (directions, BATCH, HIDDEN),
    }
    if kind == "lstm":
        shapes["cell"] = shapes["hidden"]
    if peephole:
        shapes["peephole"] = (directions, 3 * HIDDEN)
    return {name: draw(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def formula(kind: str, t: dict[str, Any], direction: str, options: dict[str, Any]) -> list[Any]:
    """Compute ONNX's definition of a layer: the hidden states, and the states after the last step."""
    x, directions = t["x"], t["weight"].shape[0]
    sequences, last = [], []
    lengths = torch.tensor(LENGTHS if options.get("lengths") else [STEPS] * BATCH)
    for index in range(directions):
        w, r = t["weight"][index], t["recurrence"][index]
        b = t["bias"][index].chunk(2)
        states = [t["hidden"][index], *([t["cell"][index]] if kind == "lstm" else [])]
        rows: list[Any] = [None] * STEPS
        is_backward = index == 1 or direction == "backward"
        for time in reversed(range(STEPS)) if is_backward else range(STEPS):
            h = states[0]
            wx, rh = (x[time] @ w.T + b[0]).chunk(GATES[kind], 1), (h @ r.T + b[1]).chunk(GATES[kind], 1)
            if kind == "rnn":
                after = [torch.tanh(wx[0] + rh[0])]
            elif kind == "gru":
                z, reset = torch.sigmoid(wx[0] + rh[0]), torch.sigmoid(wx[1] + rh[1])
                product = (
                    reset * rh[2]
                    if options.get("linear_before_reset")
                    else ((reset * h) @ r.chunk(3)[2].T + b[1].chunk(3)[2])
                )
                after = [(1 - z) * torch.tanh(wx[2] + product) + z * h]
            else:
                c = states[1]
                p = t["peephole"][index].chunk(3) if "peephole" in t else (0, 0, 0)
                total = [x + h for x, h in zip(wx, rh, strict=True)]
                i, f = torch.sigmoid(total[0] + p[0] * c), torch.sigmoid(total[2] + p[2] * c)
                new = f * c + i * torch.tanh(total[3])
                after = [torch.sigmoid(total[1] + p[1] * new) * torch.tanh(new), new]
            lasts = (time < lengths)[:, None]
            states = [torch.where(lasts, new, old) for new, old in zip(after, states, strict=True)]
            rows[time] = torch.where(lasts, after[0], 0.0)
        sequences.append(torch.stack(rows))
        last.append(states)
    return [torch.stack(sequences, 1), *(torch.stack(parts) for parts in zip(*last, strict=True))]


def ours(kind: str, tensors: dict[str, Any], direction: str, options: dict[str, Any]) -> list[Any]:
    if options.get("lengths"):
        options = {**options, "lengths": np.array(LENGTHS, np.uint32)}
    if kind == "rnn":
        fields = {"x": "input", "hidden": "hidden_init"}
        ranks = {name: x.expand_dims(tuple(range(4 - x.ndim))) for name, x in tensors.items()}
        lengths = {"sequence_lengths": options["lengths"].reshape(1, 1, 1, -1)} if options else {}
        outputs = ops.directml.rnn(
            **{fields.get(name, name): x for name, x in ranks.items()},
            **lengths,
            activation_descs=["tanh"] * tensors["weight"].shape[0],
            direction=direction,
        )
        return [outputs.output_sequence, outputs.output_single[0]]
    return list(getattr(ops, kind)(**tensors, direction=direction, **options))


CASES = [
    ("rnn", {}),
    ("rnn", {"lengths": True}),
    ("gru", {}),
    ("gru", {"linear_before_reset": True, "lengths": True}),
    ("lstm", {}),
    ("lstm", {"peephole": True, "lengths": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_equal_those_of_the_formula(is_compiled: bool) -> None:
    for kind, settings in CASES[-2:] if is_compiled else CASES:
        for direction in ("forward",) if is_compiled else ("forward", "backward", "bidirectional"):
            directions = 2 if direction == "bidirectional" else 1
            options = dict(settings)
            arrays = arguments(kind, directions, options.pop("peephole", False))
            leaves = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
            expected = formula(kind, leaves, direction, options)
            weights = [draw(*result.shape, seed=10 + seed) for seed, result in enumerate(expected)]
            sum((result * torch.tensor(w)).sum() for result, w in zip(expected, weights, strict=True)).backward()

            def loss(
                tensors: Any,
                kind: Any = kind,
                direction: Any = direction,
                options: Any = options,
                weights: Any = weights,
            ) -> Any:
                results = ours(kind, tensors, direction, options)
                return sum(ops.sum(x * w.astype(np.float32)) for x, w in zip(results, weights, strict=True))

            gradient: Any = dmlgpu.compile(dmlgpu.grad(loss)) if is_compiled else dmlgpu.grad(loss)
            gradients = gradient({name: array.astype(np.float32) for name, array in arrays.items()})
            for name, leaf in leaves.items():
                theirs = leaf.grad.numpy()
                difference = np.abs(gradients[name] - theirs).max() / np.abs(theirs).max()
                assert difference < 2e-5, (kind, settings, direction, name, difference)


def test_gradients_of_an_lstm_equal_those_of_pytorchs_layer() -> None:
    """PyTorch orders gates as input, forget, cell, output."""
    arrays = arguments("lstm", 2)
    order = np.concatenate([np.arange(HIDDEN) + gate * HIDDEN for gate in (0, 2, 3, 1)])
    layer = torch.nn.LSTM(INPUTS, HIDDEN, bidirectional=True).double()
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            for name, array in (("ih", arrays["weight"][direction]), ("hh", arrays["recurrence"][direction])):
                getattr(layer, f"weight_{name}_l0{suffix}").copy_(torch.tensor(array[order]))
            for name, array in zip(("ih", "hh"), np.split(arrays["bias"][direction], 2), strict=True):
                getattr(layer, f"bias_{name}_l0{suffix}").copy_(torch.tensor(array[order]))
    x = torch.tensor(arrays["x"], requires_grad=True)
    layer(x, (torch.tensor(arrays["hidden"]), torch.tensor(arrays["cell"])))[0].square().sum().backward()
    loss = lambda tensors: ops.sum(ops.square(ops.lstm(**tensors, direction="bidirectional").sequence))  # noqa: E731
    gradients = dmlgpu.grad(loss)({name: array.astype(np.float32) for name, array in arrays.items()})
    assert np.allclose(gradients["x"], x.grad.numpy(), rtol=1e-4, atol=1e-5)
    for direction, suffix in enumerate(("", "_reverse")):
        theirs = getattr(layer, f"weight_ih_l0{suffix}").grad.numpy()
        assert np.allclose(gradients["weight"][direction][order], theirs, rtol=1e-4, atol=1e-5)
