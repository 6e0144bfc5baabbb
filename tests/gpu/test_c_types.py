"""C types that are looked up together equal those that cffi finds one by one, and are all that a device needs."""

from __future__ import annotations

import subprocess
import sys

import cffi
import pytest
from wgpu.backends.wgpu_native._ffi import ffi, get_wgpu_header

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu import adapters
from dmlgpu.runtime.wgpu.native import C_TYPES, look_up_together

HEADER = """
typedef unsigned int Flags;
typedef struct { Flags flags[4]; } Limits;
typedef void (*Done)(Flags status, Limits const * limits, void * data);
"""
NAMES = ["Flags", "Limits *", "Limits[]", "Limits []", "Done", "void(Limits, Flags)", "void(*)(Limits *)", "char []"]


def headed(header: str = HEADER) -> cffi.FFI:
    """An FFI that has read a header."""
    ffi = cffi.FFI()
    ffi.cdef(header)
    return ffi


def as_kept(ffi: cffi.FFI, text: str) -> tuple[object, bool]:
    """What cffi keeps of a text: the type, and whether the text names a function."""
    with ffi._lock:
        return ffi._typeof_locked(text)


def assert_same(ffi: cffi.FFI, text: str, plain: cffi.FFI) -> None:
    """The cached type of a text is the one that cffi finds by itself, and that of another FFI."""
    looked_up = ffi._parsed_types.pop(text)
    assert as_kept(ffi, text) == looked_up  # an FFI has one object for a type, however it is asked
    parsed, is_function = as_kept(plain, text)
    assert (looked_up[0].cname, looked_up[0].kind, looked_up[1]) == (parsed.cname, parsed.kind, is_function)


@pytest.mark.parametrize("text", NAMES)
def test_types_are_the_same(text: str) -> None:
    together = headed()
    look_up_together(together, NAMES)
    assert_same(together, text, headed())


def test_types_of_wgpu_are_those_of_a_fresh_reading() -> None:
    plain = headed(get_wgpu_header())
    assert len(set(C_TYPES)) == len(C_TYPES)
    for text in C_TYPES:
        assert_same(ffi, text, plain)


def test_known_types_are_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ffi = headed()
    flags = ffi.typeof("Flags")
    read: list[str] = []
    parse = ffi._parser.parse_type
    monkeypatch.setattr(ffi._parser, "parse_type", lambda text: read.append(text) or parse(text))
    look_up_together(ffi, NAMES)
    assert [text.count("Flags") for text in read] == [1]  # of the function's arguments
    assert all(ffi.typeof(text) for text in NAMES if text != "void(Limits, Flags)")
    assert len(read) == 1
    assert ffi.typeof("Flags") is flags


def test_a_header_that_lacks_a_type_is_left_alone() -> None:
    ffi = headed()
    look_up_together(ffi, ["Limits *", "Missing *"])
    assert "Limits *" not in ffi._parsed_types
    assert ffi.typeof("Limits *").kind == "pointer"


def test_another_ffi_stays_as_it_is() -> None:
    class Other:
        """One whose inside is different."""

    stand_in = Other()
    look_up_together(stand_in, NAMES)  # type: ignore[arg-type]
    assert vars(stand_in) == {}


SESSION = """
import sys
from dataclasses import replace
import numpy as np
import dmlgpu
from dmlgpu.runtime import wgpu as gpu
from dmlgpu.runtime.executor import Range, Resources
from wgpu.backends.wgpu_native._ffi import ffi

before = set(ffi._parsed_types)
device = dmlgpu.Device(gpu.adapters()[int(sys.argv[1])])
row = dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (4,))
add = dmlgpu.descs.ElementWiseAdd(a_tensor=row, b_tensor=row, output_tensor=row)
ones = np.ones(4, np.float32)
(twos,) = dmlgpu.evaluate(add, [ones, ones], device)
assert list(twos) == [2] * 4
executable = device.backend.compile(add)
memory = Range(device.backend.create_buffer(48, "memory"), 0, 16)
inputs = (memory, replace(memory, offset=16))
device.backend.time(executable.bind(Resources(inputs, (replace(memory, offset=32),))))
buffer = device.create_buffer(1 << 20)
buffer.write(np.ones(1 << 20, np.uint8))
assert buffer.read_async().result().all()
device.remove()
print(sorted(set(ffi._parsed_types) - before))
"""


def test_a_device_needs_no_other_types(adapter: AdapterInfo) -> None:
    number = str(adapters().index(adapter))
    done = subprocess.run([sys.executable, "-c", SESSION, number], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
