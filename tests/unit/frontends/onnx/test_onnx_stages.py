"""Runs in which the host reads elements: stages that follow from patterns equal those that are translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device
from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.recorded import RunRecording
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.session import runner_of
from tests.unit.frontends.onnx.onnx_against import model_of

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ROWS = ("rows", 4)

ZERO, TWO = np.array([0]), np.array([2])


def graph_of(nodes: list[onnx.NodeProto], **weights: np.ndarray) -> onnx.ModelProto:
    return model_of(nodes, {"x": (FLOAT, [*ROWS])}, {"y": FLOAT}, weights)


def above() -> list[onnx.NodeProto]:
    """Return nodes that count the positive elements: ``count``, a scalar on the device."""
    return [
        node("Greater", ["x", "nothing"], ["above"]),
        node("Cast", ["above"], ["ones"], to=INT64),
        node("ReduceSum", ["ones"], ["count"], keepdims=0),
    ]


def positive() -> list[onnx.NodeProto]:
    """Return nodes that take the positive elements: ``taken``, as many as the host reads."""
    return [
        node("Greater", ["x", "nothing"], ["above"]),
        node("NonZero", ["above"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["taken"]),
    ]


NOTHING = np.array(0, np.float32)


def picked() -> onnx.ModelProto:
    """Return a model that takes the positive elements."""
    nodes = [
        *positive(),
        node("Tanh", ["taken"], ["y"]),
    ]
    return graph_of(nodes, nothing=NOTHING)


def picked_twice() -> onnx.ModelProto:
    """Return a model with two reads: positive elements, then those of them that are large."""
    nodes = [
        *positive(),
        node("Greater", ["taken", "half"], ["large"]),
        node("Compress", ["taken", "large"], ["kept"], axis=0),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Div", ["kept", "most"], ["y"]),
    ]
    return graph_of(nodes, nothing=NOTHING, half=np.array(0.5, np.float32))


def counted() -> onnx.ModelProto:
    """Return a model that counts from the number of rows on, as far as elements are positive."""
    nodes = [
        *above(),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["size"], axis=0),
        node("Squeeze", ["size"], ["start"]),
        node("Add", ["start", "count"], ["end"]),
        node("Range", ["start", "end", "step"], ["numbers"]),
        node("Cast", ["numbers"], ["y"], to=FLOAT),
    ]
    return graph_of(nodes, nothing=NOTHING, zero=ZERO, step=np.array(1))


def windowed() -> onnx.ModelProto:
    """Return a model that takes the last elements, as many as are positive."""
    nodes = [
        *above(),
        node("Reshape", ["x", "flat"], ["row"]),
        node("Unsqueeze", ["count", "zero"], ["counts"]),
        node("Neg", ["counts"], ["start"]),
        node("Slice", ["row", "start", "end"], ["y"]),
    ]
    return graph_of(nodes, nothing=NOTHING, flat=np.array([-1]), zero=ZERO, end=np.array([2**62]))


def shaped() -> onnx.ModelProto:
    """Return a model whose output has a size that is computed from elements."""
    nodes = [
        *above(),
        node("Unsqueeze", ["count", "zero"], ["counts"]),
        node("Concat", ["two", "counts"], ["sizes"], axis=0),
        node("ReduceMean", ["x"], ["mean"], keepdims=0),
        node("Expand", ["mean", "sizes"], ["wide"]),
        node("Softmax", ["wide"], ["y"]),
    ]
    return graph_of(nodes, nothing=NOTHING, zero=ZERO, two=TWO)


def ranked() -> onnx.ModelProto:
    """Return a model that takes half as many of the largest elements as are positive."""
    nodes = [
        *above(),
        node("Unsqueeze", ["count", "zero"], ["counts"]),
        node("Div", ["counts", "two"], ["k"]),
        node("Reshape", ["x", "flat"], ["row"]),
        node("TopK", ["row", "k"], ["y", "places"]),
    ]
    return graph_of(nodes, nothing=NOTHING, zero=ZERO, two=TWO, flat=np.array([-1]))


def distinct() -> onnx.ModelProto:
    """Return a model that sorts the different rounded elements."""
    return graph_of([node("Round", ["x"], ["rounded"]), node("Unique", ["rounded"], ["y"])])


def suppressed() -> onnx.ModelProto:
    """Return a model that takes boxes that do not overlap."""
    nodes = [
        node("Unsqueeze", ["x", "zero"], ["boxes"]),
        node("ReduceSum", ["boxes", "two"], ["sums"], keepdims=1),
        node("Transpose", ["sums"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["chosen"]),
        node("Gather", ["chosen", "last"], ["places"], axis=1),
        node("Gather", ["x", "places"], ["taken"], axis=0),
        node("Mul", ["taken", "taken"], ["y"]),
    ]
    weights = {"most": np.array([50]), "overlap": np.array([0.3], np.float32), "last": np.array(2)}
    return graph_of(nodes, zero=ZERO, two=TWO, **weights)


def branched() -> onnx.ModelProto:
    """Return a model whose branch depends on the number of positive elements, which is also a size in both."""

    def branch(name: str, *inner: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([*inner], name, [], [helper.make_tensor_value_info(name, FLOAT, None)])

    more = branch("more", node("Relu", ["taken"], ["more"]))
    less = branch("less", node("Concat", ["taken", "taken"], ["less"], axis=0))
    nodes = [
        *positive(),
        node("Size", ["taken"], ["size"]),
        node("Less", ["size", "many"], ["is_few"]),
        node("If", ["is_few"], ["y"], then_branch=more, else_branch=less),
    ]
    return graph_of(nodes, nothing=NOTHING, many=np.array(14))


def loop_of(nodes: list[onnx.NodeProto], *values: str, trips: str = "trips", **gathered: str) -> onnx.NodeProto:
    """Return a loop whose body computes ``next`` from ``state``, which begins as one of the values."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [*nodes, node("Identity", ["goes_on"], ["still"])],
        "body",
        [info("trip", INT64, []), info("goes_on", BOOL, []), info("state", FLOAT, None)],
        [info("still", BOOL, []), info("next", FLOAT, None), *(info(name, FLOAT, None) for name in gathered)],
    )
    return node("Loop", [trips, "yes", *values], ["y", *gathered.values()], body=body)


LOOPED = {"trips": np.array(6), "yes": np.array(True), "nothing": NOTHING}


def looped() -> onnx.ModelProto:
    """Return a model with a loop after a read."""
    nodes = [
        *positive(),
        loop_of([node("Tanh", ["state"], ["next"])], "taken"),
    ]
    return graph_of(nodes, **LOOPED)


def grown() -> onnx.ModelProto:
    """Return a model with a loop whose state grows by the rows of the input, as often as elements are positive."""
    body = [node("Concat", ["state", "x"], ["more"], axis=0), node("Tanh", ["more"], ["next"])]
    return graph_of(
        [*above(), node("Mod", ["count", "six"], ["few"]), loop_of(body, "x", trips="few")], **LOOPED, six=np.array(6)
    )


def reshaped_in_a_body() -> onnx.ModelProto:
    """Return a model with a loop whose body reads integers that are computed from sizes around it."""
    body = [
        node("Reshape", ["state", "target"], ["turned"]),
        node("Transpose", ["turned"], ["columns"]),
        node("Reshape", ["columns", "whole"], ["same"]),
        node("Tanh", ["same"], ["next"]),
        node("Cast", ["rows"], ["float_rows"], to=FLOAT),
        node("Add", ["next", "float_rows"], ["sum"]),
        node("Mul", ["float_rows", "float_rows"], ["square"]),
    ]
    nodes = [
        node("Shape", ["x"], ["whole"]),
        node("Gather", ["whole", "zero"], ["rows"], axis=0),
        node("Mul", ["rows", "two"], ["doubled"]),
        node("Concat", ["two", "doubled"], ["target"], axis=0),
        loop_of(body, "x", sum="sums", square="squares"),
    ]
    return graph_of(nodes, **LOOPED, zero=ZERO, two=TWO)


def scanned() -> onnx.ModelProto:
    """Return a model with a Scan over as many rows as elements are positive, which gathers sums."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["state", "row"], ["next"]), node("Tanh", ["next"], ["seen"])],
        "body",
        [info("state", FLOAT, [4]), info("row", FLOAT, [4])],
        [info("next", FLOAT, [4]), info("seen", FLOAT, [4])],
    )
    nodes = [
        *above(),
        node("Unsqueeze", ["count", "zero"], ["counts"]),
        node("Concat", ["counts", "four"], ["sizes"], axis=0),
        node("ReduceMean", ["x", "zero"], ["mean"], keepdims=1),
        node("Expand", ["mean", "sizes"], ["rows"]),
        node("ReduceMax", ["x", "zero"], ["start"], keepdims=0),
        node("Scan", ["start", "rows"], ["last", "y"], body=body, num_scan_inputs=1),
    ]
    return graph_of(nodes, nothing=NOTHING, zero=ZERO, four=np.array([4]))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "picked": picked,
    "picked twice": picked_twice,
    "counted": counted,
    "windowed": windowed,
    "shaped": shaped,
    "ranked": ranked,
    "distinct": distinct,
    "suppressed": suppressed,
    "branched": branched,
    "looped": looped,
    "grown": grown,
    "reshaped in a body": reshaped_in_a_body,
    "scanned": scanned,
}

SIZES = (6, 6, 6, 5, 9, 9, 7, 12, 12, 4, 6, 20, 21, 5)
"""Rows of runs; runs of equal size differ in the elements that the host reads."""


def elements(rows: int, run: int) -> np.ndarray:
    """Return random elements, at least one of them positive and one negative."""
    x = np.random.default_rng(run).standard_normal((rows, 4)).astype(np.float32)
    x[0, :2] = -1, 2
    return x


def sized(session: Any) -> list[bool]:
    """Return for each stage of the last run whether it followed from a pattern."""
    return [stage.is_recorded for stage in runner_of(session).last_stages]


@pytest.mark.parametrize("policy", ["always", "never"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_reference(name: str, policy: Any) -> None:
    model = MODELS[name]()
    session, reference = load(model, Device("numpy", specialize=policy)), ReferenceEvaluator(model)
    for run, rows in enumerate(SIZES):
        x = elements(rows, run)
        outputs: Any = reference.run(None, {"x": x})
        expected = outputs[0]
        result = session.run({"x": x})["y"]
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert all(sized(session))


def filled(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """Return a model that reads elements, and then computes ``y`` from ``taken``. Across the read, it needs a tensor of
    ones: the host knows it if sizes are numbers, and the device computes it if they are symbols."""
    filler = onnx.numpy_helper.from_array(np.ones(1, np.int64))
    before = [
        node("Shape", ["x"], ["sizes"]),
        node("ConstantOfShape", ["sizes"], ["filler"], value=filler),
        node("Exp", ["x"], ["powers"]),
        node("Greater", ["x", "nothing"], ["above"]),
        node("NonZero", ["above"], ["places"]),
        node("Cast", ["filler"], ["ones"], to=FLOAT),
        node("Add", ["powers", "ones"], ["sum"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["sum", "rows"], ["taken"]),
    ]
    return graph_of([*before, *nodes], nothing=NOTHING, two=np.array(2, np.float32))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Attempts of runs: whether each used cached stages, and patterns."""
    known: list[tuple[bool, bool]] = []
    run_once = Runner.attempt

    def noted(self: Runner, *arguments: Any, uses_cache: bool, uses_recorded: bool = True) -> Any:
        known.append((uses_cache, uses_recorded))
        return run_once(self, *arguments, uses_cache=uses_cache, uses_recorded=uses_recorded)

    monkeypatch.setattr(Runner, "attempt", noted)
    return known


def check_filled(session: Any, sizes: Sequence[int]) -> None:
    """Run a model of ``filled``, whose result is twice the elements that are taken."""
    for run, rows in enumerate(sizes):
        x = elements(rows, run)
        np.testing.assert_allclose(session.run({"x": x})["y"], 2 * np.exp(x[x > 0]) + 2, rtol=1e-5)


def test_cached_stages_that_a_pattern_does_not_continue_are_replaced(tries: list[tuple[bool, bool]]) -> None:
    """The first size was translated, so its stages know more on the host than those of the pattern of later sizes."""
    session = load(filled(node("Mul", ["taken", "two"], ["y"])), Device("numpy", specialize="always"))
    check_filled(session, (4, 5, 6))
    assert tries == [(True, True)] * 3
    tries.clear()
    check_filled(session, (7, 8, 9, 4, 4))
    assert tries == [(True, True)] * 4 + [(False, True), (True, True)]
    assert all(sized(session))


def test_streams_of_random_numbers_follow_from_patterns() -> None:
    """Each size has its own stream, which its runs continue, as without patterns."""
    drawn = [
        node("RandomUniformLike", ["taken"], ["uniform"], seed=1.0),
        node("RandomNormalLike", ["taken"], ["normal"], seed=2.0),
        node("Dropout", ["taken", "half", "yes"], ["dropped"], seed=3),
        node("Add", ["uniform", "normal"], ["both"]),
        node("Add", ["dropped", "both"], ["y"]),
    ]
    model = graph_of([*positive(), *drawn], nothing=NOTHING, half=np.array(0.5, np.float32), yes=np.array(True))
    session, translating = load(model, Device("numpy", specialize="never")), load(model, "numpy")
    runner_of(translating).recorded = None
    results = []
    for rows in (4, 5, 6, 6, 4, 7, 5):
        feeds = {"x": elements(rows, rows)}
        results.append(session.run(feeds)["y"])
        np.testing.assert_array_equal(results[-1], translating.run(feeds)["y"])
    assert all(sized(session))
    assert not np.array_equal(results[2], results[3])


def test_runs_without_patterns_where_later_stages_fail(
    tries: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunRecording.record

    def fails_later(self: RunRecording, outcomes: Any) -> Any:
        if outcomes:
            raise NotSupported("fails later")
        return record(self, outcomes)

    monkeypatch.setattr(RunRecording, "record", fails_later)
    session = load(filled(node("Mul", ["taken", "two"], ["y"])), Device("numpy", specialize="always"))
    check_filled(session, (4, 5, 6))
    assert tries == [(True, True), *2 * [(True, True), (False, True), (False, False)]]


@pytest.mark.slow
def test_new_outcomes_and_sizes_need_no_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some runs, expressions give the stages of others."""
    translations: list[int] = []
    translated = Runner.translate

    def noted(self: Runner, inputs: Any) -> Any:
        translations.append(1)
        return translated(self, inputs)

    monkeypatch.setattr(Runner, "translate", noted)
    for name, model in MODELS.items():
        session = load(model(), "numpy")
        for run, rows in enumerate(SIZES):
            session.run({"x": elements(rows, run)})
        translations.clear()
        for run, rows in enumerate(range(22, 40)):
            session.run({"x": elements(rows, run)})
        # A body knows integers from around it, so it is translated for each of them.
        assert len(translations) == (18 if name == "reshaped in a body" else 0), name


@pytest.mark.slow
def test_placement_of_stages_that_follow_from_patterns() -> None:
    session, translating = load(suppressed(), "numpy"), load(suppressed(), "numpy")
    runner_of(translating).recorded = None
    for run, rows in enumerate(SIZES):
        feeds = {"x": elements(rows, run)}
        np.testing.assert_array_equal(session.run(feeds)["y"], translating.run(feeds)["y"])
        assert session.placement == translating.placement
    assert sum(placed.where == "read" for placed in session.placement) >= 2
    assert len(session.profile(feeds).segments) == 3
