"""A short campaign, the corpus, and whether a campaign sees what goes wrong."""

from __future__ import annotations

import random

import numpy as np
import onnx.defs
import pytest

import dmlgpu
from dmlgpu.frontends.onnx import registry
from dmlgpu.frontends.onnx.operators import elementwise
from dmlgpu.runtime.numpy.backend import NumPyBackend
from tests.fuzz.campaign import Tally, run_seeds
from tests.fuzz.machine import LifeCycle, run_machine
from tests.fuzz.monitor import Monitor
from tests.fuzz.onnx_nodes.draw import GENERATORS, MICROSOFT, Draw, NodeCase
from tests.fuzz.onnx_nodes.models import Step, build
from tests.fuzz.targets import onnx as onnx_target
from tests.fuzz.targets.corpus import FILES

SHORT = {
    ("descriptions", "numpy"): range(300),
    ("descriptions", "gpu"): range(40),
    ("programs", "numpy"): range(150),
    ("graphs", "numpy"): range(150),
    ("graphs", "gpu"): range(3),
    ("models", "numpy"): range(150),
    ("records", "numpy"): range(60),
    ("life_cycle", "numpy"): range(1),
    ("life_cycle", "gpu"): range(1),
    ("arguments", "numpy"): range(2),
    ("arguments", "gpu"): range(1),
    ("interrupts", "numpy"): range(6),
    ("onnx", "numpy"): range(1000),
    ("onnx_graphs", "gpu"): range(40),
    ("onnx_sizes", "numpy"): range(20),
    ("onnx_sizes", "gpu"): range(1),
}
"""Seeds of each target that every run of the tests tries; ``scripts/fuzz`` continues from there.

Signals come when they come, so ``interrupts`` on a GPU is no test that is the same twice: tests/gpu has those.
"""


def requires(adapter: str) -> None:
    """Skip a test where the adapter is not there."""
    if adapter == "gpu" and len(dmlgpu.adapters()) == 1:
        pytest.skip("no GPU adapter, not even a software one")


def report(tally: Tally) -> str:
    """The findings, and how to see each again."""
    return "\n\n".join(
        f"{finding.kind} at {finding.place}\n{finding.command}\n{finding.detail}" for finding in tally.findings.values()
    )


@pytest.mark.parametrize(("target", "adapter"), SHORT, ids=map("-".join, SHORT))
def test_a_short_campaign_finds_nothing(target, adapter):
    requires(adapter)
    seeds = SHORT[target, adapter]
    tally = run_seeds(target, adapter, seeds.start, len(seeds))
    assert not tally.findings, report(tally)
    assert (tally.seeds, tally.calls >= tally.seeds) == (len(seeds), True)


@pytest.mark.parametrize("adapter", ["numpy", "gpu"])
def test_findings_stay_fixed(adapter):
    requires(adapter)
    tally = run_seeds("corpus", adapter, 0, len(FILES))
    assert not tally.findings, report(tally)
    assert tally.seeds == len(FILES) > 0


def test_faults_are_found_with_their_seed():
    """Result of each seed of ``faults``; the campaign continues after an abort and a hang."""
    findings = []
    tally = run_seeds("faults", "numpy", 0, 4, call_limit=5, on_finding=findings.append)
    tally.update(run_seeds("faults", "numpy", 4, 4, on_finding=findings.append))
    kinds = {
        (1, "KeyError"),
        (2, "abort"),
        (3, "hang"),
        (4, "MemoryError"),
        (5, "memory"),
        (6, "slow"),
        (7, "KeyError"),
    }
    # Memory takes its time, too.
    assert {(finding.seed, finding.kind) for finding in findings} - {(5, "slow")} == kinds
    assert findings[2].place == "tests/fuzz/targets/faults.py:<lambda>"
    assert findings[0].command == "scripts/fuzz --target faults --adapter numpy --seed 1"
    # The two exceptions of one kind at one place are one finding, met twice.
    assert (tally.seeds, tally.counts[findings[0].key]) == (8, 2)


@pytest.mark.parametrize("method", ["copy", "write"])
def test_the_machine_notices_memory_that_is_not_as_it_should_be(monkeypatch, method):
    right = getattr(NumPyBackend, method)
    wrong = {
        "copy": lambda self, *ranges: lambda: None,
        "write": lambda self, buffer, offset, data: right(self, buffer, offset, data[:-1]),
    }
    monkeypatch.setattr(NumPyBackend, method, wrong[method])
    monitor = Monitor("life_cycle", "numpy")
    for seed in range(4):
        run_machine(LifeCycle, seed, monitor)
    assert "wrong memory" in {finding.kind for finding in monitor.findings}


def test_messages_are_bounded_and_exceptions_documented():
    monitor = Monitor("", "")

    def fail(error: BaseException) -> None:
        raise error

    for error in (dmlgpu.InvalidArgument("x"), TypeError("x"), dmlgpu.DmlError("x" * 5000)):
        monitor.call(fail, error)
    assert [(finding.kind, finding.place) for finding in monitor.findings] == [
        ("TypeError", "tests/fuzz/test_fuzz.py:fail"),
        ("long message", "tests/fuzz/test_fuzz.py:fail"),
    ]
    assert (monitor.calls, monitor.refused) == (3, 3)


def test_every_operator_of_the_onnx_front_end_is_drawn():
    """Those that have a translation, those that ONNX defines by others, and what the host computes or decides."""
    names = {(domain, name) for domain in ("", MICROSOFT) for name in registry.names(domain)}
    newest = {schema.name: schema for schema in onnx.defs.get_all_schemas() if not schema.domain}
    names |= {
        ("", name) for name, schema in newest.items() if schema.has_function or schema.has_context_dependent_function
    }
    names |= {("", name) for name in ("Constant", "If", "Loop", "Scan", "Shape", "Size")}
    containers = {("", "SequenceMap")}  # of which tests/unit/frontends/onnx/test_onnx_containers.py draws programs
    for domain, name in names:
        translator = registry.find(domain, name, onnx.defs.onnx_opset_version())
        if translator is not None and translator.of_containers:
            containers.add((domain, name))
    assert names - containers == GENERATORS.keys()


def test_wrong_results_and_rejections_of_onnx_nodes_are_found(monkeypatch):
    """Alone and in graphs, where the node that is wrong is named."""
    monitor = Monitor("onnx", "numpy")
    rng = random.Random(0)
    monkeypatch.setitem(elementwise.UNARY, "Neg", elementwise.UNARY["Abs"])
    monkeypatch.setitem(elementwise.BINARY, "And", lambda a, b: unsupported())
    for name in ("Neg", "Abs", "And"):
        case = GENERATORS["", name](Draw(rng, name, "", 17))
        onnx_target.compare(build([case], rng), monitor)
    places = [(finding.kind, finding.place) for finding in monitor.findings]
    assert places == [("wrong result", "Neg"), ("refused", "And: And _: cannot")]
    x = np.arange(-4, 4, dtype=np.float32)
    y, z = np.exp(x), -np.exp(x)
    steps = [Step(NodeCase("Exp", "", 17, [x], {}), [y]), Step(NodeCase("Neg", "", 17, [y], {}), [z])]
    onnx_target.compare_graph(steps, rng, monitor)
    assert [finding.place for finding in monitor.findings[2:]] == ["Neg"]


def unsupported():
    raise dmlgpu.NotSupported("cannot")
