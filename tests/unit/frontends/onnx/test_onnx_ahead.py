"""First steps with sessions: descriptions, wrong calls, profiles, checks, and compiling ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dmlgpu
from dmlgpu.common.errors import InvalidArgument, InvalidState
from dmlgpu.frontends.onnx.segments import Segment
from dmlgpu.frontends.onnx.session import CompileProgress, Session
from dmlgpu.runtime import progress

IMAGE = np.ones((2, 3), np.float32)


def classifier() -> ModelProto:
    """Probabilities of a linear layer, and which of them are above a half; ``image`` in batches."""
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4) / 8, "weights")
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["image", "weights"], ["logits"], name="head/product"),
            helper.make_node("Softmax", ["logits"], ["probs"], name="head/softmax"),
            helper.make_node("Greater", ["probs", "half"], ["likely"], name="likely"),
        ],
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3])],
        [
            helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("likely", TensorProto.BOOL, None),
        ],
        [weights, half],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "classifier.onnx"
    onnx.save(classifier(), path)
    return dmlgpu.load(path, device="numpy")


def test_sessions_have_descriptions(session: Session) -> None:
    assert repr(session).startswith(
        "<Session 'classifier.onnx': image: float32[batch, 3] -> probs: float32[batch, 4], likely: bool[...]; on '"
    )
    probs, likely = session.outputs
    assert (probs.name, probs.dtype, probs.shape) == ("probs", np.float32, ("batch", 4))
    assert (likely.name, likely.dtype, likely.shape) == ("likely", np.bool_, None)
    (image,) = session.inputs
    assert (image.name, image.dtype, image.shape) == ("image", np.float32, ("batch", 3))


def test_an_output_without_a_type() -> None:
    model = classifier()
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="probs"))
    (probs,) = dmlgpu.load(model, "numpy").outputs
    assert str(probs) == "probs: unknown[...]"
    with pytest.raises(InvalidState, match="'probs': the model declares no type"):
        probs.dtype  # noqa: B018


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda session: session.run(None, {"image": IMAGE}), "run(inputs, outputs=None): the arguments are swapped"),
        (lambda session: session.run(["y"], {"image": IMAGE}), "run(inputs, outputs=None): the arguments are swapped"),
        (lambda session: session.run({"img": IMAGE}), "unknown input 'img'; the model has: image"),
        (lambda session: session.run({}), "missing input 'image'"),
        (
            lambda session: session.run({"image": IMAGE}, ["prob"]),
            "unknown output 'prob'; the model has: probs, likely",
        ),
        (lambda session: session.run({"image": IMAGE}, "probs"), "outputs must be a list of names, got 'probs'; pass"),
        (
            lambda session: session.run({"image": np.ones((2, 3))}),
            "input 'image' must be of float32, got float64; pass array.astype(np.float32)",
        ),
        (lambda session: session.profile({"image": IMAGE}, repeat=0), "repeat must be at least 1, got 0"),
        (lambda session: session.check({}), "missing input 'image'"),
        (lambda session: session.compile({"img": (2, 3)}), "shapes must name inputs or dimensions (image, batch), got"),
        (
            lambda session: session.compile({}),
            "shapes must give input 'image: float32[batch, 3]' a shape, got [None, 3]",
        ),
        (lambda session: session.compile({"image": (2, 4)}), "input 'image' must have size 3 in dimension 1"),
        (lambda session: session.compile([(2, 3)]), "shapes must be a mapping from names to shapes, or a list of such"),
        (lambda session: session.compile(3), "shapes must be a mapping from names to shapes, or a list of such"),
    ],
)
def test_wrong_calls_are_named(attempt: Callable[[Session], Any], message: str, session: Session) -> None:
    with pytest.raises(InvalidArgument) as rejected:
        attempt(session)
    assert f"model 'classifier.onnx': {message}" in str(rejected.value)


def test_compiling_ahead_of_time(session: Session) -> None:
    events: list[CompileProgress] = []
    session.compile([{"image": (2, 3)}, {"batch": 5}], progress=events.append)
    assert [(event.number, event.count, event.seconds is None) for event in events] == [
        (1, 2, True),
        (1, 2, False),
        (2, 2, True),
        (2, 2, False),
    ]
    assert {event.operators for event in events} == {3}
    assert str(events[0]) == "shapes 1 of 2: compiling 3 operators"
    assert str(events[1]).startswith("shapes 1 of 2: compiled 3 operators")
    session.compile([{"image": (2, 3)}, {"image": np.ones((5, 3), np.float32)}], progress=events.append)
    assert len(events) == 4  # it was compiled before


def test_progress_estimates_the_remaining_time_by_the_latest_shapes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("dmlgpu.frontends.onnx.session.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    events: list[CompileProgress] = []

    def report(progress: CompileProgress) -> None:
        events.append(progress)
        if progress.seconds is None:
            clock[0] += {1: 8, 2: 2, 3: 3}[progress.number]

    session.compile([{"batch": 2}, {"batch": 5}, {"batch": 7}], progress=report)
    assert [(event.number, event.count, event.remaining) for event in events] == [
        (1, 3, None),
        (1, 3, 16.0),
        (2, 3, 16.0),
        (2, 3, 2.0),
        (3, 3, 2.0),
        (3, 3, 0.0),
    ]
    assert str(events[0]) == "shapes 1 of 3: compiling 3 operators"
    assert str(events[2]) == "shapes 2 of 3: compiling 3 operators, about 16.0 s left"


def test_progress_counts_kernels_and_estimates_the_time_of_other_shapes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("dmlgpu.frontends.onnx.session.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    prepared = Segment.prepared.fget  # type: ignore[attr-defined]

    seen: list[Segment] = []

    def with_kernels(segment: Segment) -> Any:
        if segment not in seen:
            seen.append(segment)
            clock[0] += 3
            report = progress._REPORT.get()
            assert report is not None
            report(progress.KernelProgress(2, 6, seconds=2.0, remaining=4.0))
        return prepared(segment)

    monkeypatch.setattr(Segment, "prepared", property(with_kernels))
    events: list[CompileProgress] = []
    session.compile([{"batch": 2}, {"batch": 5}], progress=events.append)
    counted = [event for event in events if event.driver is not None]
    assert [(event.number, event.remaining) for event in counted] == [(1, 11.0), (2, 4.0)]
    assert str(counted[0]) == "shapes 1 of 2: compiling 3 operators, 2 of 6 kernels, about 11.0 s left"


def test_compiling_leaves_state_alone() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "before"], ["after"])],
        "running_sum",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "before")],
        [helper.make_tensor_value_info("after", TensorProto.FLOAT, [3])],
    )
    session = dmlgpu.load(helper.make_model(graph, ir_version=9), "numpy")
    session.bind("before", np.ones(3, np.float32), updated_by="after")
    session.compile({})
    session.profile({"x": IMAGE[0]}, repeat=2)
    assert np.all(session.bound["before"].numpy() == 1)
    assert session.check({"x": IMAGE[0]}).divergences == ()


def test_profiles_in_python(session: Session) -> None:
    profile = session.profile({"image": IMAGE}, repeat=3)
    lines = repr(profile).splitlines()
    assert lines[0].startswith("3 runs: 3 kernels, ") and lines[0].endswith(" ms, each timed separately")
    assert lines[1].split() == ["ms", "%", "times", "kernel"]
    assert lines[2].split()[1:] == ["100.0", "3", "all", "nodes"]
    assert {event["ph"] for event in profile.trace()["traceEvents"]} == {"M", "X"}
    assert not any(name.startswith("compile") for name, _, _ in profile.spans)
