"""``dmlgpu run``: run a DxDispatch model, or an ONNX model on arrays from files."""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.cli.devices import choose_adapter
from dmlgpu.common.errors import InvalidArgument, InvalidState
from dmlgpu.common.files import whole_file
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch import OnnxOptions, TimingOptions
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.checking import Divergence, ModelCheck
    from dmlgpu.frontends.onnx.segments import Segment
    from dmlgpu.frontends.onnx.session import Session
    from dmlgpu.frontends.onnx.watching import RunProfile


def run(
    model: Path,
    output_dir: Path | None,
    adapter: str | None,
    *,
    precise: bool = False,
    allow_paths: bool = False,
    dispatching: DispatchOptions | None = None,
    **options: Any,
) -> None:
    """Run a model and print what happens: for DxDispatch's in its words, for ONNX the outputs.

    Args:
        model: its path.
        output_dir: where files are written.
        adapter: part of an adapter's name, or its number; None chooses.
        precise: whether the device is ``Device(precise=True)``.
        allow_paths: whether a DxDispatch model may read and write files anywhere.
        dispatching: how often and how long it runs, in DxDispatch's way; None for once. A model in ONNX runs in that
            way where anything of it is asked for.
        options: what is asked of a model in ONNX beyond that: the attributes of ``OnnxRunOptions``.

    Raises:
        ModelError, MissingFile: the model is malformed or missing.
        InvalidArgument: an option that is not for the kind of model; an input that is no ``name=file.npy``.
        AdapterNotFound: no adapter matches.
        DmlError: the device refuses the model.
    """
    if model.suffix.lower() == ".py":
        raise InvalidArgument(
            f"run: model must be a .onnx or DxDispatch's .json file, got a Python script; for one that imports "
            f"pydirectml: python -m dmlgpu.frontends.pydirectml {shlex.quote(str(model))}"
        )
    onnx, dispatch = OnnxRunOptions(**options), dispatching or DispatchOptions()
    if onnx != OnnxRunOptions() and (model.suffix.lower() != ".onnx" or dispatch != DispatchOptions()):
        wrong = model.name if model.suffix.lower() != ".onnx" else "options of DxDispatch's beside them"
        ours = "--input, --check, --profile, --profile-json, --trace and --repeat"
        raise InvalidArgument(f"run: {ours} are for models in ONNX, got {wrong}")
    if model.suffix.lower() == ".onnx" and dispatch == DispatchOptions():
        run_onnx(model, output_dir, adapter, onnx, precise=precise)
        return
    loaded = dxdispatch.load(model, allow_paths=allow_paths, onnx=dispatch.onnx)
    device = Device(choose_adapter(adapter), precise=precise)
    print(f"Running on '{device.adapter}'", flush=True)

    def tell(event: dxdispatch.Event) -> None:
        text = dxdispatch.report(event, dispatch.verbosity)
        if text is not None:
            print(text.rstrip(), flush=True)

    dxdispatch.execute(
        loaded,
        device,
        output_directory=output_dir,
        on_event=tell,
        timing=dispatch.timing,
        print_onnx_bindings=dispatch.print_bindings,
    )


def run_many(
    model: Path,
    output_dir: Path | None,
    adapter: str | None,
    many: Mapping[str, Any],
    *,
    precise: bool,
    dispatching: DispatchOptions,
    **options: Any,
) -> None:
    """Run a model in ONNX on many files: ``many`` has the fields of ``map_onnx.ManyInputs``.

    Raises:
        InvalidArgument: the package ``onnx`` is not installed, or an option is not for many files.
        DmlError: as ``map_onnx.run``.
    """
    frontend()
    from dmlgpu.cli import map_onnx  # noqa: PLC0415  the extra is there

    if OnnxRunOptions(**options) != OnnxRunOptions() or dispatching != DispatchOptions():
        raise InvalidArgument(
            "run: --inputs runs a model once on each file; --input, --check, --profile, --trace, --repeat and "
            "DxDispatch's options are for one run: leave --inputs out"
        )
    map_onnx.run(model, output_dir, adapter, map_onnx.ManyInputs.of_options(many), precise=precise)


Array = NDArray[Any]


@dataclass(frozen=True)
class OnnxRunOptions:
    """What is asked of a model in ONNX.

    Attributes:
        inputs: each ``name=file.npy``.
        check: compare every node.
        profile: print where the time of a run goes.
        profile_json: the file for the same as JSON.
        trace: the file for a trace in Chrome's format.
        repeat: runs.
    """

    inputs: tuple[str, ...] = ()
    check: bool = False
    profile: bool = False
    profile_json: Path | None = None
    trace: Path | None = None
    repeat: int = 1


def frontend() -> Any:
    """Return the package that reads ONNX.

    Raises:
        InvalidArgument: the package ``onnx`` is not installed.
    """
    try:
        from dmlgpu.frontends import onnx  # noqa: PLC0415  an extra
        from dmlgpu.frontends.onnx import checking, watching  # noqa: F401, PLC0415
    except ImportError as error:
        raise InvalidArgument(f"models in ONNX need the extra `dmlgpu[onnx]`: {error}") from None
    return onnx


def run_onnx(
    model: Path, output_dir: Path | None, adapter: str | None, options: OnnxRunOptions, *, precise: bool = False
) -> None:
    """Run a model, print its outputs, and write them where a folder is given; with ``precise`` on a device that is.

    Raises:
        InvalidState: ``check`` found a node that diverges.
        DmlError: as ``frontends.onnx.load`` and ``Session.run``.
    """
    onnx = frontend()
    arrays = dict(read_array("run: --input", argument) for argument in options.inputs)
    device = Device(choose_adapter(adapter), precise=precise)
    print(f"Running on '{device.adapter}'", flush=True)
    session = onnx.load(model, device)
    times = []
    for _ in range(options.repeat):
        start = time.perf_counter()
        with onnx.watching.watched_by(_Progress()):
            outputs = session.run(arrays)
        times.append(time.perf_counter() - start)
    _print_outputs(outputs, output_dir)
    if options.repeat > 1:
        later = sorted(times[1:])
        print(
            f"first run {times[0] * 1e3:.1f} ms, then {statistics.median(later) * 1e3:.2f} ms"
            f" ({later[0] * 1e3:.2f} to {later[-1] * 1e3:.2f}, {len(later)} runs)"
        )
    if options.profile or options.profile_json is not None or options.trace is not None:
        profile = onnx.watching.RunProfile()
        with onnx.watching.watched_by(profile):
            session.run(arrays)
        if options.profile or options.profile_json is not None:
            _report_profile(profile, session, options)
        if options.trace is not None:
            with whole_file(options.trace) as stream:
                stream.write(json.dumps(profile.trace()).encode())
            print(f"trace written to {options.trace}")
    if options.check:
        _report_check(session.check(arrays), output_dir or Path())


class _Progress:
    """Says on a terminal that a graph is being compiled."""

    times = False

    def __init__(self) -> None:
        self._status: AbstractContextManager[Any] = nullcontext()

    def compiling(self, segment: Segment) -> None:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415  only where somebody watches

            self._status = Console(stderr=True).status(f"compiling {len(segment.graph.nodes)} nodes")
            self._status.__enter__()

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        self._status.__exit__(None, None, None)
        self._status = nullcontext()
        if sys.stderr.isatty():
            program = segment.compiled.program
            kernels = "" if program is None else f" to {len(program.kernels)} kernels"
            print(f"compiled {len(segment.graph.nodes)} nodes{kernels} in {seconds:.1f} s", file=sys.stderr)

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        pass


def _report_profile(profile: RunProfile, session: Session, options: OnnxRunOptions) -> None:
    """Print and write where the time of a profiled run went."""
    from dmlgpu.bench.profiles import tables  # noqa: PLC0415 - it loads the compiler
    from dmlgpu.cli import profile_onnx  # noqa: PLC0415 - likewise

    ceilings = profile_onnx.device_ceilings(session.device)
    profile_tables = tables(profile, session.placement, ceilings)
    if options.profile:
        profile_onnx.print_profile(profile_tables, ceilings)
    if options.profile_json is not None:
        profile_onnx.write_profile(profile_tables, ceilings, session.device, options.profile_json)


def _print_outputs(outputs: Mapping[str, Array], output_dir: Path | None) -> None:
    for name, array in outputs.items():
        print(f"{name}: {array.dtype} {list(array.shape)}")
        print(np.array2string(array, threshold=64))
        if output_dir is not None:
            _save(output_dir, name, array)


def _save(folder: Path, name: str, array: Array) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('/', '_')}.npy"
    with whole_file(path) as stream:
        np.save(stream, array)
    return path


def _report_check(check: ModelCheck, folder: Path) -> None:
    """Print what a check found, and save the inputs of the first node that is at fault."""
    if not check.faults:
        print(check)
        return
    for line in str(check).splitlines()[:-2]:
        print(line)
    first: Divergence = check.faults[0]
    where = folder / "divergent"
    saved = [_save(where, name, array) for name, array in first.inputs.items()]
    for name, array in (("found", first.actual), ("expected", np.asarray(first.expected))):
        saved.append(_save(where, f"{first.output} {name}", array))
    print(f"written to {where}: {', '.join(path.name for path in saved)}")
    count = len({divergence.output for divergence in check.faults})
    raise InvalidState(f"check: {first}; {count} of {check.compared} outputs of nodes differ")


def read_array(option: str, text: str) -> tuple[str, Array]:
    """Return name and array of ``name=file.npy``.

    Args:
        option: what it was given by, for messages.
        text: what was given.

    Raises:
        InvalidArgument: for what is not written so, or a file that cannot be read.
    """
    name, _, path = text.partition("=")
    if not name or not path:
        raise InvalidArgument(f"{option} must be name=file.npy, got {text!r}")
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{option} {name}: {path} cannot be read: {error}") from None


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
        _pairs("binding_shape", shapes, lambda text: tuple(_size(size) for size in text.split(","))),
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
