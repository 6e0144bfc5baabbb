"""Descriptions with huge numbers are rejected or compiled in little time and memory."""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlgpu.catalog import catalog, validation
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription, NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.stages import compile_operator, programs
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import parameters, templates
from dmlgpu.compiler.wgsl.names import Names
from tests.unit.compiler.huge_descriptions import LEVEL, MAX_REPAIRS, repaired, smallest, variants

MAX_SECONDS, MAX_BYTES = 1.0, 200_000_000
WORDS = frozenset({"immediates", "shader-int64", "shader-f64"})
TARGETS = (
    Target("large", Profile.DISCRETE, WORDS, max_binding_size=1 << 34),
    Target("small", Profile.CPU, WORDS, loop_limit=65535),
)
CHECKED, COMPILED = 48, 3
"""Descriptions of each operator that are checked, and of the accepted ones those that are compiled, for one target or
the other; all, and for both, with ``--profile full``."""


@contextlib.contextmanager
def limits(what: OperatorDesc) -> Iterator[None]:
    """Fail if the block takes more CPU time, or allocates more memory, than descriptions may."""
    gc.disable()  # collecting the garbage of other tests may take a second, also right after it is enabled again
    try:
        start = time.thread_time()
        with memory_limit(MAX_BYTES):
            try:
                yield
            except MemoryError:
                pytest.fail(f"more than {MAX_BYTES:,} bytes for {what}")
        spent = time.thread_time() - start
    finally:
        gc.enable()
    assert spent < MAX_SECONDS, f"{spent:.1f} s for {what}"


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Limit the process to a number of bytes more than it has now, if the system supports that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def check(desc: OperatorDesc) -> InvalidDescription | None:
    """Return the exception that rejects a description, or None."""
    with limits(desc):
        try:
            validation.validate(desc, LEVEL)
            operators.check(desc, LEVEL)
        except InvalidDescription as error:
            return error
    return None


def accepted(desc: OperatorDesc) -> OperatorDesc | None:
    """Return the description with the sizes that its checks demand; None if they reject something else."""
    for _ in range(MAX_REPAIRS):
        rejection = check(desc)
        if rejection is None:
            return desc
        changed = repaired(desc, rejection)
        if changed is None or changed == desc:
            return None
        desc = changed
    return None


def sample(descs: list[OperatorDesc], count: int) -> list[OperatorDesc]:
    """Return an evenly spaced sample of some descriptions."""
    return descs[:: -(-len(descs) // count)]


@pytest.mark.parametrize("operator", sorted(catalog()))
def test_huge_numbers_are_checked_in_little_time_and_memory(operator, request):
    base = smallest(operator)
    compile_operator(base, TARGETS[0])  # so that templates are read
    everything = request.config.getoption("--profile") == "full"
    tried = list(variants(base))
    tried = tried if everything else sample(tried, CHECKED)
    valid = list(dict.fromkeys(desc for tried_desc in tried if (desc := accepted(tried_desc)) is not None))
    assert valid, "no description was accepted"
    for index, desc in enumerate(valid if everything else sample(valid, COMPILED)):
        for target in TARGETS if everything else (TARGETS[index % 2],):
            programs.clear()  # those of other tests may take a second
            with limits(desc), contextlib.suppress(NotSupported):
                compile_operator(desc, target)


FLOATS = ("BATCH_NORMALIZATION_TRAINING_GRAD", "ROI_ALIGN1", "ROI_ALIGN_GRAD", "ROI_POOLING")
"""Operators that convert sizes to floats."""

RANGES = {"u32": (0, 2**32), "i32": (-(2**31), 2**31), "f32": (-(2**31), 2**32)}
"""Range of a size by the type that a kernel reads; those that become floats have either sign."""


def test_huge_parameters_fit_their_words(request, monkeypatch):
    wrong = set()

    def checked(function, kind):
        def read(size):
            low, high = RANGES[kind]
            if not low <= size < high:
                wrong.add((desc.operator, kind, int(size)))
            others.add(getattr(size, "index", None))
            text = function(size)
            others.add(getattr(size, "index", None))
            return text

        return read

    class CheckedNames(Names):
        @property
        def parameters(self):
            for index, size in enumerate(self.sizes):
                low, high = RANGES["u32"]
                if index not in others and not low <= size < high:
                    wrong.add((desc.operator, "u32", int(size)))
            others.clear()
            words = super().parameters
            largest_values.append(max(words, default=0))
            return words

    others = set()  # indices of sizes that are read as other types than u32
    monkeypatch.setattr(importlib.import_module("dmlgpu.compiler.wgsl.render").names, "Names", CheckedNames)
    for kind, function in (("i32", parameters.as_i32), ("f32", parameters.as_f32)):
        monkeypatch.setitem(templates.environment().filters, kind, checked(function, kind))
    everything, largest_values = request.config.getoption("--profile") == "full", []
    names = sorted(catalog())
    for operator in names if everything else sorted({*names[::12], *FLOATS}):
        tried = list(variants(smallest(operator)))
        for desc in filter(None, map(accepted, tried if everything else sample(tried, CHECKED // 4))):
            programs.clear()
            with contextlib.suppress(NotSupported):
                compile_operator(desc, TARGETS[0].general)
    assert wrong == set()
    assert max(largest_values) >= 2**31 + 11  # the huge sizes themselves
