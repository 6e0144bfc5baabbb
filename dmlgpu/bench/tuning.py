"""Find the fastest choices for an adapter, and store them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from dmlgpu import __version__
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.prepared import PreparedOperator, Sample, retargeted
from dmlgpu.bench.ratios import MINIMUM_ROUNDS, Ratio, summarize
from dmlgpu.bench.samples import Contestant, ContestantSamples, Patience, measure
from dmlgpu.bench.workload import Workload
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.stages import stages
from dmlgpu.compiler.target import AdapterInfo, Target, Tuned
from dmlgpu.compiler.tuned_files import TunedFile, check_adapter, identity, read_tuned, tuned_file, tuned_folder
from dmlgpu.runtime.device import Device


class RecordingTable(Tuned):
    """A table of choices that records the questions, in order."""

    def __init__(self, answers: tuple[tuple[str, str], ...] = (), ceilings: tuple[tuple[str, float], ...] = ()):
        super().__init__(answers, ceilings)
        object.__setattr__(self, "questions", {})

    questions: dict[str, tuple[str, ...]]

    def answer(self, question: str, possible: Callable[[], Sequence[str]]) -> str:
        """Return the answer of the table, and record the candidates."""
        self.questions[question] = tuple(possible())
        return super().answer(question, possible)


def questions_of(workload: Workload, target: Target, answers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the open choices in scheduling a workload, given some answers, with their candidates, the built-in choice
    first.

    Raises:
        InvalidArgument: If the workload is an ONNX model, whose graphs depend on its inputs.
        DmlError: If it cannot be compiled for the target.
    """
    desc = workload.desc
    if desc is None:
        raise InvalidArgument(f"{workload.name}: models in ONNX are not tuned; their operators can be")
    known = target.overrides.tuned.with_answers(answers)
    table = RecordingTable(known.answers, known.ceilings)
    target = target.for_operators(workload.half_precision).with_overrides(tuned=table)
    if isinstance(desc, GraphDesc):
        compile_network(resolve(desc), target)
    else:
        stages(desc, target)
    return table.questions


SHARE_OF_FIRST = 0.2
"""Time of the first measurement of each choice, relative to the final."""


class TunedWorkload:
    """A workload under a table of choices.

    Args:
        device: Device to run on.
        workload: The workload.
        tuned: The table.
        checked: Whether results are compared with the reference.
    """

    schedule = ""

    def __init__(self, device: Device, workload: Workload, tuned: Tuned, checked: bool):
        self._device, self._workload, self._tuned, self._checked = device, workload, tuned, checked
        self._prepared: PreparedOperator | None = None
        self.adapter = str(device.adapter)

    def prepare(self) -> dict[str, Any]:
        """Compile the workload and run it once."""
        with retargeted(self._device, tuned=self._tuned):
            self._prepared = PreparedOperator(self._device, self._workload, checked=self._checked)
        return self._prepared.readiness.to_json()

    def round(self, calls: int) -> Sample:
        """Run it a number of times."""
        assert self._prepared is not None
        return self._prepared.round(calls)

    def close(self) -> None:
        """Free the buffers of the workload."""
        if self._prepared is not None:
            self._prepared.close()


def race_on(device: Device, budget: float) -> Race:
    """Return a function that measures on a device.

    Args:
        device: The device.
        budget: Seconds for each of two choices in a final.
    """

    def race(workload: Workload, tables: Sequence[Tuned], final: bool) -> list[ContestantSamples]:
        patience = Patience(0.02, budget) if final else Patience(0.05, budget * SHARE_OF_FIRST)
        contestants: list[Contestant] = [TunedWorkload(device, workload, table, final) for table in tables]
        return measure(contestants, patience)

    return race


@dataclass(frozen=True)
class TuningRecording:
    """Times of all answers to a question.

    Attributes:
        operator, sizes, data_type: The workload that asked it.
        question: The question.
        other_answers: Answers to other questions in effect when it was asked.
        ratios: Time of each measured answer relative to the built-in one.
    """

    operator: str
    sizes: Mapping[str, int]
    data_type: str
    question: str
    other_answers: Mapping[str, str]
    ratios: Mapping[str, float]

    @classmethod
    def of(cls, workload: Workload, finding: TuningFinding) -> TuningRecording:
        """Return the recording of a finding."""
        ratios = {answer: round(ratio, 3) for answer, ratio in finding.ratios.items()}
        return cls(
            workload.operator,
            dict(workload.sizes),
            workload.data_type,
            finding.question,
            dict(finding.other_answers),
            ratios,
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TuningRecording:
        """Return the recording written by ``to_json``."""
        return cls(**record)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def workload(self) -> Workload:
        """Return the workload. Raises InvalidArgument if it was not an operator with sizes."""
        (match,) = of_operator(self.operator, (self.sizes,), (DataType[self.data_type.upper()],))
        return match

    def excess(self, choice: str) -> float:
        """Return the time of a choice relative to the fastest one. Raises KeyError if it was not measured."""
        return self.ratios[choice] / min(self.ratios.values())


def load_choices(info: AdapterInfo, folder: Path | None = None) -> TunedFile:
    """Return the choices stored for an adapter; empty if there is no valid file."""
    path = tuned_file(info, folder)
    try:
        content = read_tuned(path)
        check_adapter(path, content, info)
    except (FileNotFoundError, InvalidArgument):
        return TunedFile(identity(info), {}, {}, __version__)
    return content


def save_choices(
    info: AdapterInfo,
    findings: Iterable[TuningFinding],
    folder: Path | None = None,
    ceilings: Mapping[str, float] | None = None,
) -> TunedFile:
    """Add faster choices to the file of an adapter, and return its content. If the built-in choice is the fastest,
    nothing is stored, since it may change.

    Args:
        info: The adapter.
        findings: Answers to questions.
        folder: Folder of the file; None for that of the user.
        ceilings: Measured rates of the adapter; None keeps those of the file.

    Raises:
        OSError: If the file cannot be written.
    """
    before = load_choices(info, folder)
    answers, ratios = dict(before.answers), dict(before.ratios)
    for finding in findings:
        answers.pop(finding.question, None)
        ratios.pop(finding.question, None)
        if finding.gains and finding.ratio is not None:
            answers[finding.question], ratios[finding.question] = finding.answer, round(finding.ratio.median, 3)
    content = TunedFile(identity(info), answers, ratios, __version__, before.ceilings if ceilings is None else ceilings)
    write_choices(tuned_file(info, folder), content)
    return content


def write_choices(path: Path, content: TunedFile) -> None:
    """Write a file of tuned choices.

    Raises:
        OSError: If it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as stream:
        stream.write((json.dumps(content.to_json(), indent=1, ensure_ascii=False) + "\n").encode())


def import_choices(info: AdapterInfo, path: Path, folder: Path | None = None) -> TunedFile:
    """Add the choices in a file to those of an adapter; the file takes precedence.

    Raises:
        InvalidArgument: If the file is invalid, or of another adapter or driver.
        OSError: If it cannot be read, or the choices not written.
    """
    shared = read_tuned(path)
    check_adapter(path, shared, info)
    before = load_choices(info, folder)
    answers, ratios = {**before.answers, **shared.answers}, {**before.ratios, **shared.ratios}
    content = TunedFile(identity(info), answers, ratios, shared.version, shared.ceilings or before.ceilings)
    write_choices(tuned_file(info, folder), content)
    return content


def clear_choices(info: AdapterInfo, folder: Path | None = None) -> bool:
    """Delete an adapter's file; return whether there was one."""
    path = tuned_file(info, folder)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def list_choices(folder: Path | None = None) -> list[tuple[Path, TunedFile | None, str]]:
    """Return all files, each with its content, or the reason why it is invalid."""
    files: list[tuple[Path, TunedFile | None, str]] = []
    for path in sorted((folder or tuned_folder()).glob("*.json")):
        try:
            files.append((path, read_tuned(path), ""))
        except (InvalidArgument, OSError) as error:
            files.append((path, None, str(error)))
    return files


Race: TypeAlias = Callable[[Workload, Sequence[Tuned], bool], Sequence[ContestantSamples]]
"""Measures a workload under tables of choices, interleaved. The last argument says whether it is the final, which
takes longer and checks results."""

TOGETHER = 4
"""Number of tables measured interleaved at a time, including the built-in choice: each has its buffers."""

MAX_FINALS = 4
"""Maximum number of finals until the best choice is among them."""

MIN_GAIN = 0.03
"""Minimum relative gain, beyond doubt, for a choice to be stored."""


@dataclass(frozen=True)
class TuningFinding:
    """Answer to a question.

    Attributes:
        question: The question.
        built_in: The built-in choice.
        answer: The stored choice: the built-in one, unless another is faster beyond doubt.
        ratio: Time of the fastest other choice relative to the built-in one; None if there is no other.
        ratios: The same for every measured choice, less precisely; 1 for the built-in one.
        other_answers: Answers to other questions of the workload that were faster than the built-in ones.
    """

    question: str
    built_in: str
    answer: str
    ratio: Ratio | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    other_answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def gains(self) -> bool:
        """Whether tuning found a faster choice."""
        return self.answer != self.built_in


def _silent(text: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Search:
    """Search for the fastest choices in scheduling a workload.

    Attributes:
        workload: An operator or a graph.
        target: Target of the adapter.
        race: Measures.
        tell: Called with the current activity.
    """

    workload: Workload
    target: Target
    race: Race
    tell: Callable[[str], None] = _silent

    def findings(self, known: Mapping[str, str]) -> Iterator[TuningFinding]:
        """Yield the answer to each question, with earlier answers in effect, since they determine later questions.

        Args:
            known: Answers that are not searched for again.

        Raises:
            DmlError: If the workload cannot be compiled.
        """
        answers = dict(known)
        while True:
            questions = questions_of(self.workload, self.target, answers)
            question = next((name for name in questions if name not in answers), None)
            if question is None:
                return
            faster = {
                name: answers[name] for name in questions if answers.get(name, questions[name][0]) != questions[name][0]
            }
            finding = replace(self._find(question, questions[question], answers), other_answers=faster)
            yield finding
            answers[question] = finding.answer

    def _find(self, question: str, possible: Sequence[str], answers: Mapping[str, str]) -> TuningFinding:
        """Measure all answers with the built-in choice, and the best ones again, for longer."""
        built_in, *others = possible
        ratios = {built_in: 1.0}
        for first in range(0, len(others), TOGETHER - 1):
            batch = others[first : first + TOGETHER - 1]
            self.tell(f"{question}: {first + len(batch)} of {len(others)} choices")
            tuned = self.target.overrides.tuned
            tables = [tuned.with_answers({**answers, question: candidate}) for candidate in (built_in, *batch)]
            base, *measured = self.race(self.workload, tables, False)
            pairs = zip(batch, measured, strict=True)
            ratios |= {
                answer: _ratio(candidate, base).median for answer, candidate in pairs if _is_good(candidate, base)
            }
        finals: dict[str, Ratio] = {}
        while len(finals) < MAX_FINALS:
            # A choice that only seemed fast gives way to the next one.
            best = min(ratios, key=ratios.__getitem__, default=built_in)
            if best in finals or (best == built_in and (finals or len(ratios) == 1)):
                break
            if best == built_in:
                best = min((ratio for ratio in ratios if ratio != built_in), key=ratios.__getitem__)
            self.tell(f"{question}: {best} against {built_in}")
            final = self._final(question, answers, built_in, best)
            if final is not None:
                finals[best] = final
                ratios[best] = final.median
            else:
                del ratios[best]
        if not finals:
            return TuningFinding(question, built_in, built_in, None, ratios)
        best, ratio = min(finals.items(), key=lambda candidate: candidate[1].median)
        if _is_sure(ratio):
            # Addresses of buffers, or other load of the machine, may favor one of them throughout a final.
            again = self._final(question, answers, built_in, best, best_first=True)
            if again is None or not _is_sure(again):
                return TuningFinding(question, built_in, built_in, again or ratio, ratios)
            return TuningFinding(
                question, built_in, best, max(ratio, again, key=lambda candidate: candidate.median), ratios
            )
        return TuningFinding(question, built_in, built_in, ratio, ratios)

    def _final(
        self, question: str, answers: Mapping[str, str], built_in: str, best: str, *, best_first: bool = False
    ) -> Ratio | None:
        """Return the time of a choice relative to the built-in one; None if it cannot be measured or is wrong."""
        order = (best, built_in) if best_first else (built_in, best)
        tables = [self.target.overrides.tuned.with_answers({**answers, question: answer}) for answer in order]
        measured = self.race(self.workload, tables, True)
        final, base = (measured[order.index(answer)] for answer in (best, built_in))
        return _ratio(final, base) if _is_good(final, base) else None


def _is_good(measured: ContestantSamples, base: ContestantSamples) -> bool:
    """Return whether a choice was measured together with the built-in one, and its results are correct."""
    wrong = measured.readiness.get("check", {}).get("status") == "wrong"
    return measured.status == base.status == "measured" and not wrong and bool(measured.samples)


def _is_sure(ratio: Ratio) -> bool:
    return ratio.rounds >= MINIMUM_ROUNDS and ratio.high <= 1 - MIN_GAIN


def _ratio(measured: ContestantSamples, base: ContestantSamples) -> Ratio:
    return summarize(measured.seconds, base.seconds)


def summary(findings: Sequence[TuningFinding]) -> str:
    """Return the number of choices that tuning improved, and the average gain."""
    gains = [finding.ratio.median for finding in findings if finding.gains and finding.ratio is not None]
    if not gains:
        return f"faster than the built-in choice: 0 of {len(findings)}"
    mean = statistics.geometric_mean(gains)
    return f"faster than the built-in choice: {len(gains)} of {len(findings)}, on average {mean:.2f} of its time"
