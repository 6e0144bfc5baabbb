"""What can be exported: a program, and what its inputs and outputs are called outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.program import Program


@dataclass(frozen=True)
class Port:
    """An input or an output by its name.

    Attributes:
        name: how it is called outside.
        desc: how it lies in its buffer.
        shape: sizes as the model has them: those of ``desc``, or none for a scalar.
        is_bool: whether its elements are truth values, 0 and 1 of UINT8.
    """

    name: str
    desc: TensorDesc
    shape: tuple[int, ...]
    is_bool: bool = False


@dataclass(frozen=True)
class Result:
    """An output and where it comes from: exactly one of the three.

    Attributes:
        port: the output.
        output: the program's output.
        given: the input whose elements it has, by number.
        data: its bytes, where they are known.
    """

    port: Port
    output: int | None = None
    given: int | None = None
    data: bytes | None = None


@dataclass(frozen=True)
class Exportable:
    """A program with everything that a folder needs to run it.

    Attributes:
        name: of the model.
        program: what runs; None where nothing is computed.
        given: what a run is given.
        feeds: per input of the program: the number of what feeds it among ``given``, its bytes, or None for nothing.
        output_sizes: per output of the program its bytes.
        results: what a run returns.
        clears: whether outputs must be zeros before each run.
        provenance: what it was made from and how.
    """

    name: str
    program: Program | None
    given: tuple[Port, ...]
    feeds: tuple[int | bytes | None, ...]
    output_sizes: tuple[int, ...]
    results: tuple[Result, ...]
    clears: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
