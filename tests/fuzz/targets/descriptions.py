"""Valid descriptions of all operators, changed: refused with a clear sentence, or computed as the reference does."""

from __future__ import annotations

import copy
import functools
import pickle
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.tolerance import Bound, Tolerance, ulp_distance
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.features import OperatorSupportQuery
from tests.fuzz.description_mutations import mutate
from tests.fuzz.devices import check_usable, shared_device
from tests.fuzz.monitor import Monitor, Refused, shown

MAX_BYTES = 1 << 18
"""Of all tensors of an operator that is executed."""

EXECUTED = 0.5
"""The part of the accepted descriptions that are executed on the reference; on a GPU it is a tenth of that."""


def run(seed: int, monitor: Monitor) -> None:
    """Change one case's description."""
    rng = random.Random(f"descriptions {seed}")
    device = shared_device(monitor.adapter)
    case = draw_case(rng)
    monitor.subject = lambda: f"from {case.name}"
    desc = mutate(case.desc, rng, monitor)
    if isinstance(desc, Refused):
        return
    assert isinstance(desc, OperatorDesc)
    monitor.subject = lambda: f"from {case.name}: {shown(desc, 3000)}"
    _check_value(desc, monitor)
    if rng.random() < 0.1:
        monitor.call(device.check_feature_support, OperatorSupportQuery(desc))
    operator = monitor.call(device.create_operator, desc)
    part = EXECUTED if monitor.adapter == "numpy" else EXECUTED / 10
    if isinstance(operator, Refused) or rng.random() > part:
        return
    if _is_small(desc):
        _execute(replace(case, desc=desc, in_place=None), case, device, rng, monitor)
    else:
        flags = rng.choice((ExecutionFlags.NONE, ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION))
        monitor.call(device.compile_operator, operator, flags)
    check_usable(device, monitor)


def draw_case(rng: random.Random) -> Case:
    """A case of any operator: one of the quick profile, or any."""
    cases = OPERATOR_CASES[rng.choice(_stems())]
    if names := rng.random() < 0.5 and cases.names("quick"):
        return cases.case(rng.choice(names))
    return cases.case_of(cases._draw(rng.randrange(10**6)))


@functools.cache
def _stems() -> tuple[str, ...]:
    return tuple(OPERATOR_CASES)


def _check_value(desc: OperatorDesc, monitor: Monitor) -> None:
    """A description is a value: it can be copied, compared, pickled and shown."""
    copies = (monitor.call(copy.copy, desc), monitor.call(lambda: pickle.loads(pickle.dumps(desc))))
    for duplicate in copies:
        monitor.check(
            isinstance(duplicate, Refused) or (duplicate == desc and hash(duplicate) == hash(desc)),
            "unequal copy",
            desc.operator,
        )
    monitor.call(repr, desc)


def _is_small(desc: OperatorDesc) -> bool:
    tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
    return sum(max(tensor.byte_size, 8 * tensor.element_count) for tensor in tensors) <= MAX_BYTES


def _execute(case: Case, before: Case, device: Device, rng: random.Random, monitor: Monitor) -> None:
    """Run a case between sentinels and compare, by the case's own rules unless its description was changed."""
    seed = rng.randrange(2**32)
    alike = _shapes(case.desc) == _shapes(before.desc)
    same = alike and _attributes(case.desc) == _attributes(before.desc)

    def contents(generator: np.random.Generator) -> Arrays:
        arrays = before.fill(generator) if alike else _contents(case.desc, seed)
        return tuple(_as_stored(slot.tensor, array) for slot, array in zip(case.desc.inputs, arrays, strict=True))

    case = replace(case, fill=contents, documented=None)
    if not same:
        case = replace(case, tolerance=Close(), alternatives=None, magnitude=None)
    verdict = monitor.call(run_case, case, device)
    if isinstance(verdict, Refused):
        return
    if verdict.problem:
        monitor.note("wrong memory", case.desc.operator, str(verdict))
    elif not verdict.ok:
        monitor.note("wrong result" if same else "far from the reference", case.desc.operator, str(verdict))


@dataclass(frozen=True)
class Close(Tolerance):
    """About right, where no bound is known: rounding may pile up, but NaN must not come up."""

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Equal integers; floats within a twentieth of their size, or of the largest of all."""
        if expected.dtype.kind != "f":
            return expected == got
        with np.errstate(all="ignore"):  # NaN that signal, too
            reference, result = expected.astype(np.float64), got.astype(np.float64)
            finite = np.isfinite(reference)
            near = np.abs(reference - result) <= 0.05 * np.abs(reference[finite]).max(initial=1.0)
        return near | (ulp_distance(expected, got) <= 16)

    def __str__(self) -> str:
        return "about right"


def _shapes(desc: OperatorDesc) -> list[Any]:
    """What the contents of inputs depend on."""
    return [slot.tensor and (slot.tensor.data_type, slot.tensor.sizes) for slot in (*desc.inputs, *desc.outputs)]


def _attributes(desc: OperatorDesc) -> list[str]:
    """All but the tensors, as text: NaN equals NaN."""
    tensors = {*desc.input_fields, *desc.output_fields}
    return [repr(value) for name, value in desc.values.items() if name not in tensors]


def _contents(desc: OperatorDesc, seed: int) -> Arrays:
    """Small numbers, so that indices, lengths and zero points often lie in their range."""
    rng = np.random.default_rng(seed)
    return tuple(None if slot.tensor is None else _numbers(slot.tensor, rng) for slot in desc.inputs)


def _numbers(tensor: TensorDesc, rng: np.random.Generator) -> Array:
    low = -2 if tensor.data_type.is_float else 0
    return rng.integers(low, 4, tensor.sizes).astype(tensor.data_type.numpy)


def _as_stored(tensor: TensorDesc | None, array: Array | None) -> Array | None:
    """The array as memory holds it, where several elements may share a place."""
    if tensor is None or array is None or not has_overlap(tensor.sizes, tensor.element_strides):
        return array
    return tensor.decode(tensor.encode(array))
