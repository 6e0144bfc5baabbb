"""Runs of ONNX graphs that follow from recorded ones equal those that are translated for their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

from dmlgpu import DataType, Device, DmlError, InvalidArgument
from dmlgpu.compiler.sizes.arithmetic import Recording, hint_of, needed
from dmlgpu.conformance.suites import onnx_backend
from dmlgpu.frontends.onnx import Session, load, recorded
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.recorded import declared_symbols
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, Slots
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.frontends.onnx.symbolic import SymbolicArray, array_of
from tests.unit.frontends.onnx.onnx_against import model_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

SAMPLE = 12
"""Step through the node tests; ``--profile full`` runs all."""

MIN_SHARE = 0.5
"""Minimum share of runs with new sizes that follow from recorded ones."""


def free(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose inputs have any sizes."""
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    for index, value in enumerate((*freed.graph.input, *freed.graph.output)):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"size {index} {axis}"
    return freed


def resized(inputs: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield inputs with other sizes: equal sizes change to the same value."""
    sizes = sorted({size for array in inputs for size in array.shape})
    changes = [{size: value} for size in sizes for value in (size + 1, size + 3, 2 * size + 2) if size]
    for change in [*changes, {size: size + 2 for size in sizes}, {size: 2 * size for size in sizes}]:
        yield [np.resize(array, [change.get(size, size) for size in array.shape]) for array in inputs]


def result_of(session: Session, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Return the outputs, or the class of the error."""
    names = [info.name for info in session.inputs]
    try:
        return [*session.run(dict(zip(names, inputs, strict=True))).values()]
    except DmlError as error:
        return f"{type(error).__name__}: {error}"


def arrays_of(values: Sequence[Any]) -> list[Any]:
    """Return the arrays among values, and those of sequences."""
    return [array for value in values for array in (arrays_of(value) if isinstance(value, list) else [value])]


def check(model: onnx.ModelProto, runs: Sequence[Sequence[np.ndarray]], device: Device) -> int:
    """Compare a session with one that translates for all sizes; return how many runs followed from recorded ones."""
    session, translating = load(model, device), load(model, device)
    runner_of(translating).recorded = None
    followed = 0
    for inputs in runs:
        results, expected = result_of(session, inputs), result_of(translating, inputs)
        if isinstance(expected, str) or isinstance(results, str):
            assert results == expected
            continue
        assert len(results) == len(expected)
        for result, reference in zip(arrays_of(results), arrays_of(expected), strict=True):
            assert (result.dtype, result.shape) == (reference.dtype, reference.shape)
            np.testing.assert_array_equal(result, reference)
        followed += runner_of(session).last_stages[0].is_recorded
    return followed


def cases(first: int, step: int) -> Iterator[tuple[str, onnx.ModelProto, list[list[np.ndarray]]]]:
    """Yield each `step`-th node test: the name, the model, and the inputs of runs."""
    for name, case in sorted(onnx_backend.models("node").items())[first::step]:
        model = onnx_backend.model_of(case)
        if onnx_backend.outside(model) or "random" in name or "bernoulli" in name or "dropout" in name:
            continue
        (inputs, _), *_ = onnx_backend.data_of(case)
        if inputs and all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in inputs):
            yield name, free(model), [inputs, *resized(inputs), inputs]


def check_node_tests(first: int, step: int, device: Device) -> None:
    """Check each `step`-th node test with free dimensions, and that enough runs follow from recorded ones."""
    runs, followed = 0, 0
    for name, model, inputs in cases(first, step):
        try:
            followed += check(model, inputs, device)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        except DmlError:  # unsupported
            continue
        runs += len(inputs) - 2
    assert followed > MIN_SHARE * runs, (followed, runs)


def generate_parts(metafunc: pytest.Metafunc, count: int) -> None:
    """Run the first of `count` parts of the node tests; ``--profile full`` runs all."""
    if "part" in metafunc.fixturenames:
        metafunc.parametrize("part", range(count if metafunc.config.getoption("--profile") == "full" else 1))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate_parts(metafunc, SAMPLE)


@pytest.mark.slow
def test_node_tests_with_free_dimensions(part: int) -> None:
    check_node_tests(part, SAMPLE, Device("numpy"))


@pytest.mark.slow
def test_node_tests_with_symbols_from_the_first_sizes_on(part: int) -> None:
    check_node_tests(part, SAMPLE, Device("numpy", specialize="never"))


def test_declared_names_are_symbols_from_the_first_sizes_on() -> None:
    """Equal names are one symbol, other names are symbols of their own, numbers are none."""
    declared = FLOAT, ["rows", "a size", 3]
    model = graph_of([node("Add", ["x", "z"], ["y"])], {"x": declared, "z": declared}, {})
    session = load(model, Device("numpy", specialize="never"))
    for rows, length in ((4, 4), (2, 7), (5, 4)):
        x = normal(rows, length, 3)
        np.testing.assert_array_equal(session.run({"x": x, "z": x})["y"], x + x)
        assert runner_of(session).last_stages[0].is_recorded
    inputs = [RunInput(x.shape, DataType.FLOAT32, 0, x)] * 2
    assert declared_symbols(inputs, read(model).graph.shapes) == ["rows", (0, 1), None, "rows", (1, 1), None]


# ---- graphs of several nodes

SIZES = [(1, 4), (2, 4), (3, 4), (3, 6), (5, 7), (17, 20), (20, 9), (1, 3), (2, 4)]
"""Batch and length of runs, which become symbols one after the other."""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def graph_of(nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], weights: dict[str, Any]) -> onnx.ModelProto:
    return model_of(list(nodes), inputs, {"y": FLOAT}, weights)


def shape_arithmetic() -> onnx.ModelProto:
    """Return a model that computes the target of a Reshape from sizes, by all functions of symbolic integers."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["batch"], axis=0),
        node("Slice", ["sizes", "one", "two"], ["length"]),
        node("Unsqueeze", ["batch", "zeros"], ["rows"]),
        node("Mul", ["length", "rows"], ["product"]),
        node("Add", ["product", "one"], ["more"]),
        node("Sub", ["more", "one"], ["same"]),
        node("Div", ["same", "rows"], ["quotient"]),
        node("Equal", ["quotient", "length"], ["is_length"]),
        node("Where", ["is_length", "quotient", "one"], ["chosen"]),
        node("Cast", ["chosen"], ["narrow"], to=TensorProto.INT32),
        node("Cast", ["narrow"], ["wide"], to=INT64),
        node("Concat", ["rows", "wide", "two", "two"], ["target"], axis=0),
        node("ReduceProd", ["target"], ["count"], keepdims=1),
        node("Min", ["target", "count"], ["smallest"]),
        node("Reshape", ["x", "smallest"], ["y"]),
    ]
    weights = {"zero": np.array(0), "zeros": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, weights)


def positions() -> onnx.ModelProto:
    """Return a model that adds positions, counted from a size on, and masks the later ones."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["batch"], axis=0),
        node("Gather", ["sizes", "one"], ["length"], axis=0),
        node("Add", ["batch", "length"], ["end"]),
        node("Range", ["batch", "end", "one"], ["counted"]),
        node("Cast", ["counted"], ["added"], to=FLOAT),
        node("Unsqueeze", ["added", "last"], ["column"]),
        node("Less", ["counted", "length"], ["early"]),
        node("Cast", ["early"], ["mask"], to=FLOAT),
        node("Unsqueeze", ["mask", "last"], ["factor"]),
        node("Add", ["x", "column"], ["shifted"]),
        node("Mul", ["shifted", "factor"], ["y"]),
    ]
    weights = {"zero": np.array(0), "one": np.array(1), "last": np.array([1])}
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, weights)


def embedded() -> onnx.ModelProto:
    """Return a model that adds as many rows of a table of positions as there are, as BERT does."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "one", "two"], ["length"]),
        node("Slice", ["numbers", "zero", "length", "one"], ["places"]),
        node("Gather", ["table", "places"], ["added"], axis=0),
        node("Add", ["x", "added"], ["y"]),
    ]
    numbers = {"numbers": np.arange(100)[None], "table": normal(100, 4)}
    weights = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), **numbers}
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, weights)


def halves() -> onnx.ModelProto:
    """Return a model that slices ranges counted from the end, transposes them, and resizes them."""
    nodes = [
        node("Slice", ["x", "start", "end", "axes"], ["middle"]),
        node("Slice", ["middle", "behind", "front", "axes", "back"], ["turned"]),
        node("Transpose", ["turned"], ["planes"], perm=[2, 0, 1]),
        node("Resize", ["planes", "", "scales"], ["y"], mode="nearest"),
    ]
    weights = {
        "start": np.array([1]),
        "end": np.array([2**62]),
        "axes": np.array([1]),
        "behind": np.array([-1]),
        "front": np.array([-(2**62)]),
        "back": np.array([-1]),
        "scales": np.array([1, 1, 2], np.float32),
    }
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, weights)


def halved() -> onnx.ModelProto:
    """Return a model that takes half as many rows as there are, computed in floats as exporters of PyTorch do."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "one", "two"], ["length"]),
        node("Cast", ["length"], ["real"], to=FLOAT),
        node("Mul", ["real", "half"], ["product"]),
        node("Concat", ["product", "half"], ["pair"], axis=0),
        node("Gather", ["pair", "zero"], ["first"], axis=0),
        node("Div", ["first", "tenth"], ["quotient"]),
        node("Mul", ["quotient", "tenth"], ["again"]),
        node("Max", ["again", "half"], ["largest"]),
        node("Floor", ["largest"], ["floored"]),
        node("Cast", ["floored"], ["rows"], to=INT64),
        node("Max", ["rows", "one"], ["end"]),
        node("Slice", ["x", "zero", "end", "one"], ["y"]),
    ]
    integers = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    floats = {"half": np.array([0.5], np.float32), "tenth": np.array([0.1], np.float32)}
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, integers | floats)


def clipped() -> onnx.ModelProto:
    """Return a model that takes at most five elements."""
    nodes = [node("Slice", ["x", "start", "end", "axes"], ["y"])]
    weights = {"start": np.array([0]), "end": np.array([5]), "axes": np.array([1])}
    return graph_of(nodes, {"x": (FLOAT, ["batch", "length", 4])}, weights)


def attention() -> onnx.ModelProto:
    """Return a model of a decoder's step with a growing past."""
    nodes = [
        node("Concat", ["past", "x"], ["keys"], axis=1),
        node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"]),
        node("MatMul", ["shares", "keys"], ["y"]),
    ]
    inputs = {"x": (FLOAT, ["batch", 1, 4]), "past": (FLOAT, ["batch", "length", 4])}
    return graph_of(nodes, inputs, {})


def inputs_of(model: onnx.ModelProto, batch: int, length: int) -> list[np.ndarray]:
    sizes = {"batch": batch, "length": length}
    shapes = [
        [each.dim_value or sizes[each.dim_param] for each in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    ]
    return [normal(*shape) for shape in shapes]


MODELS = {
    "shapes": shape_arithmetic,
    "positions": positions,
    "embedded": embedded,
    "halves": halves,
    "halved": halved,
    "clipped": clipped,
    "attention": attention,
}


@pytest.mark.parametrize("name", MODELS)
def test_sizes_follow_from_one_pattern(name: str, translations: list[Any]) -> None:
    model = MODELS[name]()
    session = load(model, "numpy")
    reference = ReferenceEvaluator(model)
    for sizes in SIZES:
        names, inputs = [info.name for info in session.inputs], inputs_of(model, *sizes)
        feeds = dict(zip(names, inputs, strict=True))
        (expected,) = reference.run(None, feeds)
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)
    del translations[:]
    for length in range(21, 71):
        session.run(dict(zip(names, inputs_of(model, 6, length), strict=True)))
        assert runner_of(session).last_stages[0].is_recorded
    assert len(translations) <= 2  # one for each outcome of the guards


@pytest.fixture
def translations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs for which a graph was translated."""
    calls: list[Any] = []
    translate = Runner.translate

    def noted(self: Runner, inputs: Any) -> Any:
        calls.append(inputs)
        return translate(self, inputs)

    monkeypatch.setattr(Runner, "translate", noted)
    return calls


@pytest.mark.parametrize("mutant", ["guards", "values", "fills"])
def test_tests_notice_mutants(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without guards, with exchanged symbols, or with integers of other sizes, results differ or runs fail."""
    recorded_stage = recorded.recorded_stage
    if mutant == "guards":
        monkeypatch.setattr(Recording, "decide", lambda self, function, *operands: function(*map(hint_of, operands)))
    elif mutant == "values":

        def exchanged(*arguments: Any) -> Any:
            by_sizes = recorded_stage(*arguments)
            return lambda values: by_sizes([*reversed(values)])

        monkeypatch.setattr(recorded, "recorded_stage", exchanged)
    else:
        stages: list[Any] = []

        def filled(*arguments: Any) -> Any:
            by_sizes = recorded_stage(*arguments)

            def stage(values: Sequence[int]) -> Any:
                stages.append(by_sizes(values))
                return replace(stages[-1], fills=stages[0].fills)

            return stage

        monkeypatch.setattr(recorded, "recorded_stage", filled)
    model = clipped() if mutant == "guards" else positions()
    with pytest.raises(Exception):  # noqa: B017 - whatever the mutant leads to
        check(model, [inputs_of(model, *sizes) for sizes in SIZES], Device("numpy"))


def test_bounds_of_indices_follow_sizes() -> None:
    model = graph_of([node("Gather", ["x", "at"], ["y"])], {"x": (FLOAT, ["rows"]), "at": (INT64, ["count"])}, {})
    session = load(model, "numpy")
    for rows in (3, 5, 9, 12):
        x = normal(rows)
        np.testing.assert_array_equal(session.run({"x": x, "at": np.array([rows - 1, -rows])})["y"], x[[-1, 0]])
        with pytest.raises(InvalidArgument, match=f"indices must be between -{rows} and {rows - 1}, got {rows}"):
            session.run({"x": x, "at": np.array([0, rows])})
    assert runner_of(session).last_stages[0].is_recorded


def test_placement_and_profile_of_a_pattern() -> None:
    model = attention()
    session, translating = load(model, "numpy"), load(model, "numpy")
    runner_of(translating).recorded = None
    for length in (3, 4, 5):
        feeds = dict(zip(("x", "past"), inputs_of(model, 2, length), strict=True))
        session.run(feeds)
        translating.run(feeds)
        assert session.placement == translating.placement
    assert runner_of(session).last_stages[0].is_recorded
    assert len(session.profile(feeds).segments) == 1


def test_numbers_are_not_read_after_a_recording() -> None:
    recording = Recording([5, 7])
    first, second = recording.symbols
    with recording.active():
        assert needed((first, 3, second)) == (first, 3, second)
        assert first > 4
    slots = Slots(Device("numpy"), ())
    slots.sizes = {first.node: 6, second.node: 8}
    assert slots.numbers((first, 3, second)) == (6, 3, 8)
    recording.replay([first])
    assert first > 4  # which it guards
    with pytest.raises(AssertionError, match="read after its recording"):
        int(first)


def test_arrays_of_symbolic_integers() -> None:
    recording = Recording([5, 2**40])
    small, large = recording.symbols
    array = array_of([[small, 3]], np.int64)
    assert isinstance(array, SymbolicArray)
    assert (array.shape, array.size, array.nbytes, array.dtype) == ((1, 2), 2, 16, np.int64)
    assert array.reshape(-1).tolist() == [small, 3]
    assert not recording.guards.get(small.node)
    assert isinstance(array_of([large], np.int32), np.ndarray)  # it does not fit
    assert array_of([1, 2], np.int32).dtype == np.int32
    guards = len(recording.guards)
    np.testing.assert_array_equal(np.asarray(array), [[5, 3]])
    assert array.max() == 5
    assert len(recording.guards) > guards


# ---- networks


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": [(1, 3, 48, 192), (3, 3, 48, 192), (2, 3, 48, 192), (5, 3, 48, 192)],
    "ch_PP-OCRv4_rec_infer.onnx": [(1, 3, 48, 160), (1, 3, 48, 200), (1, 3, 48, 168), (2, 3, 48, 96)],
    "ch_PP-OCRv4_det_infer.onnx": [(1, 3, 64, 96), (1, 3, 96, 64), (1, 3, 64, 64), (1, 3, 128, 96)],
}


@pytest.mark.slow
@pytest.mark.parametrize("file", SHAPES)
def test_networks_equal_those_translated_for_a_shape(file: str) -> None:
    """Text detection, direction and recognition."""
    rapidocr = pytest.importorskip("rapidocr_onnxruntime")
    path = Path(rapidocr.__file__).parent / "models" / file
    session, translating = load(path, "numpy"), load(path, "numpy")
    runner_of(translating).recorded = None
    rng = np.random.default_rng(0)
    for shape in SHAPES[file]:
        feeds = {session.inputs[0].name: rng.random(shape, np.float32)}
        expected = translating.run(feeds)
        for name, output in session.run(feeds).items():
            np.testing.assert_array_equal(output, expected[name])
        assert runner_of(session).last_stages[0].is_recorded, "the models declare their sizes as symbolic"
