"""Operators whose tensors lie in each other's place, or so near that their bindings would overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend

TYPES = ("FLOAT32", "FLOAT16", "INT8", "UINT16", "INT64")
COUNT = 37
"""Number of elements: no multiple of a word or a vector."""


@pytest.fixture(scope="module", params=[True, False], ids=["immediates", "uniform"])
def executor(adapter: AdapterInfo, request: pytest.FixtureRequest) -> Iterator[GpuBackend]:
    """An executor on each adapter, with and without immediates."""
    backend = GpuBackend(adapter, disabled_features=() if request.param else ["immediates"])
    yield backend
    backend.close()


def tensor(name: str, *sizes: int, strides: tuple[int, ...] | None = None) -> TensorDesc:
    return TensorDesc(DataType[name], sizes, strides)


def numbers(name: str, *sizes: int, start: int = 0) -> np.ndarray:
    return (np.arange(np.prod(sizes), dtype=np.int64).reshape(sizes) % 23 + start).astype(DataType[name].numpy)


class Arena:
    """One buffer whose tensors follow each other, at most 15 bytes apart."""

    def __init__(self, backend: GpuBackend, *tensors: TensorDesc, begin: int = 16):
        self.backend, self.ranges = backend, []
        for desc in tensors:
            self.ranges.append((begin, desc.byte_size))
            begin += -(-desc.byte_size // 16) * 16
        self.buffer = backend.create_buffer(begin + 64, "arena")
        self.content = np.full(begin + 64, 0xA7, np.uint8)

    def put(self, number: int, desc: TensorDesc, array: np.ndarray) -> None:
        start, size = self.ranges[number]
        self.content[start : start + size] = desc.encode(array, 0xA7)

    def range(self, number: int) -> Range:
        return Range(self.buffer, *self.ranges[number])

    def check(self, desc: Any, inputs: tuple[int, ...], output: int, expected: np.ndarray) -> None:
        """Run an operator: the output has the expected elements, and no byte outside changes."""
        self.backend.write(self.buffer, 0, self.content)
        resources = Resources(tuple(map(self.range, inputs)), (self.range(output),))
        assert self.backend.wait(self.backend.submit(self.backend.compile(desc).bind(resources)))
        memory, (start, size) = self.backend.read(self.buffer, 0, self.content.size), self.ranges[output]
        np.testing.assert_array_equal(desc.outputs[0].tensor.decode(memory[start : start + size]), expected)
        memory[start : start + size] = self.content[start : start + size]
        np.testing.assert_array_equal(memory, self.content)


@pytest.mark.parametrize("name", TYPES)
def test_neighbors_in_one_buffer(executor: GpuBackend, name: str) -> None:
    a, first, second = tensor(name, COUNT), numbers(name, COUNT), numbers(name, COUNT, start=1)
    arena = Arena(executor, a, a, a)
    arena.put(0, a, first)
    arena.put(1, a, second)
    arena.check(descs.ElementWiseAdd(a_tensor=a, b_tensor=a, output_tensor=a), (0, 1), 2, first + second)


@pytest.mark.parametrize("name", TYPES)
def test_in_place_with_a_second_input(executor: GpuBackend, name: str) -> None:
    a, first, second = tensor(name, COUNT), numbers(name, COUNT), numbers(name, COUNT, start=1)
    arena = Arena(executor, a, a)
    arena.put(0, a, first)
    arena.put(1, a, second)
    arena.check(descs.ElementWiseAdd(a_tensor=a, b_tensor=a, output_tensor=a), (0, 1), 0, first + second)


@pytest.mark.parametrize("name", TYPES)
def test_one_tensor_as_both_inputs(executor: GpuBackend, name: str) -> None:
    a, both = tensor(name, COUNT), numbers(name, COUNT)
    arena = Arena(executor, a, a)
    arena.put(0, a, both)
    arena.check(descs.ElementWiseAdd(a_tensor=a, b_tensor=a, output_tensor=a), (0, 0), 1, both + both)


@pytest.mark.parametrize("name", ("FLOAT16", "INT8"))
def test_scattered_small_elements_next_to_their_source(executor: GpuBackend, name: str) -> None:
    """The output is stored with compare-exchange, so its neighbors in the binding are read as atomics."""
    source, spread, values = tensor(name, 5, 7), tensor(name, 5, 7, strides=(1, 6)), numbers(name, 5, 7)
    arena = Arena(executor, source, spread)
    arena.put(0, source, values)
    arena.check(descs.ElementWiseIdentity(input_tensor=source, output_tensor=spread), (0,), 1, values)


def test_adjacent_blocks_of_two_widths(executor: GpuBackend) -> None:
    """The output and one input go by four elements, the index by one."""
    table, picks, output = tensor("FLOAT32", 9, 256), tensor("UINT32", 1, 30), tensor("FLOAT32", 30, 256)
    rows, places = numbers("FLOAT32", 9, 256), numbers("UINT32", 1, 30) % 9
    arena = Arena(executor, table, picks, output)
    arena.put(0, table, rows)
    arena.put(1, picks, places)
    desc = descs.Gather(input_tensor=table, indices_tensor=picks, output_tensor=output, axis=0, index_dimensions=1)
    arena.check(desc, (0, 1), 2, rows[places[0]])


def test_a_shared_binding_beyond_the_limit_is_rejected_by_name(backend: GpuBackend) -> None:
    limit = backend.target.max_binding_size // 4 * 4
    size = limit // 2 + 4
    slots = (Slot(Role.TEMPORARY, 0, 0, size), Slot(Role.TEMPORARY, 0, limit // 2, size))
    program = Program(
        "TEST", (RenderedKernel("k", KernelSource(""), slots, (1, 1, 1)),), immediates=backend.target.has("immediates")
    )
    with pytest.raises(NotSupported) as caught:
        backend.prepare(program)
    assert str(caught.value) == (
        f"TEST: kernel 'k' binds {limit // 2 + size:,} bytes of temporary 0 and temporary 0,"
        f" more than the {backend.target.max_binding_size:,} that {backend.info} allows in one binding"
    )
