"""The options of ``dmlgpu run`` that DxDispatch has, under its names; hyphens may stand for underscores."""

from __future__ import annotations

from typing import Annotated

import typer

_MOST = 2**31


def _names(name: str) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", f"--{name}"


Iterations = Annotated[
    int,
    typer.Option(*_names("dispatch_iterations"), min=1, max=_MOST, help="Iterations of bind, dispatch and wait."),
]
Repeat = Annotated[
    int,
    typer.Option(*_names("dispatch_repeat"), "-r", min=1, max=2**16, help="Dispatches within each iteration."),
]
MillisecondsToRun = Annotated[
    int | None,
    typer.Option(
        *_names("milliseconds_to_run"), "-t", min=1, max=_MOST, help="Iterate for so long; overrides the iterations."
    ),
]
Interval = Annotated[
    int,
    typer.Option(*_names("dispatch_interval"), "-I", min=0, max=_MOST, help="Least milliseconds between iterations."),
]
Warmup = Annotated[
    int,
    typer.Option(*_names("warmup_samples"), "-w", min=0, max=_MOST, help="Samples at the start that count as cold."),
]
Verbosity = Annotated[
    int,
    typer.Option(
        *_names("timing_verbosity"), "-v", min=0, max=2, help="0 hot timings; 1 init, cold and hot; 2 each iteration."
    ),
]
NameOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_name_override"), "-f", metavar="NAME:SIZE", help="A free dimension by name; repeatable."
    ),
]
DenotationOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_denotation_override"),
        "-F",
        metavar="DENOTATION:SIZE",
        help="Free dimensions by denotation; repeatable.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(*_names("binding_shape"), "-b", metavar="TENSOR:2,3", help="The shape of an ONNX tensor; repeatable."),
]
PrintBindings = Annotated[
    bool, typer.Option(*_names("print_onnx_bindings"), "-p", help="Print what tensors of ONNX models are bound to.")
]
