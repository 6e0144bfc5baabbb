"""``dmlgpu bench --predict CARD``: predicted times of workloads on a described GPU."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dmlgpu.bench.choosing import schedules_of
from dmlgpu.bench.predicting import (
    STAND_IN,
    Prediction,
    PredictionChange,
    compare_predictions,
    is_prediction_file,
    predict,
    prediction_facts,
    read_predictions,
    target_of_card,
    write_predictions,
)
from dmlgpu.bench.radv import missing_parts
from dmlgpu.bench.ratios import duration
from dmlgpu.bench.workload import Workload
from dmlgpu.cli.bench import ALL, BenchRequest, check_schedules
from dmlgpu.cli.tables import table
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.cards import STREAMED, GpuCard, cards, find_card

LIST = "list"
"""Value of ``--predict`` that lists the cards."""


def list_cards(*, as_json: bool = False) -> None:
    """Print the cards with their figures and sources."""
    if as_json:
        print(json.dumps([prediction_facts(card, ())["card"] for card in cards().values()], indent=2))
        return
    rows = [
        (
            card.name,
            str(card.cores),
            f"{card.clock / 1e9:.2f}",
            f"{2 * card.multiply_adds / 1e12:.1f}",
            f"{card.memory / STREAMED / 1e9:.0f}",
            f"{card.cache / (1 << 20):.0f}",
            card.source.partition(";")[0],
        )
        for card in cards().values()
    ]
    table(("card", "cores", "GHz", "TFLOP/s", "GB/s", "cache MiB", "source"), rows, right=range(1, 6))


def bench_predict(name: str, request: BenchRequest) -> bool:
    """Print predicted times of workloads on a card, with their limits.

    Args:
        name: Name of the card.
        request: Workloads to predict, and the output.

    Returns:
        True if everything is predicted or unsupported.

    Raises:
        InvalidArgument: If no card has the name, or an option is for measurements.
        OSError: If the output cannot be written.
    """
    card = find_card(name)
    _check(request)
    workloads = tuple(
        replace(subject.workload, schedule=schedule)
        for subject in request.subjects
        for schedule in _schedules(subject.workload, subject.schedules, card)
    )
    if not request.as_json:
        print_card(card)
    predictions = []
    for prediction in predict(workloads, card):
        predictions.append(prediction)
        if not request.as_json:
            print_prediction(prediction)
    if request.output is not None:
        write_predictions(request.output, card, request.command, predictions)
    if request.as_json:
        records = [prediction.to_json() for prediction in predictions]
        print(json.dumps({**prediction_facts(card, request.command), "predictions": records}, indent=2))
    return not any(prediction.status == "failed" for prediction in predictions)


def _check(request: BenchRequest) -> None:
    """Raise InvalidArgument for options that only measurements have, and for unknown schedules."""
    options = {
        "--adapter": request.adapters,
        "--drivers": request.drivers,
        "--ceilings": request.ceilings,
        "--numpy": request.numpy,
        "--peer": request.peers,
        "--plot": request.plot,
    }
    measuring = [option for option, value in options.items() if value]
    if measuring:
        raise InvalidArgument(f"--predict measures nothing, so it cannot be combined with {', '.join(measuring)}")
    check_schedules(request)


def _schedules(workload: Workload, requested: Sequence[str], card: GpuCard) -> tuple[str, ...]:
    """Return the schedules under which to predict a workload."""
    if not requested or workload.desc is None:
        return ("",)
    return schedules_of(workload, target_of_card(card)) if ALL in requested else ("", *requested)


def print_card(card: GpuCard) -> None:
    """Print the basis of predictions: the card, and the source of instructions and registers."""
    caches = f"{card.l2 / (1 << 20):g} MiB L2" + (f", {card.l3 / (1 << 20):g} MiB L3" if card.l3 else "")
    if missing_parts():
        origin = "estimated from tiles and the kernels' source"
    else:
        origin = f"as RADV compiles them for {card.family or f'{STAND_IN}, which stands for this GPU'}"
    print(f"{card.name}: PREDICTED times, not measurements. Nothing runs.")
    print(
        f"  {card.cores} cores at {card.clock / 1e9:g} GHz, {2 * card.multiply_adds / 1e12:.1f} TFLOP/s in float32,"
        f" {card.memory / 1e9:.0f} GB/s, {caches}"
    )
    print(f"  instructions and registers: {origin}")
    print(f"  figures: {card.source}\n", flush=True)


def print_prediction(prediction: Prediction) -> None:
    """Print a prediction: name, time, limit, rates."""
    schedule = f", schedule {prediction.schedule}" if prediction.schedule else ""
    print(f"{prediction.name} on {prediction.card}{schedule}")
    if prediction.status != "predicted":
        print(f"  {prediction.status}: {prediction.message}", flush=True)
        return
    kernels = prediction.counts["kernels"]
    limits = sorted(prediction.limits.items(), key=lambda limit: -limit[1])
    shares = ", ".join(f"{limit} {100 * seconds / prediction.seconds:.0f} %" for limit, seconds in limits)
    print(
        f"  predicted {duration(prediction.seconds)} in {kernels} kernel{'s' if kernels != 1 else ''};"
        f" limited by {shares if len(limits) > 1 else prediction.limit}"
    )
    rates = (prediction.counts["bytes"] / 1e9, prediction.counts["operations"] / 1e9)
    print(f"  {rates[0] / prediction.seconds:.3g} GB/s, {rates[1] / prediction.seconds:.3g} GFLOP/s", flush=True)


# ---- comparison ------------------------------------------------------------------------------------------------------


def are_predictions(before: Path, after: Path) -> bool:
    """Return whether two files have predictions; False if neither has.

    Raises:
        InvalidArgument: If only one has.
    """
    predicted = [path for path in (before, after) if is_prediction_file(path)]
    if len(predicted) == 1:
        (other,) = {before, after} - set(predicted)
        raise InvalidArgument(
            f"{predicted[0]} has predictions and {other} has not: predictions are compared only with predictions,"
            " written by `dmlgpu bench --predict CARD -o`"
        )
    return bool(predicted)


def compare_predicted(before: Path, after: Path, threshold: float, *, as_json: bool = False) -> bool:
    """Print how predictions changed.

    Returns:
        True if nothing is slower by more than the threshold, or no longer predicted.

    Raises:
        ModelError, OSError: If a file has no predictions, or cannot be read.
    """
    changes = compare_predictions(read_predictions(before), read_predictions(after), threshold)
    good = not any(change.is_worse for change in changes)
    if as_json:
        print(json.dumps({"changes": list(map(_as_json, changes)), "worse": not good}, indent=2, ensure_ascii=False))
        return good
    rows = [
        (
            change.kind,
            _time(change.before),
            _time(change.after),
            "-" if change.ratio is None else f"{change.ratio:.2f}",
            _place(change),
        )
        for change in changes
        if change.kind != "same"
    ]
    if rows:
        table(("change", "before", "after", "ratio", "what, predicted"), rows, right=(1, 2, 3))
    print(", ".join(f"{count} {kind}" for kind, count in Counter(change.kind for change in changes).items()))
    return good


def _place(change: PredictionChange) -> str:
    name, card, schedule = change.prediction.key
    return f"{name} on {card}" + (f", schedule {schedule}" if schedule else "")


def _time(prediction: Prediction | None) -> str:
    if prediction is None:
        return "-"
    return duration(prediction.seconds) if prediction.seconds else prediction.status


def _as_json(change: PredictionChange) -> dict[str, object]:
    name, card, schedule = change.prediction.key
    return {
        "kind": change.kind,
        "name": name,
        "card": card,
        "schedule": schedule,
        "before": change.before and change.before.seconds,
        "after": change.after and change.after.seconds,
        "ratio": change.ratio,
    }
