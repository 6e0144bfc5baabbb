"""``dmlgpu run``: run a DxDispatch model, or an ONNX model on arrays from files."""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.bench.specs import parse_shape
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.tables import BenchProgress, duration
from dmlgpu.common.errors import InvalidArgument, InvalidState, counted
from dmlgpu.common.files import is_gguf, whole_file
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.frontends import dxdispatch
    from dmlgpu.frontends.dxdispatch import OnnxOptions, TimingOptions
    from dmlgpu.frontends.onnx.checking import Divergence, ModelCheck
    from dmlgpu.frontends.onnx.segments import Segment
    from dmlgpu.frontends.onnx.session import CompileProgress, Session
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
    """Run a model and print its results: in the words of DxDispatch, or the outputs of an ONNX model.

    Args:
        model: Path of the model.
        output_dir: Folder for output files.
        adapter: Part of an adapter's name, or its index; None selects the default.
        precise: Whether the device is ``Device(precise=True)``.
        allow_paths: Whether a DxDispatch model may read and write files anywhere.
        dispatching: DxDispatch's options of timing; None runs once. An ONNX model runs in DxDispatch's way if there are
            any.
        options: Further options of an ONNX model: the attributes of ``OnnxRunOptions``.

    Raises:
        ModelError, MissingFile: If the model is malformed or missing.
        InvalidArgument: If an option does not apply to the kind of model, or an input is not ``name=file.npy``.
        AdapterNotFound: If no adapter matches.
        DmlError: If the device rejects the model.
    """
    if model.suffix.lower() == ".py":
        raise InvalidArgument(
            f"run: model must be a .onnx or DxDispatch's .json file, got a Python script; for one that imports "
            f"pydirectml: python -m dmlgpu.frontends.pydirectml {shlex.quote(str(model))}"
        )
    if model.is_dir() or is_gguf(model):
        raise InvalidArgument(
            f"run: model must be a .onnx or DxDispatch's .json file, got {str(model)!r}; for a language model: "
            f"dmlgpu generate {shlex.quote(str(model))}"
        )
    onnx, dispatch = OnnxRunOptions(**options), dispatching or DispatchOptions()
    if onnx != OnnxRunOptions() and (model.suffix.lower() != ".onnx" or dispatch != DispatchOptions()):
        wrong = model.name if model.suffix.lower() != ".onnx" else "DxDispatch's options"
        ours = "--input, --check, --profile, --profile-json, --trace, --repeat, --warm and --shape"
        raise InvalidArgument(f"run: {ours} need an ONNX model, got {wrong}")
    if model.suffix.lower() == ".onnx" and dispatch == DispatchOptions():
        run_onnx(model, output_dir, adapter, onnx, precise=precise)
        return
    from dmlgpu.frontends import dxdispatch  # noqa: PLC0415 - other verbs need only the front end for ONNX

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
    """Run an ONNX model on many files. ``many`` has the fields of ``map_onnx.ManyInputs``.

    Raises:
        InvalidArgument: If the package ``onnx`` is not installed, or an option does not apply to many files.
        DmlError: As ``map_onnx.run``.
    """
    frontend()
    from dmlgpu.cli import map_onnx  # noqa: PLC0415  the extra is there

    if OnnxRunOptions(**options) != OnnxRunOptions() or dispatching != DispatchOptions():
        raise InvalidArgument(
            "run: --inputs runs a model once per file; --input, --check, --profile, --trace, --repeat, --warm and "
            "DxDispatch's options are for one run: leave --inputs out"
        )
    map_onnx.run(model, output_dir, adapter, map_onnx.ManyInputs.of_options(many), precise=precise)


Array = NDArray[Any]


@dataclass(frozen=True)
class OnnxRunOptions:
    """Options of an ONNX model.

    Attributes:
        inputs: Each ``name=file.npy``.
        check: Compare every node.
        profile: Print the time per kernel and node.
        profile_json: File for the profile as JSON.
        trace: File for a Chrome trace.
        repeat: Number of runs.
        warm: Compile, and do not run.
        shapes: Shapes to compile for, each ``name=1x3``.
    """

    inputs: tuple[str, ...] = ()
    check: bool = False
    profile: bool = False
    profile_json: Path | None = None
    trace: Path | None = None
    repeat: int = 1
    warm: bool = False
    shapes: tuple[str, ...] = ()

    def check_warm(self, output_dir: Path | None) -> None:
        """Check that the options fit together.

        Raises:
            InvalidArgument: If options need ``warm``, or cannot be combined with it.
        """
        if self.shapes and not self.warm:
            raise InvalidArgument("run: --shape needs --warm; without it, the arrays of --input have the shapes")
        if self.warm and (
            output_dir is not None or replace(self, warm=False, shapes=(), inputs=()) != OnnxRunOptions()
        ):
            raise InvalidArgument(
                "run: --warm compiles and does not run; of the other options, only --shape, --input, --adapter and "
                "--precise can be combined with it"
            )


def frontend() -> Any:
    """Import the ONNX front end.

    Raises:
        InvalidArgument: If the package ``onnx`` is not installed.
    """
    try:
        from dmlgpu.frontends import onnx  # noqa: PLC0415  an extra
        from dmlgpu.frontends.onnx import watching  # noqa: F401, PLC0415
    except ImportError as error:
        raise InvalidArgument(f"models in ONNX need the extra `dmlgpu[onnx]`: {error}") from None
    return onnx


def run_onnx(
    model: Path, output_dir: Path | None, adapter: str | None, options: OnnxRunOptions, *, precise: bool = False
) -> None:
    """Run a model, print its outputs, and write them if a folder is given.

    Raises:
        InvalidState: If ``check`` found a node that differs.
        InvalidArgument: If options do not fit together.
        DmlError: As ``frontends.onnx.load`` and ``Session.run``.
    """
    options.check_warm(output_dir)
    shapes = _shape_sets(options.shapes)
    onnx = frontend()
    arrays = dict(read_array("run: --input", argument) for argument in options.inputs)
    for name in sorted(arrays.keys() & shapes[0].keys()):
        raise InvalidArgument(f"run: --shape and --input both give input {name!r}; leave one out")
    device = Device(choose_adapter(adapter), precise=precise)
    print(f"Running on '{device.adapter}'", flush=True)
    session = onnx.load(model, device)
    if options.warm:
        _warm_up(session, [arrays | sizes for sizes in shapes])
        return
    times = []
    for _ in range(options.repeat):
        start = time.perf_counter()
        with CompileStatus.shown():
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


def _shape_sets(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the shapes of ``--shape``, a mapping per compilation: the first one has the first shape of each name, and
    so on. A name with a single shape is in all of them.

    Raises:
        InvalidArgument: If a text is malformed, or names have different numbers of shapes.
    """
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in map(parse_shape, texts):
        by_name.setdefault(name, []).append(shape)
    count = max(map(len, by_name.values()), default=1)
    for name, shapes in by_name.items():
        if len(shapes) not in (1, count):
            longest = max(by_name, key=lambda other: len(by_name[other]))
            raise InvalidArgument(
                f"run: --shape must give each name one shape or {count}, as {longest!r} has, got {len(shapes)} for "
                f"{name!r}"
            )
    return [{name: shapes[index % len(shapes)] for name, shapes in by_name.items()} for index in range(count)]


def _warm_up(session: Session, shapes: Sequence[Mapping[str, Any]]) -> None:
    """Compile for shapes, or sizes of dimensions, with a bar and the estimated time left on a terminal."""
    inputs = {info.name for info in session.inputs}
    dimensions = {size for info in session.inputs for size in info.shape or () if isinstance(size, str)} - inputs
    shapes = [
        {name: shape[0] if name in dimensions and len(shape) == 1 else shape for name, shape in named.items()}
        for named in shapes
    ]
    bar, start = BenchProgress(sys.stderr, len(shapes)), time.perf_counter()

    def report(progress: CompileProgress) -> None:
        bar.clear()
        if progress.seconds is not None:
            print(progress, flush=True)
            return
        elapsed, remaining = time.perf_counter() - start, progress.remaining
        left = "" if remaining is None else f", about {duration(remaining)} left"
        driver = "" if progress.driver is None else f", {progress.driver.done} of {progress.driver.total} kernels"
        what = f"compiling {counted(progress.operators, 'operator')}{driver}"
        bar.show(progress.number - 1, what, f"{elapsed:.0f} s{left}")

    try:
        session.compile(shapes, progress=report)
    finally:
        bar.finish()
    sets = "1 set" if len(shapes) == 1 else f"{len(shapes):,} sets"
    print(f"ready for {sets} of shapes after {time.perf_counter() - start:.1f} s")


class CompileStatus:
    """Shows on a terminal which graph is being compiled."""

    times = False

    @classmethod
    def shown(cls) -> AbstractContextManager[Any]:
        """Return a context in which compilations are shown. Needs the front end for ONNX."""
        status: AbstractContextManager[Any] = frontend().watching.watched_by(cls())
        return status

    @contextmanager
    def compiling(self, segment: Segment) -> Iterator[None]:
        """Return a context in which a spinner shows the graph being compiled, the number of compiled kernels, and the
        time left."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console  # noqa: PLC0415  only on a terminal

        from dmlgpu.runtime.progress import reported_to  # noqa: PLC0415  it loads the compiler

        what = f"compiling {segment.node_count} nodes"
        with (
            Console(stderr=True).status(what) as status,
            reported_to(lambda progress: status.update(f"{what}: {progress}")),
        ):
            yield

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        """Show that a graph was compiled."""
        if sys.stderr.isatty():
            program = segment.compiled.program
            kernels = "" if program is None else f" to {len(program.kernels)} kernels"
            print(f"compiled {segment.node_count} nodes{kernels} in {seconds:.1f} s", file=sys.stderr)

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """Do nothing: runs are not timed."""


def _report_profile(profile: RunProfile, session: Session, options: OnnxRunOptions) -> None:
    """Print and write the profile."""
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
    """Print the result of a check, and save the inputs of the first node that differs."""
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
    raise InvalidState(f"check: {first}; {count} of {check.compared} node outputs differ")


def read_array(option: str, text: str) -> tuple[str, Array]:
    """Return name and array of ``name=file.npy``.

    Args:
        option: Name of the option, for messages.
        text: Value of the option.

    Raises:
        InvalidArgument: If the text is malformed, or the file cannot be read.
    """
    name, _, path = text.partition("=")
    if not name or not path:
        raise InvalidArgument(f"{option} must be name=file.npy, got {text!r}")
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{option} {name}: {path} cannot be read: {error}") from None


T = TypeVar("T")


def _default(name: str) -> Any:
    """Return default options of DxDispatch."""
    from dmlgpu.frontends import dxdispatch  # noqa: PLC0415 - as in ``run``

    return getattr(dxdispatch, name)()


@dataclass(frozen=True)
class DispatchOptions:
    """DxDispatch's options.

    Attributes:
        timing: Number of runs of dispatches.
        verbosity: Level of detail of printed times.
        onnx: Options of ONNX models.
        print_bindings: Whether to print the bindings of ONNX models.
    """

    timing: TimingOptions = field(default_factory=lambda: _default("TimingOptions"))
    verbosity: int = 0
    onnx: OnnxOptions = field(default_factory=lambda: _default("OnnxOptions"))
    print_bindings: bool = False


def onnx_options(
    names: Sequence[str] | None, denotations: Sequence[str] | None, shapes: Sequence[str] | None
) -> OnnxOptions:
    """Parse ``NAME:SIZE`` and ``TENSOR:SIZE,SIZE``.

    Raises:
        InvalidArgument: If a text is malformed.
    """
    from dmlgpu.frontends.dxdispatch import OnnxOptions  # noqa: PLC0415 - as in ``run``

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
