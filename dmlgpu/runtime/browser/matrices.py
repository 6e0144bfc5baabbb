"""Matrix units of a page's adapter, whose products are compared and timed through the page at each connection."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import COOPERATIVE, Matrices, Profile, Target
from dmlgpu.runtime.executor import Dispatch, Range, Resources
from dmlgpu.runtime.matrix_products import (
    ENOUGH,
    TIMED_SIZES,
    is_right,
    product_program,
    samples,
    sum_type,
    units_of,
)
from dmlgpu.runtime.rendered import RenderedBackend

VARIABLE = "DMLGPU_MATRICES"


def with_matrix_units(backend: RenderedBackend, units: Matrices | None) -> Target:
    """Return the target of a page with the matrix units that its browser lists, if they are right and faster, or the
    environment says so."""
    target, value = backend.target, os.environ.get(VARIABLE, "").strip().lower()
    is_measured = value != "always"
    if units is None or value == "never" or (is_measured and target.profile is Profile.CPU):
        return target
    if is_measured:
        if not are_usable(backend, units, "float16"):
            return target
        if not are_usable(backend, units, "float32"):
            units = replace(units, floats=None)
        if not are_usable(backend, units, "int8"):
            units = replace(units, integers=None)
    profile = Profile.DISCRETE if target.profile is Profile.CPU else target.profile
    return replace(target, matrices=units, profile=profile, features=target.features | {COOPERATIVE})


def are_usable(backend: RenderedBackend, units: Matrices, numbers: str) -> bool:
    """Return whether products of a type by matrix units are right, and faster than ordinary ones; False if there are
    no matrices of the type, or the browser rejects them."""
    if units_of(units, numbers) is None:
        return False
    try:
        program = product_program(units, numbers)
        are_right = all(is_right(a, b, _Product(backend, program, a, b).result()) for a, b in samples(numbers))
        return are_right and _are_faster(backend, units, numbers)
    except DmlError:
        return False


def _are_faster(backend: RenderedBackend, units: Matrices, numbers: str) -> bool:
    for size in TIMED_SIZES:
        ones = np.ones((size, size), numbers)
        programs = (product_program(each, numbers, (size,) * 3) for each in (None, units))
        ordinary, own = (_Product(backend, program, ones, ones).seconds() for program in programs)
        if ordinary > ENOUGH:
            break
    return own < ordinary


class _Product:
    """A product, bound to new buffers."""

    def __init__(self, backend: RenderedBackend, program: Program, a: NDArray[Any], b: NDArray[Any]):
        self._backend = backend
        self._output = np.zeros((len(a), b.shape[1]), sum_type(a))
        self._ranges = [self._place(array) for array in (a, b, self._output)]
        # The last input of the kernel is b: others are optional.
        last = max(slot.index for kernel in program.kernels for slot in kernel.slots if slot.role.value == "input")
        inputs = (self._ranges[0], *(None,) * (last - 1), self._ranges[1], None, None)
        executable = backend.prepare(program)
        self._work: list[Dispatch] = list(executable.bind(Resources(inputs, (self._ranges[2],))))

    def _place(self, array: NDArray[Any]) -> Range[Any]:
        buffer = self._backend.create_buffer(array.nbytes, "product")
        self._backend.write(buffer, 0, array.view(np.uint8).reshape(-1))
        return Range(buffer, 0, array.nbytes)

    def result(self) -> NDArray[Any]:
        """Return the product, and free the buffers."""
        self._backend.submit(self._work)
        memory = self._backend.read(self._ranges[2].buffer, 0, self._output.nbytes)
        self._free()
        return np.frombuffer(memory, self._output.dtype).reshape(self._output.shape)

    def seconds(self) -> float:
        """Return the time in the fastest of three runs after the first, and free the buffers."""
        _, *runs = (self._backend.time(self._work).seconds for _ in range(4))
        self._free()
        return min(runs)

    def _free(self) -> None:
        for each in self._ranges:
            self._backend.destroy_buffer(each.buffer)
