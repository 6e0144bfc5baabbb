"""Statistics of kernels compiled for AMD GPUs: parsed from RADV's output, written to files, compared.

Numbers of equal WGSL, GPU family and Mesa version are equal in every run, so any difference is a change.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dmlgpu.bench.validators import INVALID
from dmlgpu.common.errors import ModelError
from dmlgpu.common.files import first_record, whole_file
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.records import machine

MAX_VGPRS = 128
"""Vector registers above which a kernel counts as worse: at 128, four waves of 64 lanes fit on a SIMD of navi21."""

SHARE_STEP = 0.01
"""Smallest fall of a multiply-add share that counts."""

RECORD, FORMAT = "compiled", 1

_STATISTICS = {
    "VGPRs": "vgprs",
    "SGPRs": "sgprs",
    "Subgroups per SIMD": "waves",
    "Spilled VGPRs": "spilled_vgprs",
    "Spilled SGPRs": "spilled_sgprs",
    "Scratch size": "scratch_bytes",
    "LDS size": "shared_bytes",
    "Code size": "code_bytes",
    "Instructions": "instructions",
    "VALU": "valu",
    "SALU": "salu",
    "VMEM": "vmem",
    "SMEM": "smem",
    "Latency": "latency",
}
"""RADV's names of statistics, and those of this module."""

_GCN = (
    *("tahiti", "pitcairn", "verde", "oland", "hainan", "bonaire", "kaveri", "kabini", "hawaii", "tonga", "iceland"),
    *("carrizo", "fiji", "stoney", "polaris", "vega", "raven", "renoir", "mi100", "mi200", "gfx9"),
)
"""Beginnings of the names of families before RDNA."""

_LISTING = re.compile(r"^disasm:\n.*?(^BB0.*?\n)\n*Compute Shader:\n\*\*\* SHADER STATS", re.MULTILINE | re.DOTALL)
_STATISTIC = re.compile(r"^([A-Z][\w -]+): (\d+)$", re.MULTILINE)
_LABEL = re.compile(r"(BB\d+):?$")
_INSTRUCTION = re.compile(r"\t(?: ?\w+: .* = )?(\w+)|\(invalid instruction\)")  # not "(then repeated 6 times)"
_BRANCH = re.compile(r"\ts_c?branch\w*\s+(?:block:)?(BB\d+)")
_MULTIPLY_ADD = re.compile(r"\bv_(?:dual_|pk_)?(?:fma|fmac|fmaak|fmamk|fma_mix\w*|dot\w*|wmma\w*|mfma\w*|mad|mac)_")


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel compiled for a GPU family.

    Attributes:
        workload: Name of its workload.
        number: Its index among the different kernels of the workload.
        label: Name of the kernel; empty if the workload has none.
        family: The GPU family.
        status: ``compiled``, ``refused`` or ``failed``.
        message: Reason why it was not compiled.
        statistics: ``vgprs``, ``sgprs``: registers per lane and per wave; ``waves``: waves of 64 lanes that fit on a
            SIMD unit, by registers and shared memory; ``spilled_vgprs``, ``spilled_sgprs``, ``scratch_bytes``;
            ``shared_bytes`` per workgroup; ``code_bytes``; ``instructions`` in total, on vector and scalar units
            (``valu``, ``salu``), of vector, scalar and workgroup memory (``vmem``, ``smem``, ``lds``), ``waits``,
            ``barriers``; ``latency``: the compiler's estimate in cycles; ``loop_instructions``,
            ``loop_multiply_adds``: of the busiest loop.
        validation: Result of ``validators.validate`` by language; empty if not requested.
        listing: Instructions of the GPU; empty if not requested, or if an earlier kernel has the same WGSL.
        wgsl: Source; likewise.
    """

    workload: str
    number: int
    label: str
    family: str
    status: str = "compiled"
    message: str = ""
    statistics: Mapping[str, int] = field(default_factory=dict)
    validation: Mapping[str, str] = field(default_factory=dict, compare=False)
    listing: str = field(default="", compare=False)
    wgsl: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Workload and kernel."""
        return f"{self.workload}: {self.number} {self.label}" if self.label else self.workload

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Workload, index, label and family, which identify it across runs."""
        return self.workload, self.number, self.label, self.family

    @property
    def spills(self) -> bool:
        """Whether registers are spilled, or scratch memory is used."""
        return any(self.statistics.get(name) for name in ("spilled_vgprs", "spilled_sgprs", "scratch_bytes"))

    @property
    def is_good(self) -> bool:
        """Whether the kernel was compiled without spills, or is unsupported, and no validation failed."""
        return self.status != "failed" and not self.spills and not self.invalid

    @property
    def invalid(self) -> dict[str, str]:
        """Languages in which the kernel is invalid, with the message."""
        texts = self.validation.items()
        return {language: text.removeprefix(INVALID) for language, text in texts if text.startswith(INVALID)}

    @property
    def multiply_add_share(self) -> float | None:
        """Fraction of the busiest loop's instructions that multiply and add; None without such a loop."""
        multiply_adds = self.statistics.get("loop_multiply_adds")
        return multiply_adds / self.statistics["loop_instructions"] if multiply_adds else None

    def to_json(self) -> dict[str, Any]:
        """Return the kernel without sources, as JSON."""
        record = asdict(self)
        del record["listing"], record["wgsl"]
        return {name: value for name, value in record.items() if value not in ("", {})} | {"label": self.label}

    @classmethod
    def from_json(cls, record: Any) -> CompiledKernel:
        """Read the result of ``to_json``.

        Raises:
            ValueError: If a field is missing, unknown or malformed.
        """
        return cls(**fields.read_fields(record, _FIELDS, "workload", "number", "label", "family"))


_FIELDS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("workload", "label", "family", "status", "message"), fields.text),
    "number": fields.count,
    "statistics": fields.mapping_of(fields.count),
    "validation": fields.mapping_of(fields.text),
}


# ---- RADV's output ---------------------------------------------------------------------------------------------------


def parse_statistics(printed: str, family: str) -> tuple[dict[str, int], str]:
    """Parse the statistics and the listing of a kernel from RADV's output.

    RADV compiles compute kernels for waves of 64 lanes. It counts waves of RDNA in units of 32 lanes. Its disassembler
    is LLVM's; for families that LLVM does not know, it prints the instructions in the form of its own compiler.

    Args:
        printed: Output under ``RADV_DEBUG=shaderstats,asm``.
        family: The GPU family.

    Raises:
        ValueError: If the output has no statistics or no listing.
    """
    listing, numbers = _LISTING.search(printed), dict(_STATISTIC.findall(printed))
    if listing is None or not _STATISTICS.keys() <= numbers.keys():
        raise ValueError("RADV printed no statistics")
    statistics = {name: int(numbers[radv_name]) for radv_name, name in _STATISTICS.items()}
    if not family.startswith(_GCN):
        statistics["waves"] //= 2
    names = [match[1] or "" for line in listing[1].splitlines() if (match := _INSTRUCTION.match(line))]
    statistics["lds"] = sum(name.startswith("ds_") for name in names)
    statistics["waits"] = sum(name.startswith(("s_waitcnt", "s_wait_")) for name in names) - names.count(
        "s_waitcnt_depctr"  # for a hazard, not for memory
    )
    statistics["barriers"] = sum(name in ("s_barrier", "s_barrier_wait") for name in names)
    statistics["loop_instructions"], statistics["loop_multiply_adds"] = busiest_loop(listing[1])
    return statistics, listing[1]


def busiest_loop(listing: str) -> tuple[int, int]:
    """Return the numbers of instructions and multiply-adds of the loop with most multiply-adds, without inner loops;
    zeros if there is no loop.

    A dual instruction counts as two.
    """
    blocks = _blocks(listing)
    loops = _loops(blocks)
    best = (0, 0)
    for start, end in loops.items():
        inner = [(first, last) for first, last in loops.items() if start <= first and last <= end]
        inner.remove((start, end))
        own = [index for index in range(start, end + 1) if not any(a <= index <= b for a, b in inner)]
        text = [line for index in own for line in blocks[index][1]]
        multiply_adds = sum(len(_MULTIPLY_ADD.findall(line)) for line in text)
        best = max(best, (multiply_adds, len(text) + sum(line.count(" :: ") for line in text)))
    return best[1], best[0]


def has_loop(listing: str) -> bool:
    """Return whether a listing branches back."""
    return bool(_loops(_blocks(listing)))


def _blocks(listing: str) -> list[tuple[str, list[str]]]:
    """Return the label and the instructions of each basic block."""
    blocks: list[tuple[str, list[str]]] = []
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            blocks.append((label[1], []))
        elif blocks and _INSTRUCTION.match(line):
            blocks[-1][1].append(line.partition(";")[0])
    return blocks


def _loops(blocks: Sequence[tuple[str, Sequence[str]]]) -> dict[int, int]:
    """Return the indices of the first and the last block of each loop."""
    places = {label: index for index, (label, _) in enumerate(blocks)}
    loops: dict[int, int] = {}
    for index, (_, lines) in enumerate(blocks):
        for branch in filter(None, map(_BRANCH.match, lines)):
            start = places.get(branch[1], index + 1)
            if start <= index:
                loops[start] = index
    return loops


# ---- files -----------------------------------------------------------------------------------------------------------


def write_kernels(path: Path, drivers: Mapping[str, str], kernels: Iterable[CompiledKernel]) -> None:
    """Write kernels as JSON Lines, with a header.

    Args:
        path: The file.
        drivers: Adapter and driver by family.
        kernels: The kernels.

    Raises:
        OSError: If the file cannot be written.
    """
    header = {"record": RECORD, "format": FORMAT, **machine(), "drivers": dict(drivers)}
    with whole_file(path) as file:
        for record in (header, *(kernel.to_json() for kernel in kernels)):
            file.write(json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n")


def is_compiled_file(path: Path) -> bool:
    """Return whether a file starts as ``write_kernels`` writes it; False if it cannot be read."""
    return first_record(path).get("record") == RECORD


def read_kernels(path: Path) -> tuple[CompiledKernel, ...]:
    """Read a file of ``write_kernels``.

    Raises:
        ModelError: If it is malformed; the message names the line.
        OSError: If it cannot be read.
    """
    kernels = []
    with path.open("rb") as file:
        for line_number, line in enumerate(file, start=1):
            where = f"{path}, line {line_number}"
            try:
                record = json.loads(line)
                if line_number > 1:
                    kernels.append(CompiledKernel.from_json(record))
            except (ValueError, RecursionError) as error:
                raise ModelError(where, f"is not a compiled kernel: {error}") from error
            if line_number == 1 and not (isinstance(record, dict) and record.get("record") == RECORD):
                raise ModelError(where, "was not written by `dmlgpu bench compiled -o`")
            if line_number == 1 and record.get("format") != FORMAT:
                raise ModelError(f"{where}: format", f"must be {FORMAT}, got {record.get('format')!r}")
    if not kernels:
        raise ModelError(str(path), "has no kernels of `dmlgpu bench compiled`")
    return tuple(kernels)


# ---- comparison ------------------------------------------------------------------------------------------------------


class KernelChangeKind(enum.StrEnum):
    """Kinds of changes, the worst first."""

    WORSE = "worse"
    MISSING = "missing"
    CHANGED = "changed"
    NEW = "new"
    SAME = "same"


@dataclass(frozen=True)
class KernelChange:
    """A kernel before and after.

    Attributes:
        kind: Kind of the change.
        before, after: The kernel; None if missing.
        reasons: The statistics that got worse.
    """

    kind: KernelChangeKind
    before: CompiledKernel | None
    after: CompiledKernel | None
    reasons: tuple[str, ...] = ()

    @property
    def kernel(self) -> CompiledKernel:
        """The kernel after, or before if it is missing."""
        kernel = self.after or self.before
        assert kernel is not None
        return kernel

    @property
    def differences(self) -> dict[str, tuple[int, int]]:
        """Statistics that changed, before and after."""
        if self.before is None or self.after is None:
            return {}
        old, new = self.before.statistics, self.after.statistics
        return {name: (old[name], new[name]) for name in new if name in old and old[name] != new[name]}

    @property
    def ratio(self) -> float:
        """Number of instructions after divided by that before; 1 if unknown."""
        old, new = self.differences.get("instructions", (1, 1))
        return new / old if old else 1.0


def compare_kernels(before: Sequence[CompiledKernel], after: Sequence[CompiledKernel]) -> tuple[KernelChange, ...]:
    """Return the changes of all kernels, the worst first.

    A kernel is worse if it no longer compiles, if it spills more, if it has more vector registers and more than
    MAX_VGPRS, or if the multiply-add share of its busiest loop fell by SHARE_STEP or more. A kernel is missing if its
    workload was not compiled for the family. Kernels that their workload no longer has are omitted.
    """
    old = {kernel.key: kernel for kernel in before}
    new = {kernel.key: kernel for kernel in after}
    workloads = {(kernel.workload, kernel.family) for kernel in after}
    changes = [_change(old.get(key), kernel) for key, kernel in new.items()]
    changes += [
        KernelChange(KernelChangeKind.MISSING, kernel, None)
        for key, kernel in old.items()
        if key not in new and (kernel.workload, kernel.family) not in workloads
    ]
    order = list(KernelChangeKind)
    return tuple(sorted(changes, key=lambda change: (order.index(change.kind), -abs(change.ratio - 1))))


def _change(before: CompiledKernel | None, after: CompiledKernel) -> KernelChange:
    old = CompiledKernel("", 0, "", "") if before is None else before
    reasons = []
    if after.status == "failed" and old.status != "failed":
        reasons.append("does not compile")
    if after.status == "refused" and before is not None and before.status == "compiled":
        reasons.append("is refused")
    for name in ("spilled_vgprs", "spilled_sgprs", "scratch_bytes"):
        if after.statistics.get(name, 0) > old.statistics.get(name, 0):
            reasons.append(f"{name} {old.statistics.get(name, 0)} -> {after.statistics[name]}")
    if after.statistics.get("vgprs", 0) > max(MAX_VGPRS, old.statistics.get("vgprs", 0)):
        reasons.append(f"more than {MAX_VGPRS} VGPRs")
    was, now = old.multiply_add_share, after.multiply_add_share
    if was is not None and after.status == "compiled" and was - (now or 0.0) >= SHARE_STEP:
        reasons.append(f"multiply-add share {100 * was:.0f} % -> {100 * (now or 0.0):.0f} %")
    if reasons:
        return KernelChange(KernelChangeKind.WORSE, before, after, tuple(reasons))
    if before is None:
        return KernelChange(KernelChangeKind.NEW, None, after)
    return KernelChange(KernelChangeKind.SAME if before == after else KernelChangeKind.CHANGED, before, after)
