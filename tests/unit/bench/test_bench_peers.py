"""Peers: inputs and outputs, missing, failing and wrong peers, and the table."""

import importlib.util
import json
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from dmlgpu.bench.ceilings import CachedCeilings, Ceilings, save_ceilings
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.peers import contestants
from dmlgpu.bench.peers.contestants import OneByOne, PeerRow, compare_peers, summary, time_text
from dmlgpu.bench.peers.programs import onnx_models
from dmlgpu.bench.peers.worker import NotOffered, PeerCall, PeerNode, PeerServer, load_outputs, parse_node
from dmlgpu.bench.prepared import Sample
from dmlgpu.bench.records import BenchRun, read_file
from dmlgpu.bench.specs import read_suite, suite_file
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.bench.bench_fakes import measured
from tests.unit.cli.cli_process import run_here

SOFTMAX = """
import numpy as np
from dmlgpu.bench.peers.worker import NotOffered

def versions():
    return {"fake": "1.5"}

def prepare(call):
    if call.nodes[0].op != "Softmax":
        raise NotOffered("no such thing")
    return Running(call)

class Running:
    def __init__(self, call):
        self.call = call
    def run(self, number):
        x = self.call.arrays["x0"]
        y = np.exp(x - x.max(1, keepdims=True))
        return y / y.sum(1, keepdims=True)
    def results(self):
        return [self.run(0)]
"""
"""A peer that knows softmax of rows."""


# ---- what peers are given


def test_nodes_are_read_from_the_notation_of_onnx():
    assert parse_node("y0 = Softmax <axis = -1> (x0)") == PeerNode("Softmax", ("x0",), ("y0",), {"axis": -1})
    node = parse_node("y0, y1 = Conv<pads = [1, 1, 2, 2], group = 4>(x0, x1)")
    assert node == PeerNode("Conv", ("x0", "x1"), ("y0", "y1"), {"pads": [1, 1, 2, 2], "group": 4})


@pytest.mark.parametrize("text", ["y0 = Softmax", "Softmax (x0)", "y0 = Softmax <axis> (x0)", "y = A <a = [1> (x)", ""])
def test_an_invalid_node_is_rejected(text):
    with pytest.raises(ValueError, match=r"must be|Expecting"):
        parse_node(text)


def attention(**more):
    (workload,) = of_operator("MULTIHEAD_ATTENTION", [{"heads": 2, "queries": 3, "keys": 4, "size": 5}])
    sizes = {
        "onnx": ["s = MatMul (x0, x1)", "t = Mul (s, scale)", "p = Softmax <axis = -1> (t)", "y0 = MatMul (p, x2)"],
        "inputs": {
            "x0": {"shape": [3, 2, 5], "permute": [1, 0, 2]},
            "x1": {"shape": [4, 2, 5], "permute": [1, 2, 0]},
            "x2": {"shape": [4, 2, 5], "permute": [1, 0, 2]},
        },
        "outputs": {"y0": {"permute": [1, 0, 2]}},
        "constants": {"scale": 5**-0.5},
        **more,
    }
    return PeerRow(workload, sizes)


def test_inputs_become_theirs_and_their_results_ours(tmp_path):
    row = attention()
    row.call.save(tmp_path)
    call = PeerCall.load(tmp_path)
    assert (call.nodes, call.fixed, call.outputs) == (row.call.nodes, frozenset({"scale"}), ("y0",))
    query, keys, values = (call.arrays[f"x{index}"] for index in range(3))
    assert (query.shape, keys.shape, values.shape) == ((2, 3, 5), (2, 5, 4), (2, 4, 5))
    scores = np.exp(query @ keys * call.arrays["scale"])
    theirs = scores / scores.sum(-1, keepdims=True) @ values
    assert row.check([theirs]).status == "right"
    assert row.check([theirs[:, ::-1]]).status == "wrong"
    assert row.check([theirs[:1]]).status == "wrong"


def test_indices_are_of_the_type_that_onnx_has_for_them():
    (workload,) = of_operator("GATHER", [{"rows": 8, "columns": 2, "picked": 3}])
    row = PeerRow(workload, {"onnx": ["y0 = Gather (x0, x1)"], "inputs": {"x1": {"shape": [3]}}})
    table, indices = row.call.arrays.values()
    assert (indices.dtype, indices.shape) == (np.int64, (3,))
    assert row.check([table[indices]]).status == "right"
    assert row.call.sets >= 2


@pytest.mark.parametrize(
    "more",
    [
        {"onnx": 3},
        {"onnx": ["y0 = MatMul (x0, x9)"]},
        {"onnx": ["z = MatMul (x0, x1)"]},
        {"weights": ["w"]},
        {"inputs": 1},
    ],
)
def test_malformed_rows_are_rejected(more):
    with pytest.raises(ModelError, match="does not say what peers compute"):
        _ = attention(**more).call
    with pytest.raises(ModelError, match="at_least: must be a number"):
        _ = attention(at_least="2").least_ratio


def test_the_suite_has_nodes_for_every_row():
    rows = read_suite(suite_file("peers"))
    assert len(rows) > 15
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        nodes = [parse_node(text) for text in row.more["onnx"]]
        known_names = {name for node in nodes for name in node.outputs} | set(row.more.get("constants", ()))
        read = {name for node in nodes for name in node.inputs}
        assert all(name in known_names or name[0] == "x" for name in read)
        assert "y0" in known_names


# ---- the process of a peer


@dataclass
class Doubling:
    """Gives twice its input; its clock passes a second each time that it is read."""

    now: float = 0.0

    def versions(self):
        return {"doubling": "2"}

    def prepare(self, call):
        if call.nodes[0].op != "Double":
            raise NotOffered("only doubles")
        self.runs, self.call = [], call
        return self

    def run(self, number):
        self.runs.append(number)

    def results(self):
        return [2 * self.call.arrays["x0"]]

    def clock(self):
        self.now += 1
        return self.now


def prepared(server, tmp_path, op):
    PeerCall((PeerNode(op, ("x0",), ("y0",)),), {"x0": np.arange(3.0)}, frozenset(), ("y0",), 2).save(tmp_path)
    return server.answer({"do": "prepare", "key": "1", "folder": str(tmp_path)})


@pytest.mark.slow
def test_a_server_prepares_measures_and_closes(tmp_path):
    peer = Doubling()
    server = PeerServer(lambda: peer, peer.clock)
    assert server.answer({"do": "versions"})["versions"]["doubling"] == "2"
    ready = prepared(server, tmp_path, "Double")["ready"]
    assert ready == {"init": {"total": 1.0}, "cold": 1.0, "sets": 2, "footprint": 48}
    np.testing.assert_array_equal(load_outputs(tmp_path), [[0, 2, 4]])
    sample = server.answer({"do": "round", "key": "1", "calls": 4})["sample"]
    assert (sample["gpu"], sample["wall"], peer.runs) == (None, 0.25, [0, 0, 1, 2, 3])
    assert server.answer({"do": "close", "key": "1"}) == {}
    assert server.answer({"do": "round", "key": "1", "calls": 1}) == {"failed": "KeyError: '1'"}


def test_a_server_answers_by_errors(tmp_path):
    server = PeerServer(Doubling)
    assert prepared(server, tmp_path, "Halve") == {"refused": "only doubles"}

    def missing():
        raise ModuleNotFoundError("No module named 'fake'")

    assert PeerServer(missing).answer({"do": "versions"}) == {"refused": "No module named 'fake'"}


# ---- who there is


def test_interpreters_are_files_or_environments(tmp_path):
    python = tmp_path / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    python.parent.mkdir()
    python.touch()
    assert contestants.parse_environments([f"ncnn={tmp_path}", f"tinygrad={python}"]) == {
        "ncnn": str(python),
        "tinygrad": str(python),
    }
    with pytest.raises(InvalidArgument, match="no Python interpreter"):
        contestants.parse_environments([f"ncnn={tmp_path / 'missing'}"])
    with pytest.raises(InvalidArgument, match="must be NAME=PATH with one of webgpu-provider"):
        contestants.parse_environments(["numpy=x"])
    with pytest.raises(InvalidArgument, match="a peer must be one of"):
        contestants.choose_peers(["numpy"])
    assert contestants.choose_peers([]) == contestants.PEERS
    assert contestants.choose_peers(["ncnn"]) == (contestants.PEERS[2],)


def test_every_peer_has_a_module():
    for peer in contestants.PEERS:
        assert importlib.util.find_spec(peer.module) is not None


def test_calls_become_models_that_compute_the_same():
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32)
    call = PeerCall((PeerNode("MatMul", ("x0", "x1"), ("y0",)),), {"x0": x, "x1": w}, frozenset(["x1"]), ("y0",))
    model = onnx_models.model(call, first="first")
    assert [value_info.name for value_info in model.graph.input] == ["x0"]
    result, first = ReferenceEvaluator(model).run(None, {"x0": x})
    assert np.array_equal(result, x @ w)
    assert np.array_equal(first, (x @ w).reshape(-1)[:1])
    assert [value_info.name for value_info in onnx_models.model(call).graph.output] == ["y0"]


# ---- the table


def run_of(*measurements, ratio=0.0):
    peers = {"fast": {"is_gpu": True}, "slow": {"is_gpu": True}, "host": {"is_gpu": False}}
    return BenchRun({"peers": peers, "least_ratios": {"GEMM": ratio}}, tuple(measurements))


def test_ours_is_compared_with_the_best_peer_on_a_gpu():
    compared = run_of(
        measured(adapter="gpu", seconds=(0.002, 0.001) * 6, share=0.5, bound_by="copy"),
        measured(adapter="NumPy", seconds=(0.0001,) * 12),
        measured(adapter="fast", seconds=(0.004, 0.002) * 6),
        measured(adapter="slow", seconds=(0.5,) * 12),
        measured(adapter="host", seconds=(0.0001,) * 12),
        ratio=3.0,
    )
    (row,) = compare_peers(compared)
    assert row.cells() == [
        *("GEMM", "1.5", "3", "500", "0.1", "0.1"),
        *("fast", "2.00 [2.00, 2.00]", "3, missed", "50 % copy"),
    ]
    assert not row.is_met
    few = run_of(measured(seconds=(0.001,) * 3), measured(adapter="fast", seconds=(0.002,) * 3), ratio=3.0)
    assert [peer.is_met for peer in compare_peers(few)] == [True]  # not known yet
    assert summary([row]).startswith("1 rows: faster than the best peer on 1, slower on 0")
    assert compared.is_good


def test_peers_that_fail_or_compute_wrong_are_never_the_best():
    compared = run_of(
        measured(adapter="gpu"),
        measured(adapter="fast", seconds=(0.0001,) * 12, check="wrong"),
        measured(adapter="slow", seconds=(), status="failed", check="unchecked"),
        measured(adapter="host", seconds=(), status="refused", check="unchecked"),
    )
    (row,) = compare_peers(compared)
    assert [time_text(time) for time in row.theirs] == ["W", "x", "-", "-"]
    assert (row.best, row.ratio, row.is_met, summary([row])) == (None, None, True, "")
    assert compared.is_good  # what others cannot do is no fault of ours
    assert not run_of(measured(adapter="gpu", check="wrong")).is_good


def test_ours_run_one_at_a_time(monkeypatch):
    seen = []

    def ask(self, calls):
        seen.append(calls)
        return Sample(1e-9, float(len(seen)), 0.5)

    monkeypatch.setattr("dmlgpu.bench.worker.Remote.round", ask)
    contestant = OneByOne(None, "gpu", None)
    assert contestant.round(3) == Sample(None, 2.0, 0.5)
    assert seen == [1, 1, 1]


# ---- the command line


@pytest.mark.slow
def test_the_command_measures_a_peer_and_says_who_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(Ceilings(1e10, 1e10, 1e-6, 1e-6, "wall clock"), 0.0))
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "softmax_peer.py").write_text(SOFTMAX, encoding="utf-8")
    (modules / "gone_peer.py").write_text("import no_such_module_anywhere", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    fakes = (
        contestants.KnownPeer("fake", "softmax_peer", "fake"),
        contestants.KnownPeer("gone", "gone_peer", "gone-gpu"),
    )
    for function in (contestants.parse_environments, contestants.choose_peers):
        monkeypatch.setattr(function, "__defaults__", (fakes,))
    suite = tmp_path / "mine.toml"
    suite.write_text(
        '[[row]]\nwhat = "ACTIVATION_SOFTMAX1"\nname = "softmax"\nsizes = ["rows=columns=8"]\n'
        'onnx = ["y0 = Softmax <axis = 1> (x0)"]\n'
        '[[row]]\nwhat = "GEMM"\nname = "product"\nsizes = ["m=k=n=4"]\nonnx = ["y0 = MatMul (x0, x1)"]\n',
        encoding="utf-8",
    )
    path = tmp_path / "bench.jsonl"
    ran = run_here(
        "bench", suite, "-a", "numpy", "--budget", "0.05", "--peer-env", f"fake={sys.executable}", "-o", path
    )
    assert ran.returncode == 0, ran.stderr
    assert "gone is not installed (No module named 'no_such_module_anywhere'): pip install gone-gpu" in ran.stderr
    (run,) = read_file(path)
    assert run.facts["peers"]["fake"]["versions"]["fake"] == "1.5"
    checks = {
        (measurement.name, measurement.adapter): (measurement.status, measurement.check)
        for measurement in run.measurements
    }
    assert checks["softmax", "fake"] == ("measured", "right")
    assert checks["product", "fake"] == ("refused", "unchecked")
    assert checks["product", "numpy"] == ("measured", "right")
    assert "best on the adapter" in ran.stdout
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[0])["least_ratios"] == {
        "softmax": 0.0,
        "product": 0.0,
    }


def test_files_next_to_a_suite_can_be_its_rows(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dmlgpu import Graph\ngraph = Graph()\nx = graph.input((2, 3))\noutputs = [x + x]\n", encoding="utf-8"
    )
    suite = tmp_path / "mine.toml"
    suite.write_text('[[row]]\nwhat = "mine.py:outputs"\nonnx = ["y0 = Add (x0, x0)"]\n', encoding="utf-8")
    (spec,) = find_workloads([type(read_suite(suite)[0])(str(suite))])
    row = PeerRow(spec.workload, spec.more)
    (x,) = row.call.arrays.values()
    assert row.check([x + x]).status == "right"
