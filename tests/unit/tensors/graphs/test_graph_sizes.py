"""Graphs whose sizes have names: built once, they give NumPy's results for all sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu import ExecutionFlags, Graph, InvalidArgument, InvalidState, Tensor, export, ops
from dmlgpu import directmlx as dml
from dmlgpu.compiler.sizes.arithmetic import Replay
from dmlgpu.compiler.sizes.named import NamedSizes
from dmlgpu.runtime.evaluate import run_compiled
from dmlgpu.tensors.graphs import graph as graphs
from tests.unit.tensors.tracing.test_tracing_sizes import FUNCTIONS, NETWORKS, SIZES, normal

READING = {
    "a hash", "a set", "a square root", "a text", "a text of the shape", "an entry", "length", "numbers", "numpy",
    "numpy's product", "numpy's shape", "positions", "rows", "steps", "taken",
}  # fmt: skip
"""Functions that read the values of sizes, or format them."""

LIMITED = {
    "odd": "n % 2 == 0",
    "a threshold": "n > 8",
    "the largest": "n >= 4",
    "a remainder": "-(n % 3) == 0",
    "a step": "n // 4 > 1",
}
"""Functions that decide by sizes, and what a graph of them needs."""

OUTSIDE = {"rows from outside", "later rows from outside", "a column from outside"}
"""Functions that read as many rows of a constant as sizes say."""


def built(function: Callable[..., Any], *shapes: tuple[int | str, ...], rules: str = "numpy") -> tuple[Graph, Any]:
    """Return a graph of a function of inputs named x, y, and what the function returned."""
    graph = Graph("numpy", "g", rules=rules)
    inputs = [graph.input(shape, name=name) for shape, name in zip(shapes, "xyzuvw", strict=False)]
    return graph, function(*inputs)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_built_once(name: str) -> None:
    function, in_numpy, shape_of, weights = NETWORKS[name]
    shape = tuple("n" if size == 7 else size for size in shape_of(7))
    if name == "convolutions":
        shape = (2, 3, "height", "width")
    graph, y = built(function, shape, *(weight.shape for weight in weights))
    for size in [1, 2, *SIZES]:
        x = normal(*shape_of(size))
        (result,) = graph.evaluate([y], [x, *weights])
        np.testing.assert_allclose(result, in_numpy(x), rtol=1e-4, atol=1e-5)


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    return [value] if isinstance(value, Tensor) else []


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in READING | OUTSIDE | {"an argument"}])
def test_functions_of_sizes(name: str) -> None:
    """Computed elements, views and numbers that depend on a size are right for all sizes, or the limit is named."""
    graph, result = built(FUNCTIONS[name], ("n", 4))
    outputs = [dml.identity(output) for output in tensors_of(result)]
    right = 0
    for size in (3, 5, 8, 13, 8, 4, 2, 1, 7, 12, 21, 3, 100):
        x = normal(size, 4)
        try:
            actual = graph.evaluate(outputs, [x])
        except InvalidArgument as error:
            assert f"g': it was built for sizes with {LIMITED[name]} (" in str(error)
            assert str(error).endswith(f"got n = {size}")
            continue
        right += 1
        expected = tensors_of(FUNCTIONS[name](Tensor(x, device="numpy")))
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)
    assert right == 13 or (name in LIMITED and right > 2)


@pytest.mark.parametrize("name", sorted(READING - {"a text", "a text of the shape", "numbers"}))
def test_values_of_sizes_are_not_read(name: str) -> None:
    expected = r"the size .*n.* has no value while the graph is built \(\S+/test_tracing_sizes\.py:\d+\)"
    with pytest.raises(InvalidState, match=expected):
        built(FUNCTIONS[name], ("n", 4))


def test_a_third_size_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, y = built(lambda x: ops.softmax(x @ normal(4, 5)), ("n", 4))
    created: list[None] = []
    original = graphs.recorded
    monkeypatch.setattr(graphs, "recorded", lambda *args: (created.append(None), original(*args))[1])
    for size in (3, 5, 8, 5):
        graph.evaluate([y], [normal(size, 4)])
    assert len(created) == 1


def test_names_appear_in_messages() -> None:
    graph, y = built(lambda x, y: ops.concatenate([x @ y, x @ y], axis=0), ("n", "k"), ("k", 5))
    assert repr(y.shape) == "(n + n, 5)"
    assert graph.size_names == ("n", "k")
    assert repr(graph) == "<Graph 'g': inputs ('x' FLOAT32 [n, k], 'y' FLOAT32 [k, 5]), 3 operators, 0 constants>"
    assert 'label="x\\nFLOAT32 [n, k]"' in graph.to_dot()
    compiled = graph.compile([y], sizes={"n": 3, "k": 4})
    assert repr(compiled).startswith("<compiled graph 'g of n = 3, k = 4' on")
    assert [port.desc.sizes for port in (*compiled.inputs, *compiled.outputs)] == [(3, 4), (4, 5), (6, 5)]


def test_arrays_agree_about_sizes() -> None:
    graph, y = built(lambda x, y, z: x @ y + z, ("n", "k"), ("k", 5), (5,))
    x, weight, bias = normal(3, 4), normal(4, 5), normal(5)
    (result,) = graph.evaluate([y], {"x": x, "y": weight, "z": bias})
    np.testing.assert_allclose(result, x @ weight + bias, rtol=1e-5)
    for inputs, message in (
        ([x, normal(6, 5), bias], r"k must be 4 in 'y' as in 'x', of the shape \(k, 5\), got 6"),
        ([normal(3), weight, bias], r"'x' must have the shape \(n, k\), got \(3,\)"),
        ([normal(0, 4), weight, bias], "n must be at least 1, got 0 in 'x'"),
        ([None, weight, bias], "the size n is not known; pass an array for 'x'"),
        (
            [x, normal(4, 6), bias],
            r"graph input 1 'y' must be an array of float32 with shape \(4, 5\), got .* \(4, 6\)",
        ),
    ):
        with pytest.raises(InvalidArgument, match=f"graph 'g': {message}"):
            graph.evaluate([y], inputs)


def test_sizes_are_passed_by_name() -> None:
    graph, y = built(lambda x: x * 2, ("n", "m"))
    for sizes, message in (
        (None, r"the size n is not known; pass sizes=\{'n': 8\}, or another value"),
        ({"n": 3}, r"the size m is not known; pass sizes=\{'m': 8\}, or another value"),
        ({"n": 3, "k": 3}, "sizes must be of the names n, m, got 'k'"),
        ({"n": 0, "m": 3}, r"sizes\['n'\] must be an integer between 1 and"),
        ([3], "sizes must be a mapping from names to integers, got"),
    ):
        for method in (graph.desc, graph.compile):
            with pytest.raises(InvalidArgument, match=message):
                method([y], sizes=sizes)  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match="a size must be an integer or a name such as 'n', got 'n m'"):
        graph.input(("n m",))
    fixed, z = built(lambda x: x * 2, (3,))
    with pytest.raises(InvalidArgument, match="sizes must be None, since no size of an input has a name, got"):
        fixed.desc([z], sizes={"n": 3})


def test_operators_reject_names_that_differ() -> None:
    with pytest.raises(InvalidArgument, match=r"\[n, 4\].*\[m, 4\]"):
        built(lambda x, y: x + y, ("n", 4), ("m", 4))
    with pytest.raises(InvalidArgument, match="must hold the tensor's 4 \\* n elements"):
        built(lambda x: x.reshape(-1, 7), ("n", 4))


def test_equal_sizes_of_different_names() -> None:
    """What was decided for sizes that differ holds for equal ones, and for 1."""
    graph, y = built(lambda x, y: (x.T @ x) @ y.T, ("n", "k"), ("m", "k"))
    for rows, others, columns in [(3, 4, 5), (4, 4, 4), (1, 4, 1), (1, 1, 1), (5, 1, 5)]:
        a, b = normal(rows, columns), normal(others, columns)
        (result,) = graph.evaluate([y], [a, b])
        np.testing.assert_allclose(result, (a.T @ a) @ b.T, rtol=1e-4, atol=1e-5)


def test_rules_of_directmlx_flags_and_passes() -> None:
    graph, y = built(lambda x: dml.activation_relu(x * 2 - 1) / x.shape[0], ("n", 4), rules="directmlx")
    for size in (1, 3, 8):
        x = normal(size, 4)
        expected = np.maximum(x * 2 - 1, 0) / size
        for options in (
            {},
            {"flags": ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION},
            {"disabled_passes": ["epilogues"]},
        ):
            np.testing.assert_allclose(graph.evaluate([y], [x], **options)[0], expected, rtol=1e-2, atol=1e-3)
        compiled = graph.compile([y], sizes={"n": size})
        (result,) = run_compiled(compiled, [x], [compiled.inputs[0].desc], "g")
        np.testing.assert_allclose(result.view(np.float32).reshape(size, 4), expected, rtol=1e-5)


def test_weights_and_required_outputs() -> None:
    graph = Graph("numpy", rules="numpy")
    x = graph.input(("n", 6), name="x")
    weight = graph.input((6, 6), name="weight", owned=True)
    values = dml.top_k(x @ weight, 1, 2).output_value
    for size in (2, 5, 1):
        a = normal(size, 6)
        (result,) = graph.evaluate([values], {"x": a, "weight": np.eye(6, dtype=np.float32)})
        np.testing.assert_allclose(result, -np.sort(-a, axis=1)[:, :2])


def test_a_graph_grows_after_it_ran() -> None:
    graph, y = built(lambda x: x * 2, ("n", 4))
    np.testing.assert_array_equal(graph.evaluate([y], [normal(3, 4)])[0], normal(3, 4) * 2)
    z = y[:5] + graph.input((5, 1), name="b")
    x, b = normal(7, 4), normal(5, 1)
    np.testing.assert_allclose(graph.evaluate([z], [x, b])[0], x[:5] * 2 + b, rtol=1e-6)
    with pytest.raises(InvalidArgument, match=r"built for sizes with n >= 5 \(tests/unit/.*\), got n = 3"):
        graph.evaluate([z], [normal(3, 4), b])


def test_shapes_of_inputs_may_be_expressions() -> None:
    graph = Graph("numpy", "g", rules="numpy")
    x = graph.input(("n", 4), name="x")
    y = graph.input((x.shape[0] * 2, 4), name="y")
    z = ops.concatenate([x, y]) + 1
    for size in (3, 1):
        a, b = normal(size, 4), normal(2 * size, 4)
        np.testing.assert_array_equal(graph.evaluate([z], [a, b])[0], np.concatenate([a, b]) + 1)
    with pytest.raises(InvalidArgument, match=r"'y' must be an array of float32 with shape \(6, 4\), got"):
        graph.evaluate([z], [normal(3, 4), normal(7, 4)])


def test_export_of_several_sizes(tmp_path: Path) -> None:
    graph = Graph("numpy", "lines", rules="numpy")
    x, w = graph.input(("n", 4), name="x"), graph.input((4, 8), name="w", owned=True)
    written = export.write([x @ w], tmp_path, sizes={"n": [2, 5, 8]}, weights={"w": normal(4, 8)}, outputs=["y"])
    document = json.loads((tmp_path / "program.json").read_bytes())
    shapes = [run["inputs"][0]["shape"] for run in (document, *document["others"])]
    assert shapes == [[2, 4], [5, 4], [8, 4]]
    assert written.weight_bytes == 4 * 4 * 8
    export.write([x @ w], tmp_path / "one", sizes={"n": 3}, weights={"w": normal(4, 8)})
    assert json.loads((tmp_path / "one" / "program.json").read_bytes())["inputs"][0]["shape"] == [3, 4]
    with pytest.raises(InvalidArgument, match="the size n is not known"):
        export.write([x @ w], tmp_path / "none")
    with pytest.raises(InvalidArgument, match="write: 65 combinations of sizes; a folder has at most 64"):
        export.write([x @ w], tmp_path / "none", sizes={"n": range(1, 66)})
    with pytest.raises(InvalidArgument, match="sizes must be None unless graph is outputs of a Graph"):
        export.write(graph.desc([x @ w], sizes={"n": 2}), tmp_path / "none", sizes={"n": 2})


@pytest.mark.parametrize("mutant", ["guards", "values", "arrays"])
def test_tests_notice_mutants(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without conditions, or with other numbers, limits are not named or results differ."""
    if mutant == "guards":
        monkeypatch.setattr(NamedSizes, "replayed", lambda self, results: Replay(self.nodes, {}, results))
    elif mutant == "values":
        values_of = NamedSizes.values_of
        monkeypatch.setattr(NamedSizes, "values_of", lambda *args: tuple(value + 1 for value in values_of(*args)))
    else:
        replayed = NamedSizes.replayed
        monkeypatch.setattr(NamedSizes, "replayed", lambda self, results: replayed(self, [*reversed([*results])]))
    with pytest.raises(Exception):  # noqa: B017 - any exception of the mutant
        for name in ("odd", "halves", "a threshold", "an average"):
            test_functions_of_sizes(name)
