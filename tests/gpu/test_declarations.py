"""C types are found as cffi finds them, without reading all that wgpu's header declares."""

from __future__ import annotations

from collections.abc import Iterator

import cffi
import pytest
from cffi import cparser
from wgpu.backends.wgpu_native._ffi import ffi

import dmlgpu.gpu
from dmlgpu.gpu.declarations import read_only_what_is_named

HEADER = """
typedef unsigned int Flags;
typedef struct Chained { struct Chained const * next; Flags kind; } Chained;
typedef struct { Chained chain; Flags flags[4]; } Limits;
typedef void (*Done)(Flags status, Limits const * limits, void * data);
"""
NAMES = ("Flags", "Chained", "Limits", "Done")
TEXTS = ("Flags", "Limits *", "Chained[3]", "struct Chained", "Done", "Flags(*)(Limits *, uint32_t)", "uint8_t[]")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that pycparser gets."""
    texts: list[str] = []
    parser = cparser._get_parser()

    class Recording:
        def parse(self, text: str) -> object:
            texts.append(text)
            return parser.parse(text)

    monkeypatch.setattr(cparser, "_get_parser", Recording)
    yield texts


@pytest.fixture
def pair() -> tuple[cffi.FFI, cffi.FFI]:
    """The header as cffi reads it, and with few declarations."""
    plain, quick = cffi.FFI(), cffi.FFI()
    for one in (plain, quick):
        one.cdef(HEADER)
    read_only_what_is_named(quick._parser)
    return plain, quick


def layout(kind: cffi.FFI.CType) -> object:
    """What is told of a type, of those that it is made of too."""
    if kind.kind == "struct":
        return kind.cname, [(name, field.offset, layout(field.type)) for name, field in kind.fields]
    return kind.cname


@pytest.mark.parametrize("text", TEXTS)
def test_types_are_the_same(pair: tuple[cffi.FFI, cffi.FFI], text: str) -> None:
    plain, quick = pair
    assert layout(quick.typeof(text)) == layout(plain.typeof(text))


def test_declarations_can_be_added(pair: tuple[cffi.FFI, cffi.FFI]) -> None:
    for one in pair:
        one.cdef("typedef struct { Limits limits; } More;")
    plain, quick = pair
    assert layout(quick.typeof("More")) == layout(plain.typeof("More"))
    assert quick.typeof("More").fields[0][1].type.cname == "Limits"


def test_what_is_unknown_is_refused_in_the_same_words(pair: tuple[cffi.FFI, cffi.FFI]) -> None:
    refusals = []
    for one in pair:
        with pytest.raises(cffi.CDefError) as refused:
            one.typeof("Missing *")
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


def test_only_what_is_named_is_read(pair: tuple[cffi.FFI, cffi.FFI], read: list[str]) -> None:
    plain, quick = pair
    plain.typeof("Limits *")
    quick.typeof("Limits *")
    declared = [tuple(name for name in NAMES if f"typedef int {name};" in text) for text in read]
    assert declared == [NAMES, ("Limits",)]


def test_wgpu_is_read_so(read: list[str]) -> None:
    assert dmlgpu.gpu.declarations
    ffi.typeof("WGPULimits *[17]")  # nobody else asks for this one
    assert [text.count("typedef int WGPU") for text in read] == [1]


def test_another_parser_stays_as_it_is() -> None:
    class Other:
        """One whose inside is different."""

    parser = Other()
    read_only_what_is_named(parser)
    assert vars(parser) == {}
