"""What the options of ``dmlgpu run`` that DxDispatch has say (``dispatch_options.py`` declares them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dmlgpu.errors import InvalidArgument
from dmlgpu.frontends.dxdispatch import OnnxOptions, TimingOptions

T = TypeVar("T")


@dataclass(frozen=True)
class DispatchOptions:
    """What these options say.

    Attributes:
        timing: how often dispatches run.
        verbosity: how much is printed of the times.
        onnx: of ONNX models.
        print_bindings: whether the bindings of ONNX models are printed.
    """

    timing: TimingOptions = field(default_factory=TimingOptions)
    verbosity: int = 0
    onnx: OnnxOptions = field(default_factory=OnnxOptions)
    print_bindings: bool = False


def onnx_options(
    names: Sequence[str] | None, denotations: Sequence[str] | None, shapes: Sequence[str] | None
) -> OnnxOptions:
    """Return what ``NAME:SIZE`` and ``TENSOR:SIZE,SIZE`` say.

    Raises:
        InvalidArgument: a text of another form.
    """
    return OnnxOptions(
        _pairs("onnx_free_dim_name_override", names, _size),
        _pairs("onnx_free_dim_denotation_override", denotations, _size),
        _pairs("binding_shape", shapes, lambda text: tuple(_size(one) for one in text.split(","))),
    )


def _pairs(option: str, texts: Sequence[str] | None, parse: Callable[[str], T]) -> dict[str, T]:
    pairs = {}
    for text in texts or ():
        name, _, value = text.rpartition(":")
        try:
            pairs[name] = parse(value)
        except ValueError:
            name = ""
        if not name:
            raise InvalidArgument(f"run: --{option} must be a name, a colon and sizes from 1 to 2^32 - 1, got {text!r}")
    return pairs


def _size(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and 0 < int(text) < 2**32):
        raise ValueError(text)
    return int(text)
