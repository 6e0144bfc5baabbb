"""Cutting of failing programs of several kernels to the first kernel whose result is wrong.

Another driver, on which the program passes, computes what buffers hold between kernels. The failing driver continues
from there: the kernel is at fault if its own result makes the outputs wrong, and the other driver's does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.tolerance import Array, as_bits, ulp
from dmlgpu.export.bugs.programs import BugProgram, program_of
from dmlgpu.export.bugs.runners import RunnerResult
from dmlgpu.export.cases import Entry, described
from dmlgpu.export.layout import Uploads

RELATIVE, OF_LARGEST = 2.0**-12, 2.0**-16
"""Allowed differences of float32 elements between kernels, relative to the element and to the largest one: drivers may
round differently, and no tolerance of a test case covers these elements."""

FLOAT16_ULPS: Final = 2
"""ULP by which float16 elements may differ, instead of the part of the element: kernels compute them in float32."""

_PLAUSIBLE: Final = (1e-20, 1e20)
"""Magnitudes of float32 elements; integers and pairs of smaller elements are outside, except large ones."""

Run = Callable[[BugProgram], RunnerResult]
State = Sequence[bytes]
"""Contents of all buffers."""


@dataclass(frozen=True)
class CutProgram:
    """The end of a program from its first wrong kernel, or this kernel alone.

    Attributes:
        program: The program.
        result: Its result on the failing driver.
        kernel: 1-based number of the kernel among the dispatches of the whole program.
        is_alone: Whether it is the only kernel; if not, the difference shows in the outputs of the case only.
    """

    program: BugProgram
    result: RunnerResult
    kernel: int
    is_alone: bool


def cut(program: BugProgram, result: RunnerResult, suspect: Run, judge: Run) -> CutProgram | None:
    """Return a failing program, cut to its first wrong kernel; None if it does not pass with the other driver.

    Args:
        program: A program with several dispatches and wrong outputs.
        result: Its result on the failing driver.
        suspect: Runs a program on the failing driver.
        judge: Runs a program on the other driver.
    """
    if judge(program).status != "pass":
        return None
    states = {0: [program.files[buffer["file"]] for buffer in program.manifest["buffers"]]}

    def state(count: int) -> State | None:
        """Return what buffers hold after some dispatches."""
        if count not in states:
            known = judge(_prefix(program, count)).actual
            if len(known) == len(states[0]):
                states[count] = [known[f"actual-{index}.bin"] for index in range(len(known))]
        return states.get(count)

    ends = {0: (program, result)}
    wrong, right = 0, len(program.manifest["dispatches"])
    while right - wrong > 1:
        middle = (wrong + right) // 2
        contents = state(middle)
        if contents is None:
            return None
        end = _program(program, slice(middle, None), contents, None)
        ended = suspect(end)
        ends[middle] = end, ended
        wrong, right = (middle, right) if ended.status == result.status else (wrong, middle)
    before, after = state(wrong), state(wrong + 1)
    if before is not None and after is not None:
        alone = _program(program, slice(wrong, wrong + 1), before, after)
        alone_result = suspect(alone)
        if alone_result.status == result.status and judge(alone).status == "pass":
            return CutProgram(alone, alone_result, wrong + 1, True)
    return CutProgram(*ends[wrong], wrong + 1, False)


def _prefix(program: BugProgram, count: int) -> BugProgram:
    """Return the first dispatches of a program, whose outputs are all buffers; they are compared with zeros."""
    files, outputs = dict(program.files), []
    for index, buffer in enumerate(program.manifest["buffers"]):
        words = buffer["bytes"] // 4
        files |= {f"zeros-{index}.bin": bytes(4 * words), f"allowed-zeros-{index}.bin": bytes(8 * words)}
        expected = {"expected": f"zeros-{index}.bin", "allowed": f"allowed-zeros-{index}.bin"}
        place = {"buffer": index, "offset": 0, "bytes": 4 * words}
        shape = {"type": "uint32", "sizes": [words], "strides": [1]}
        outputs.append({"label": buffer["name"], **place, **shape, **expected})
    dispatches = program.manifest["dispatches"][:count]
    return replace(program, manifest={**program.manifest, "dispatches": dispatches, "outputs": outputs}, files=files)


def _program(program: BugProgram, part: slice, before: State, after: State | None) -> BugProgram:
    """Return some dispatches of a program.

    Args:
        program: The program.
        part: The dispatches.
        before: Contents of buffers before them.
        after: Contents after them, which are expected; None expects the outputs of the program.
    """
    (run,) = program.entry["runs"]
    uploads = Uploads()
    uploads.place(program.data)
    dispatches = [*run["initialization"], *run["dispatches"]][part]
    if after is None:
        views = [run["tensors"][output["tensor"]] for output in run["outputs"]]
        outputs = list(run["outputs"])
    else:
        changed = [bound for bound in _ranges(dispatches) if _part(before, bound) != _part(after, bound)]
        views = [
            {"buffer": buffer, "offset": offset, "bytes": size, "label": run["buffers"][buffer]["name"]}
            for buffer, offset, size in changed
        ]
        is_float16 = all(stores_float16(run["shaders"][dispatch["shader"]]["code"]) for dispatch in dispatches)
        outputs = [_expected(_part(before, bound), _part(after, bound), uploads, is_float16) for bound in changed]
    buffers = sorted({buffer for buffer, _, _ in _ranges(dispatches)} | {view["buffer"] for view in views})
    shaders = sorted({dispatch["shader"] for dispatch in dispatches})
    blocks = sorted({dispatch["parameters"] for dispatch in dispatches})
    # Contents count where several tensors share a buffer: they come last.
    whole = [
        {
            "buffer": buffers.index(index),
            "offset": 0,
            "bytes": len(before[index]),
            "label": run["buffers"][index]["name"],
            "data": [uploads.place(before[index]), len(before[index])],
        }
        for index in buffers
    ]
    views = [
        {**{name: value for name, value in view.items() if name != "data"}, "buffer": buffers.index(view["buffer"])}
        for view in views
    ]
    labels = [view["label"] for view in views]
    cut_run = {
        "buffers": [run["buffers"][index] for index in buffers],
        "uploads": [],
        "parameters": [run["parameters"][index] for index in blocks],
        "shaders": [run["shaders"][index] for index in shaders],
        "initialization": [],
        "dispatches": [
            {
                **dispatch,
                "shader": shaders.index(dispatch["shader"]),
                "parameters": blocks.index(dispatch["parameters"]),
                "bind": [[buffers.index(buffer), offset, size] for buffer, offset, size in dispatch["bind"]],
            }
            for dispatch in dispatches
        ],
        "tensors": [*views, *whole],
        "poisoned": [],
        "kernels": list(dict.fromkeys(run["shaders"][dispatch["shader"]]["label"] for dispatch in dispatches)),
        "outputs": [
            {"label": label, **output, "tensor": index}
            for index, (label, output) in enumerate(zip(labels, outputs, strict=True))
        ],
    }
    tolerance = (
        program.entry["tolerance"]
        if after is None
        else f"2^-12 of float32 elements, {FLOAT16_ULPS} ULP of float16 elements, else exact"
    )
    entry = {"name": program.entry["name"], "tolerance": tolerance, "runs": [cut_run]}
    return program_of(program.case, entry, uploads.data)


def _ranges(dispatches: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    """Return the bound ranges of dispatches, each once: buffer, offset and size."""
    return list(dict.fromkeys((bound[0], bound[1], bound[2]) for dispatch in dispatches for bound in dispatch["bind"]))


def _part(state: State, bound: tuple[int, int, int]) -> bytes:
    """Return the bytes of a range."""
    buffer, offset, size = bound
    return state[buffer][offset : offset + size]


def _expected(before: bytes, after: bytes, uploads: Uploads, is_float16: bool) -> Entry:
    """Return an output for the page, of float16 elements, else of float32 elements or of words."""
    words, earlier_words = np.frombuffer(after, np.uint32), np.frombuffer(before, np.uint32)
    is_float = is_float16 or are_floats(words[words != earlier_words])
    data_type = DataType.FLOAT16 if is_float16 else DataType.FLOAT32 if is_float else DataType.UINT32
    elements, earlier = words.view(data_type.numpy), earlier_words.view(data_type.numpy)
    tensor = TensorDesc(data_type, elements.shape)
    outcome: Entry = {"expected": [uploads.place(after), len(after)]}
    if not is_float:
        return {**described(tensor), "rule": {"bits": True}, "outcomes": [outcome]}
    is_changed = (as_bits(elements) != as_bits(earlier)) & np.isfinite(elements)
    with np.errstate(invalid="ignore"):
        sizes = np.where(is_changed, np.abs(elements.astype(np.float64)), 0.0)
    own = FLOAT16_ULPS * ulp(elements) if is_float16 else RELATIVE * sizes
    allowed = np.where(is_changed, own + OF_LARGEST * sizes.max(initial=0.0), 0.0)
    numbers = allowed.astype("<f8").tobytes()
    outcome["numbers"] = [uploads.place(numbers), len(numbers)]
    rule = {"bits": True, "near": True, "flush": True, "error": "share", "bound": "number"}
    return {**described(tensor), "rule": rule, "outcomes": [outcome]}


def stores_float16(code: str) -> bool:
    """Return whether a kernel encodes its output as float16, which contents of buffers cannot tell from float32."""
    _, _, rest = code.partition("fn output_bits(")
    return "half_of_" in rest.partition("}")[0]


def are_floats(words: Array) -> bool:
    """Return whether words are probably float32 elements: finite numbers of usual magnitude, or zeros."""
    with np.errstate(invalid="ignore"):
        sizes = np.abs(words.view(np.float32).astype(np.float64))
        low, high = _PLAUSIBLE
        return bool(((sizes == 0) | ((sizes > low) & (sizes < high))).all())
