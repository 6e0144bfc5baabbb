"""The suite of graphs: its names, its contents, and the one tolerance that fused and unfused kernels must keep."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlgpu import Graph
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.tolerance import Accumulated, GivenBound, ulp
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites import graphs
from dmlgpu.conformance.suites.graph_bounds import output_bounds
from dmlgpu.conformance.suites.graph_casts import INPUT, SIZES, STEPS, Casts, all_casts
from dmlgpu.conformance.suites.graph_steps import ALL, CONSUMERS, EVERY, PRODUCERS, Draft, Example
from dmlgpu.conformance.suites.graphs import QUICK, GraphExpectation, GraphSuite, example
from dmlgpu.ops import directml as f
from dmlgpu.runtime.device import Device

SUITE = GraphSuite()


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


def test_names_spell_their_graphs() -> None:
    for profile in SUITE.profiles:
        names = SUITE.names(profile)
        assert len(set(names)) == len(names)
        assert all(map(SUITE.has, names[::10]))
        assert set(SUITE.names("quick")) <= set(SUITE.names("full"))
    assert example(QUICK[0]).graph == example(QUICK[0]).graph
    assert example(QUICK[0]).graph.name == QUICK[0]


@pytest.mark.parametrize(
    "name",
    [
        "pair-convolution-relu-int8-plain",
        "pair-convolution-relu-float32",
        "pair-convolution-nothing-float32-plain",
        "pattern-attention-float32-tapped",
        "pattern-attention-int32-plain",
        "graph-float32-501-s0",
        "cast-input-sum-uint8-int64-float32",
        "cast-input-sum-uint8-int8-float32-plain",
        "cast-softmax-sum-uint8-int64-float32-plain",
        "cast-input-nothing-uint8-int64-float32-plain",
        "cast-input-sum-uint8-int64-int4-plain",
        "cast-input-sum-uint8-int64-float32-tapped",
        "",
    ],
)
def test_other_names_spell_none(name: str) -> None:
    assert not SUITE.has(name)


def test_every_producer_is_read_by_every_consumer_of_its_type() -> None:
    pairs = {tuple(name.split("-")[1:3]) for name in SUITE.names("standard") if name.startswith("pair-")}
    for producer, (_, produced) in PRODUCERS.items():
        for consumer, (_, read) in CONSUMERS.items():
            assert ((producer, consumer) in pairs) == bool(set(produced) & set(read) & set(ALL))


@pytest.mark.parametrize("producer", PRODUCERS)
def test_producers_match_their_table(producer: str) -> None:
    make, types = PRODUCERS[producer]
    for data_type in types:
        for sizes in (graphs.SIZES, graphs.ODD_SIZES):
            expression = make(Draft(producer, data_type, sizes))
            assert (expression.data_type, expression.sizes) == (data_type, sizes)


@pytest.mark.parametrize("step", STEPS)
def test_every_pair_of_types_is_cast_before_and_after_each_step(step: str) -> None:
    cases = [case for case in all_casts().values() if (case.producer, case.step) == (INPUT, step)]
    types = STEPS[step][1]
    assert {(case.first, case.second) for case in cases} == {(first, second) for first in EVERY for second in types}
    assert {(case.second, case.last) for case in cases} == {(second, last) for second in types for last in EVERY}
    assert {case.variant for case in cases} == set(SIZES)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_result_of_each_producer_is_cast_to_every_type(producer: str) -> None:
    cases = [case for case in all_casts().values() if case.producer == producer]
    types = PRODUCERS[producer][1]
    assert {(case.first, case.second) for case in cases} == {(first, second) for first in types for second in EVERY}
    for case in cases:
        assert Casts.parse(str(case)) == case


def test_every_step_reads_a_result_of_a_producer() -> None:
    assert {case.step for case in all_casts().values() if case.producer != INPUT} == set(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_steps_match_their_table(step: str) -> None:
    make, types = STEPS[step]
    for data_type in types:
        for sizes in SIZES.values():
            draft = Draft(step, data_type, sizes)
            draft.example([f.cast(make(draft, draft.input()), output_type=DataType.FLOAT32)])


@pytest.mark.slow
def test_every_pass_is_at_work_in_a_quick_case() -> None:
    targets = Target("CPU", Profile.CPU), Target("GPU", Profile.DISCRETE)
    networks = [resolve(example(name).graph) for name in SUITE.names("quick")]
    compiled = [compile_network(network, target) for target in targets for network in networks]
    assert {note.pass_name for graph in compiled for note in graph.notes} >= set(PASSES)


@pytest.mark.parametrize("name", QUICK)
def test_the_reference_matches_the_expectation(name: str, device: Device) -> None:
    assert SUITE.run(name, device).status is Status.PASS


def test_a_wrong_element_fails(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pattern-two_readers-float16-odd"
    of = GraphExpectation.of(name)
    wrong = of.outputs[1].copy()
    wrong.ravel()[7] += ulp(wrong).ravel()[7]
    changed = dataclasses.replace(of, outputs=(of.outputs[0], wrong))
    monkeypatch.setattr(GraphExpectation, "of", lambda name: changed)
    outcome = SUITE.run(name, device)
    assert (outcome.status, outcome.wrong, outcome.message) == (Status.FAIL, 1, "output 1, fused")


# ---- bounds


def bound_of(graph: Example) -> np.ndarray:
    (bound,) = output_bounds(resolve(graph.graph), graph.inputs)
    return bound


def test_exact_graphs_must_be_equal() -> None:
    for name in ("pair-convolution-residual-float32-odd", "pair-product-cast-float16-plain", "graph-float16-16-s0"):
        assert not any(bound.any() for bound in GraphExpectation.of(name).bounds)


def test_sums_that_are_not_exact_have_their_bound() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((1, 1, 4, 4)).astype(np.float32) for _ in range(2))
    graph = Graph()
    product = f.gemm(graph.input(a.shape), graph.input(b.shape))
    bound = bound_of(Example(graph.desc([product]), (a.ravel(), b.ravel())))
    expected = Accumulated(16).bound(a @ b, np.abs(a.astype(np.float64)) @ np.abs(b))
    np.testing.assert_allclose(bound, expected, rtol=1e-6)


@pytest.mark.parametrize("function", [ReduceFunction.LOG_SUM, ReduceFunction.L2, ReduceFunction.MULTIPLY])
def test_functions_of_exact_sums_have_two_ulp(function: ReduceFunction) -> None:
    x = np.arange(1, 9, dtype=np.float32)
    graph = Graph()
    bound = bound_of(Example(graph.desc([f.reduce(graph.input((8,)), function=function, axes=(0,))]), (x,)))
    expected = {
        ReduceFunction.LOG_SUM: np.log(x.sum()),
        ReduceFunction.L2: np.sqrt(np.square(x).sum()),
        ReduceFunction.MULTIPLY: x.prod(),
    }[function]
    np.testing.assert_allclose(bound, 2 * ulp(np.array([expected])))


def test_an_error_propagates_through_later_nodes() -> None:
    """The exponential's two ULP, doubled by the factor, and doubled again because there are few patterns of signs."""
    x = np.linspace(0, 1, 8, dtype=np.float32)
    graph = Graph()
    doubled = f.element_wise_exp(graph.input((8,)))
    doubled = f.element_wise_multiply(doubled, graph.constant(np.full(8, 2, np.float32)))
    bound = bound_of(Example(graph.desc([doubled]), (x,)))
    of_exponential, of_product = 2 * ulp(np.exp(x)), ulp(2 * np.exp(x))
    np.testing.assert_allclose(bound, 4 * of_exponential + of_product)


@pytest.mark.parametrize("name", ["pattern-attention-float32-odd", "pattern-perceptron-float32-plain"])
def test_bounds_are_narrow(name: str) -> None:
    expectation = GraphExpectation.of(name)
    (bound,), (output,) = expectation.bounds, expectation.outputs
    assert (bound > 0).all()
    assert bound.max() < 1e-3 * np.abs(output).max()


def test_bounds_hold_for_float32_in_another_order() -> None:
    """Scores, softmax and sum in float32, in blocks of rows, as a fused kernel would compute them."""
    expectation = GraphExpectation.of("pattern-bare_attention-float32-plain")
    (bound,), (expected,) = expectation.bounds, expectation.outputs
    query, key, value = (array.view(np.float32).reshape(expected.shape) for array in expectation.example.inputs)
    total, largest = np.zeros((*expected.shape[:3], 1), np.float32), np.float32(0)
    sums = np.zeros_like(expected)
    for row in range(key.shape[2]):
        score = (query * key[:, :, row : row + 1]).sum(3, keepdims=True, dtype=np.float32) * np.float32(0.5)
        weight = np.exp(score - largest)
        total, sums = total + weight, sums + weight * value[:, :, row : row + 1]
    assert GivenBound().accepts(expected, sums / total, bound).all()


def test_a_given_bound_is_exact_where_it_is_zero() -> None:
    expected = np.array([1.0, 1.0, np.nan, np.inf, 0.0], np.float32)
    bound = np.array([0.0, 0.5, 1.0, 1.0, 0.0])
    got = np.array([1.0, 1.5, np.nan, np.inf, -0.0], np.float32)
    assert GivenBound().accepts(expected, got, bound).all()
    assert not GivenBound().accepts(expected, got + np.float32(0.25), bound)[[0, 1, 4]].any()
    assert not GivenBound().accepts(expected, np.zeros(5, np.float32), bound)[:4].any()
    assert GivenBound().errors(expected, got, bound).tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    integers = np.arange(3, dtype=np.int32)
    assert GivenBound().accepts(integers, integers + 1, np.array([0, 1, 2])).tolist() == [False, True, True]
