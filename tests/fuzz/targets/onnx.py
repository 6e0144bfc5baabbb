"""ONNX models of one node or a few, of all operators: computed as onnxruntime or ONNX's reference does, or refused."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.onnx import load
from tests.fuzz.devices import shared_device
from tests.fuzz.monitor import Monitor, Refused
from tests.fuzz.onnx_nodes import formulas, known, oracles
from tests.fuzz.onnx_nodes.draw import Array, NodeCase
from tests.fuzz.onnx_nodes.models import Drawn, Outputs, Step, build, chain, ends, malformed, single

_MALFORMED = 0.12
_CHAINED = 0.25
_CHAIN_FACTOR = 4.0
"""By how much tolerances grow where several nodes round."""


def run(seed: int, monitor: Monitor) -> None:
    """Compare one model."""
    rng = random.Random(f"onnx {seed}")
    kind = rng.random()
    if kind < _CHAINED:
        run_graph(rng, monitor)
        return
    case = single(rng)
    wrong = ""
    if kind > 1 - _MALFORMED:
        case, wrong = malformed(case, rng)
    drawn = build([case], rng, malformed=wrong)
    compare(drawn, monitor)


def run_graph(rng: random.Random, monitor: Monitor) -> None:
    """Compare one graph with what an oracle computes node by node."""
    steps = chain(rng, _computed)
    if steps:
        compare_graph(steps, rng, monitor)


def compare_graph(steps: Sequence[Step], rng: random.Random, monitor: Monitor) -> None:
    """Run a graph, and note which of its nodes are wrong, alone or together."""
    cases = [step.case for step in steps]
    outputs = [step.outputs for step in steps]
    drawn = build(cases, rng, ends(steps, rng), outputs)
    expected = [outputs[node][position] for node, position in drawn.outputs.values()]
    result = _computed_by_us(drawn, monitor)
    text = _verdict(drawn, result, oracles.Answer([array for array in expected if array is not None]), _CHAIN_FACTOR)
    if not text:
        _count(drawn, monitor, "equal in a graph")
        return
    _blame(steps, drawn, text, monitor, rng)


def _computed(case: NodeCase) -> Outputs | None:
    """What an oracle makes of a node, by position of its outputs; None where none computes it."""
    drawn = build([case], random.Random(0))
    for oracle in (oracles.runtime, oracles.reference):
        answer = oracle(drawn)
        if answer.outputs is not None:
            arrays: Outputs = [None] * case.outputs
            for (_, position), array in zip(drawn.outputs.values(), answer.outputs, strict=True):
                # Equal arrays are distinguished by identity.
                arrays[position] = np.array(array)
            return arrays
    return None


def _blame(steps: Sequence[Step], drawn: Drawn, text: str, monitor: Monitor, rng: random.Random) -> None:
    """Note what the fewest nodes of a graph do wrong."""
    nodes = list(range(len(steps)))
    best = drawn

    def check(numbers: list[int]) -> tuple[Drawn, str]:
        subset = [steps[number] for number in numbers]
        model = build([step.case for step in subset], random.Random(0), computed=[step.outputs for step in subset])
        expected = [subset[node].outputs[position] for node, position in model.outputs.values()]
        result = _computed_by_us(model, monitor)
        factor = 1.0 if len(numbers) == 1 else _CHAIN_FACTOR
        return model, _verdict(model, result, oracles.Answer([a for a in expected if a is not None]), factor)

    for number in nodes:
        model, reason = check([number])
        if reason:
            compare(model, monitor)
            return
    why = text
    for number in list(nodes):
        fewer = [other for other in nodes if other != number]
        if len(fewer) > 1:
            model, reason = check(fewer)
            if reason:
                nodes, best, why = fewer, model, reason
    subset = [steps[number] for number in nodes]
    if _is_ill_conditioned(subset, rng):
        _count(drawn, monitor, "ill-conditioned")
        return
    monitor.subject = best.describe
    place = " > ".join(step.case.label for step in subset)
    if best is drawn and drawn.model.functions:
        place = "local functions"
    monitor.note("refused" if why.startswith("refused") else "wrong result", place, why)


def _is_ill_conditioned(steps: Sequence[Step], rng: random.Random) -> bool:
    """Whether rounding what nodes hand to each other otherwise changes results beyond the tolerance."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    for _ in range(8):
        changed: dict[int, Array] = {}
        for step in steps:
            inputs = [None if array is None else changed.get(id(array), array) for array in step.case.inputs]
            captured = {name: changed.get(id(array), array) for name, array in step.case.captured.items()}
            case = replace(step.case, inputs=inputs, captured=captured)
            outputs = _computed(case)
            if outputs is None:
                return True
            for position, (old, new) in enumerate(zip(step.outputs, outputs, strict=True)):
                if old is None or new is None:
                    continue
                if new.shape != old.shape or oracles.difference(step.case, position, old, new, factor=_CHAIN_FACTOR):
                    return True
                changed[id(old)] = new
                if new.dtype.kind == "f" and not step.case.exact:
                    unit = np.finfo(new.dtype).eps * 8
                    with np.errstate(all="ignore"):
                        noise = unit * numbers.uniform(-1, 1, new.shape) * (np.abs(new) + step.case.scale / 16)
                        changed[id(old)] = np.asarray(new + noise, new.dtype)
    return False


def _computed_by_us(drawn: Drawn, monitor: Monitor) -> Any:
    monitor.subject = drawn.describe
    return monitor.call(_load_and_run, drawn, monitor.adapter)


def _load_and_run(drawn: Drawn, adapter: str) -> dict[str, Array]:
    return load(drawn.model, shared_device(adapter)).run(drawn.feeds)


def compare(drawn: Drawn, monitor: Monitor) -> None:
    """Run a model, and note where it is neither as an oracle has it nor refused for a reason."""
    result = _computed_by_us(drawn, monitor)
    (case,) = drawn.cases
    if isinstance(result, Refused):
        if not result.documented:
            return  # noted already
        reason = known.refusal(str(result.error), drawn)
        if reason or drawn.malformed:
            _count(drawn, monitor, reason or "malformed, refused")
            return
    refused = []
    texts = []
    for oracle in (oracles.runtime, oracles.reference, formulas.unsigned, formulas.by_formula, formulas.widened):
        if oracle in (formulas.by_formula, formulas.widened) and texts:
            break
        answer = oracles.apart(oracle, drawn) if oracles.may_abort(drawn) else oracle(drawn)
        if answer.outputs is None:
            refused.append(answer.reason)
            continue
        text = _verdict(drawn, result, answer)
        if not text:
            _count(drawn, monitor, f"equal to {oracle.__name__}")
            return
        texts.append(f"{oracle.__name__}: {text}")
    if not texts:
        _count(drawn, monitor, "no oracle computes it")
        if isinstance(result, Refused) and not drawn.malformed:
            _count(drawn, monitor, "all refuse")
        return
    if drawn.malformed and not texts[0].startswith("runtime"):
        # The reference validates few arguments.
        _count(drawn, monitor, "malformed, refused by onnxruntime")
        return
    if reason := known.wrong_oracle(drawn, texts):
        _count(drawn, monitor, reason)
        return
    monitor.subject = drawn.describe
    refusal = isinstance(result, Refused)
    kind = "refused" if refusal else "malformed, wrong result" if drawn.malformed else "wrong result"
    label = f"{case.label} in a function" if drawn.model.functions else case.label
    place = f"{label}: {_pattern(str(result.error))}" if refusal else label
    monitor.note(kind, place, "\n".join([*texts, *(f"refused: {reason[:300]}" for reason in refused)]))


def _pattern(message: str) -> str:
    """A message without what differs from case to case."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", re.sub(r"\[[^\]]*\]|'[^']*'", "_", message))[:110]


def _verdict(drawn: Drawn, result: Any, answer: oracles.Answer, factor: float = 1.0) -> str:
    """How a result differs from an oracle's; empty where it does not."""
    assert answer.outputs is not None
    if isinstance(result, Refused):
        if isinstance(result.error, DmlError) and known.refusal(str(result.error), drawn):
            return ""
        return f"refused: {result.error}"
    return oracles.differences(
        drawn.cases, drawn.outputs, answer.outputs, result, factor=factor, is_open=known.is_open(drawn)
    )


def _count(drawn: Drawn, monitor: Monitor, what: str) -> None:
    for case in drawn.cases:
        monitor.counts[f"{case.label}\t{what}"] += 1
