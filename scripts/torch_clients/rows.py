"""Rows: functions that run a program of a client on a device, and the comparison of their results."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FALLBACK = "DMLGPU_TORCH_FALLBACK"

Program = Callable[[str], Any]
"""Runs on the device of a name, and returns tensors, arrays, numbers, strings, or lists and dictionaries of them."""


@dataclass(frozen=True)
class Row:
    """A program of a client.

    Attributes:
        client: Name of the library.
        name: What runs, for the table.
        program: Runs it.
        packages: Packages that it imports.
        tolerance: Largest difference from the CPU's results, relative to the largest magnitude.
        advice: Description and program of another way, if the client or the device raises an error; None for the way
            that the error names.
    """

    client: str
    name: str
    program: Program
    packages: tuple[str, ...]
    tolerance: float
    advice: tuple[str, Program] | None = None


@dataclass(frozen=True)
class Result:
    """Result of a row on an adapter.

    Attributes:
        client, name: Those of the row.
        adapter: Its name.
        state: ``"right"``, ``"rejected"``, ``"wrong"`` or ``"skipped"``.
        difference: The largest one from the CPU's results, relative; None if nothing was compared.
        reason: Error, advice that was tried, or missing packages.
        seconds: Of the run on the device, compilation included.
    """

    client: str
    name: str
    adapter: str
    state: str
    difference: float | None = None
    reason: str = ""
    seconds: float = 0.0


ROWS: list[Row] = []

_MODULES = (
    "with_torch", "with_torchvision", "with_timm", "with_transformers", "with_accelerate", "with_peft",
    "with_diffusers", "with_vision", "with_sequences", "with_training", "with_science", "with_comfyui",
)  # fmt: skip


def row(
    client: str,
    name: str,
    *packages: str,
    tolerance: float = 1e-4,
    advice: tuple[str, Program] | None = None,
) -> Callable[[Program], Program]:
    """Return a decorator that adds a program to the list."""

    def add(program: Program) -> Program:
        ROWS.append(Row(client, name, program, packages, tolerance, advice))
        return program

    return add


def load() -> list[Row]:
    """Return all rows; no package of a client is imported."""
    for module in _MODULES:
        importlib.import_module(f"torch_clients.{module}")
    return ROWS


def run(entry: Row, adapter: str) -> Result:
    """Run a row on the CPU and on the device of this process, and compare."""

    def result(state: str, difference: float | None = None, reason: str = "", seconds: float = 0.0) -> Result:
        return Result(entry.client, entry.name, adapter, state, difference, " ".join(reason.split()), seconds)

    missing = [name for name in entry.packages if importlib.util.find_spec(name) is None]
    if missing:
        return result("skipped", reason=f"{', '.join(missing)} not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = _seeded(entry.program, "cpu")
        except Skipped as error:
            return result("skipped", reason=str(error))
        except Exception as error:
            return result("wrong", reason=f"on the CPU: {type(error).__name__}: {error}")
        start = time.perf_counter()
        try:
            difference = largest_difference(_seeded(entry.program, "dml"), expected)
        except Exception as error:
            state, reason = _follow_advice(entry, error, expected)
            return result(state, None, reason, time.perf_counter() - start)
        seconds = time.perf_counter() - start
    state = "right" if difference <= entry.tolerance else "wrong"
    return result(state, difference, "" if state == "right" else f"more than {entry.tolerance:g}", seconds)


class Skipped(Exception):
    """Raised by programs that need something that is not given; the message says what."""


def _seeded(program: Program, device: str) -> Any:
    import torch  # noqa: PLC0415 - loaded in child processes alone

    torch.manual_seed(0)
    return program(device)


def _follow_advice(entry: Row, error: Exception, expected: Any) -> tuple[str, str]:
    """Return state and reason of a row that the device rejects, after a try of the advice."""
    message = f"{type(error).__name__}: {error}"
    if "dml" not in message and entry.advice is None:
        return "wrong", message
    program, description, environment = entry.program, "", {}
    if entry.advice is not None:
        description, program = entry.advice
    elif f"{FALLBACK}=1" in message:
        description, environment = f"`{FALLBACK}=1`", {FALLBACK: "1"}
    else:
        return "wrong", f"{message} (no advice)"
    os.environ.update(environment)
    try:
        difference = largest_difference(_seeded(program, "dml"), expected)
    except Exception as second:
        return "wrong", f"{message}; with {description}: {type(second).__name__}: {second}"
    finally:
        for name in environment:
            del os.environ[name]
    if difference > entry.tolerance:
        return "wrong", f"{message}; with {description}: difference {difference:.1e}"
    return "rejected", f"right with {description}"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def largest_difference(actual: Any, expected: Any) -> float:
    """Return the largest difference of results, relative to the largest magnitude of the expected tensor.

    Raises:
        AssertionError: If kinds, shapes, integers or strings differ.
    """
    ours, theirs = list(_leaves(actual)), list(_leaves(expected))
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    return max(map(_difference, ours, theirs), default=0.0)


def _difference(actual: Any, expected: Any) -> float:
    import torch  # noqa: PLC0415

    if isinstance(expected, str | bool | None):
        assert actual == expected, f"{actual!r}, expected {expected!r}"
        return 0.0
    x, y = (torch.as_tensor(value).detach().cpu() for value in (actual, expected))
    assert x.shape == y.shape, f"shape {tuple(x.shape)}, expected {tuple(y.shape)}"
    if not (y.dtype.is_floating_point or y.dtype.is_complex):
        assert torch.equal(x.to(y.dtype), y), "integers differ"
        return 0.0
    wide = torch.complex128 if y.dtype.is_complex else torch.float64
    x, y = x.to(wide), y.to(wide)
    assert torch.equal(x.isnan(), y.isnan()), "NaN in other places"
    if not y.numel():
        return 0.0
    scale, error = float(y.nan_to_num().abs().max()), float((x - y).nan_to_num().abs().max())
    return error / scale if scale else error
