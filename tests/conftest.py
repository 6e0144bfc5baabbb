"""Options and settings that all tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from dmlgpu.compiler.sizes import recordings
from dmlgpu.conformance.cases.keys import PROFILES
from tests.tiers import Tier, describe, needlessly_slow, select

OMITTED = pytest.StashKey[str]()

os.environ["DMLGPU_CACHE"] = "off"  # what the compiler makes is what is tested, in child processes too
os.environ["DMLGPU_TUNED"] = "off"  # whatever was tuned on this machine
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of shells; tests send it, to children too
    signal.signal(signal.SIGINT, signal.default_int_handler)

recordings.raises = True  # sizes that cannot be recorded would only show as slowness

settings.register_profile(
    "dmlgpu", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.load_profile("dmlgpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--profile",
        choices=PROFILES,
        help="which conformance cases to run on the adapters; without it a sample of the standard ones",
    )
    parser.addoption("--tier", choices=list(Tier), type=Tier, help="which part of the tests to run (tests/tiers.py)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Omit the tests of other tiers, and those that samples omit."""
    tier = config.getoption("--tier")
    selected = select(items, tier, sampled=not config.getoption("--profile"))
    chosen = set(selected)
    omitted = [item for item in items if item not in chosen]
    if omitted:
        config.stash[OMITTED] = describe(omitted, tier)
        config.hook.pytest_deselected(items=omitted)
        items[:] = selected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints the summary what was omitted: with pytest-xdist, only workers know."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["omitted"] = session.config.stash.get(OMITTED, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker omitted; all omit the same."""
    if text := getattr(node, "workeroutput", {}).get("omitted"):
        node.config.stash[OMITTED] = text


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was omitted, which command runs it, and which tests need not be marked slow."""
    if text := config.stash.get(OMITTED, ""):
        terminalreporter.write_line(text)
    passed = [*terminalreporter.stats.get("", ()), *terminalreporter.stats.get("passed", ())]
    for function in needlessly_slow(passed):
        terminalreporter.write_line(f"marked slow, but fast: {function}")


@pytest.fixture(autouse=True)
def restored_generators(request: pytest.FixtureRequest) -> None:
    """Restore the random generators of a test's module: what a test draws must not depend on which tests ran before."""
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            _, state = _INITIAL_STATES.setdefault(id(value), (value, value.bit_generator.state))
            value.bit_generator.state = state


_INITIAL_STATES: dict[int, tuple[np.random.Generator, Any]] = {}
"""Generators by their identity, which they keep alive, and their states when the first test of a module began."""


@pytest.fixture(autouse=True)
def opengl_lock_is_given_back() -> Iterator[None]:
    """Release OpenGL's lock if a test held it, for which threads of later tests would wait forever."""
    yield
    if context := sys.modules.get("dmlgpu.runtime.wgpu.context"):
        left_locked = False
        while context.OPENGL._is_owned():
            context.OPENGL.release()
            left_locked = True
        assert not left_locked, "this thread still holds OpenGL's lock"
