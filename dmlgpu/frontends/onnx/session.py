"""Sessions: a model on a device, with checked inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.common.timings import Timings
from dmlgpu.compiler.sizes.recordings import failures
from dmlgpu.frontends.onnx.mapping import TIME_LIMIT, MapOptions, MappedSession, map_session
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, check_supported, read
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, RunOutput, Segment
from dmlgpu.frontends.onnx.tensor_proto import as_coded, as_typed, is_float_code
from dmlgpu.frontends.onnx.watching import RunProfile, watched_by
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.runtime.progress import KernelProgress, reported_to
from dmlgpu.tensors.recorded_call import ExecutedStep, RecordedCall
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.checking import ModelCheck

Array = NDArray[Any]
Shapes = Mapping[str, Any]

MAX_RUNNERS = 16
"""Maximum number of lengths of inputs that are sequences for which compiled graphs are kept."""


@dataclass(frozen=True)
class InputBinding:
    """Binding of an input.

    Attributes:
        tensor: Its elements.
        updated_by: The output that replaces it after a run; None if it is constant.
        is_shared: Whether the caller may have the tensor, which must keep its elements.
    """

    tensor: Tensor
    updated_by: str | None
    is_shared: bool = True


@dataclass(frozen=True)
class CompileProgress:
    """Progress of ``Session.compile``: a graph about to be compiled, one of its kernels compiled, or all of them.
    ``print`` shows it as a sentence.

    Attributes:
        number: Index of the shapes, from 1.
        count: Number of shapes.
        operators: Number of operators of the graph.
        kernels: Number of kernels; 0 before compilation, and on ``numpy``.
        seconds: Compile time; None before compilation.
        remaining: Estimated seconds until all shapes are compiled: by the lengths of the kernels' sources, and if each
            of the shapes takes as long as the latest ones. None before the first kernel.
        driver: Number of kernels that the driver has compiled; None before the first and after the last one, and if
            earlier graphs compiled them.
    """

    number: int
    count: int
    operators: int
    kernels: int = 0
    seconds: float | None = None
    remaining: float | None = None
    driver: KernelProgress | None = None

    def __str__(self) -> str:
        """Return a sentence."""
        prefix = f"shapes {self.number} of {self.count}: "
        operators = f"{self.operators} operator{'s' * (self.operators != 1)}"
        if self.seconds is None:
            driver = "" if self.driver is None else f", {self.driver.done} of {self.driver.total} kernels"
            remaining = "" if self.remaining is None else f", about {self.remaining:.1f} s left"
            return f"{prefix}compiling {operators}{driver}{remaining}"
        kernels = f" to {self.kernels} kernel{'s' * (self.kernels != 1)}" if self.kernels else ""
        return f"{prefix}compiled {operators}{kernels} in {self.seconds:.1f} s"


@dataclass
class _CompileWatch:
    """Reports compilation to a callback.

    Attributes:
        progress: The callback.
        number, count: As in ``CompileProgress``.
        latest: Seconds that the previous shapes took; None for the first ones.
        start: Time at which the current shapes began.
    """

    progress: Callable[[CompileProgress], Any]
    number: int
    count: int
    latest: float | None
    start: float
    times: bool = False

    def compiling(self, segment: Segment) -> AbstractContextManager[Any]:
        remaining = None if self.latest is None else self.latest * (self.count - self.number + 1)
        operators = self._operators(segment)
        self.progress(CompileProgress(self.number, self.count, operators, remaining=remaining))

        def report(driver: KernelProgress) -> None:
            elapsed = time.perf_counter() - self.start
            remaining = driver.remaining + (elapsed + driver.remaining) * (self.count - self.number)
            self.progress(CompileProgress(self.number, self.count, operators, remaining=remaining, driver=driver))

        return reported_to(report)

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        program = segment.compiled.program
        kernels = 0 if program is None else len(program.kernels)
        remaining = (time.perf_counter() - self.start) * (self.count - self.number)
        self.progress(CompileProgress(self.number, self.count, self._operators(segment), kernels, seconds, remaining))

    @staticmethod
    def _operators(segment: Segment) -> int:
        return sum(isinstance(node.desc, OperatorDesc) for node in segment.graph.nodes)

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        pass


class Session:
    """A model on a device, created by ``load``.

        session = dmlgpu.load("model.onnx")
        outputs = session.run({"x": array})

    Graphs are compiled for the input shapes of a run and cached: later runs with these shapes compile nothing.

    Args:
        model: Result of ``model.read``.
        device: Device to run on.
        strict: Whether to reject nodes that need host decisions.
        weights: Store of uploaded constants; sessions on one device may share it.
    """

    def __init__(
        self, model: OnnxModel, device: Device | None = None, strict: bool = False, *, weights: Weights | None = None
    ):
        if not isinstance(model, OnnxModel) or device is None:
            raise InvalidArgument("Session: create a session by dmlgpu.load(path, adapter)")
        check_supported(model, strict)
        self._model, self.device, self._strict = model, device, strict
        self._weights = Weights(device) if weights is None else weights
        self._runners: Cache[Hashable, Runner] = Cache(CacheLimits(MAX_RUNNERS, MAX_RUNNERS))
        self._runner = self._runner_of({})
        self._bound: dict[str, InputBinding] = {}

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, declared)) for declared in (self.inputs, self.outputs))
        return f"<Session {self._model.name!r}: {inputs} -> {outputs}; on '{self.device.adapter}'>"

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """Inputs that ``run`` needs, as the model declares them, with name, dtype and shape. Initializers that are
        also inputs are optional."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[Declared, ...]:
        """Outputs that ``run`` returns, as the model declares them, with name, dtype and shape."""
        return self._model.declared_outputs

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Placement of each node in the last run; empty before the first run.

        The first access for given shapes repeats the passes of the graph compiler, which may take seconds.
        """
        ran = self._runner.placement
        folded = (Placement(node.node, node.op_type, "none", why=node.why) for node in self._model.folded)
        return (*folded, *ran) if ran else ()

    def map(
        self,
        batches: Iterable[Mapping[str, Any] | Array],
        *,
        adapters: Sequence[str | int] | str | int | None = None,
        scheduler: str | None = None,
        strict: bool = False,
        in_flight: int | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> Iterator[dict[str, Array]]:
        """Run many batches.

            for outputs in session.map(images, adapters="all"):
                print(outputs["probs"].argmax())

        Args:
            batches: Iterable of inputs as for ``run``, or of arrays if the model has one input. Read lazily.
            adapters: Names or numbers of adapters of this machine, each of which runs the model in a process of its
                own; ``"all"`` selects all but the reference. By default, batches run in this process, on the session's
                device.
            scheduler: Address of a Dask cluster whose workers run the batches; `adapters` then selects among theirs.
            strict: Whether a failed batch raises its error. By default, a ``FailedBatch``, which raises the error when
                an output is accessed, takes the place of its outputs, and the run continues.
            in_flight: Maximum number of batches read and not yet yielded; None means four per worker.
            time_limit: Timeout of one batch in another process, in seconds.

        If a worker is lost, its batches run again on others. A batch that loses three workers counts as failed.

        Returns:
            An iterator over the results in the order of the batches: a mapping from output names to arrays, or a
            FailedBatch.

        Raises:
            InvalidArgument: If an argument is invalid.
            InvalidState: If inputs are bound and batches run in other processes.
            NotSupported: If inputs or outputs are sequences or optionals and batches run in other processes.
            AdapterNotFound: If an adapter does not exist.
            DeviceRemoved: If no worker is left.
        """
        containers = [info.name for info in (*self.inputs, *self.outputs) if info.kind != "tensor"]
        if containers and (adapters is not None or scheduler is not None):
            raise NotSupported(
                f"{self._label}: map in other processes passes only tensors, and {containers[0]!r} is none; omit "
                "adapters"
            )
        precise = bool(getattr(self.device.backend.target, "precise", False))
        options = MapOptions(self._strict, precise, time_limit)
        names = [info.name for info in self.inputs]
        session = MappedSession(self._model, self.run, names, list(self._bound), options)
        places: dict[str, Any] = {"adapters": adapters, "scheduler": scheduler}
        return map_session(session, batches, **places, strict=strict, in_flight=in_flight)

    @property
    def timings(self) -> Timings | None:
        """Seconds per stage of compilation, summed over everything cached; None on the adapter ``numpy``.

        After one run, they add up to its time without execution. ``planning`` includes the translation of nodes.
        """
        compiled = [timings for operator in list(self._weights.users) if (timings := operator.timings) is not None]
        if not compiled:
            return None
        return Timings(
            planning=sum(timings.planning for timings in compiled) + self._weights.translating,
            rendering=sum(timings.rendering for timings in compiled),
            driver=sum(timings.driver for timings in compiled),
            upload=sum(timings.upload for timings in compiled),
            unrecorded=tuple(failures),
        )

    @property
    def bound(self) -> Mapping[str, Tensor]:
        """Tensors of bound inputs by name. An input updated by an output has the tensor of the last run."""
        self._bound = {name: replace(bound, is_shared=True) for name, bound in self._bound.items()}
        return {name: bound.tensor for name, bound in self._bound.items()}

    def bind(self, name: str, tensor: Tensor | Array, *, updated_by: str | None = None) -> None:
        """Bind an input for all later runs, which may omit it. Its tensor stays on the device.

            session.bind("past_key", zeros, updated_by="present_key")  # a cache, passed from run to run

        Args:
            name: Name of the input.
            tensor: Its elements; an array is uploaded. Replaces an earlier binding.
            updated_by: Output whose tensor replaces the input after each run, without a copy (recurrent states, KV
                caches).

        Raises:
            InvalidArgument: If the input or output does not exist, or dtype or shape do not match.
            OutOfMemory: If the device has no memory left.
        """
        declared = next((declared for declared in self.inputs if declared.name == name), None)
        if declared is None or declared.kind != "tensor":
            names = ", ".join(info.name for info in self.inputs if info.kind == "tensor")
            raise InvalidArgument(f"{self._label}: name must be one of the inputs {names}, got {shown(name)}")
        updating = [info.name for info in self.outputs if info.kind == "tensor"]
        if updated_by is not None and updated_by not in updating:
            names = ", ".join(updating)
            raise InvalidArgument(
                f"{self._label}: updated_by must be one of the outputs {names}, got {shown(updated_by)}"
            )
        value = self._run_input(declared, tensor)
        self._check_shape(declared, value.shape, {})
        self._bound[name] = InputBinding(
            self._on_device(name, value), updated_by, is_shared=isinstance(value.held, Tensor)
        )

    def unbind(self, name: str) -> Tensor:
        """Remove the binding of an input.

        Args:
            name: Name of the bound input.

        Returns:
            The tensor that was bound.

        Raises:
            InvalidArgument: If the input is not bound.
        """
        if name not in self._bound:
            names = ", ".join(self._bound) or "none is"
            raise InvalidArgument(f"{self._label}: name must be one of the bound inputs ({names}), got {shown(name)}")
        return self._bound.pop(name).tensor

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Compute the outputs.

        Args:
            inputs: Arrays or tensors by input name. Tensors on the session's device are used without a copy. Bound
                inputs may be omitted; a value given for one applies to this run only. A sequence is a list of arrays
                or tensors, an optional may be None.
            outputs: Names of the outputs to compute; None (the default) for all but those that update bound inputs.

        Returns:
            A dict from output names to arrays; to lists of arrays for sequences, and to None for optionals without an
            element.

        Raises:
            InvalidArgument: If a name, dtype, rank or size does not match the model, symbolic dimensions contradict
                each other, or an index or length in an array is out of range.
            NotSupported: If a node cannot be computed for these shapes.
            OutOfMemory: If the device has no memory left.
        """
        fetch = outputs is None and not self._bound  # all outputs are read
        return {name: _each(_as_array, value) for name, value in self._run(inputs, outputs, fetch).items()}

    def run_tensors(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Compute the outputs and leave them on the device.

        Args:
            inputs: As for ``run``.
            outputs: As for ``run``.

        Returns:
            A dict from output names to tensors; outputs computed on the host are arrays. Sequences are lists of these,
            and optionals without an element None.

        Raises:
            DmlError: As ``run``.
        """
        return {name: _each(lambda fed: fed.held, value) for name, value in self._run(inputs, outputs).items()}

    def compile(
        self, shapes: Shapes | Sequence[Shapes], *, progress: Callable[[CompileProgress], Any] | None = None
    ) -> None:
        """Compile for shapes ahead of time, by runs on zeros. Later runs with these shapes, of all outputs, compile
        nothing.

            session.compile([{"x": (1, 3, 48, 192)}, {"x": (8, 3, 48, 192)}], progress=print)
            session.compile({"batch": 8})

        If shapes depend on elements, the path taken for zeros is compiled; pass arrays for such inputs. Bound inputs do
        not change. Random number streams advance as in any run.

        Returns when the driver has compiled all kernels, also a driver that compiles a kernel when it first runs.

        Args:
            shapes: A mapping or a list of mappings: from input names to shapes or arrays, or from names of dimensions
                to sizes. Inputs with fixed shapes and bound inputs may be omitted.
            progress: Called with a CompileProgress before and after each graph is compiled, and after each new kernel,
                such as ``print``.

        Raises:
            InvalidArgument: If a name is neither an input nor a dimension, a size is missing, or a shape does not fit
                its input.
            DmlError: As ``run``.
        """
        entries = list(shapes) if isinstance(shapes, Sequence) else [shapes]
        if not all(isinstance(entry, Mapping) for entry in entries):
            raise InvalidArgument(
                f"{self._label}: shapes must be a mapping from names to shapes, or a list of such, got {shown(shapes)}"
            )
        runs = [self._run_inputs(self._zeros(entry)) for entry in entries]
        latest = None
        for shapes_index, (values, counts) in enumerate(runs, 1):
            start = time.perf_counter()
            watch = None if progress is None else _CompileWatch(progress, shapes_index, len(runs), latest, start)
            with watched_by(watch):
                self._runner_of(counts).run_containers(values)
            fence = self.device.create_fence()
            self.device.queue.signal(fence, 1)
            fence.wait(1)
            latest = time.perf_counter() - start

    def profile(self, inputs: Mapping[str, Any], *, repeat: int = 1) -> RunProfile:
        """Time every kernel, after a run that compiles.

            print(session.profile({"x": array}, repeat=20))

        Args:
            inputs: As for ``run``.
            repeat: Number of timed runs. Defaults to 1.

        Returns:
            A RunProfile, which prints as a table of kernels; ``trace()`` converts it to a Chrome trace.

        Raises:
            InvalidArgument: If `repeat` is below 1.
            DmlError: As ``run``.
        """
        if repeat < 1:
            raise InvalidArgument(f"{self._label}: repeat must be at least 1, got {shown(repeat)}")
        values, counts = self._run_inputs(inputs)
        runner = self._runner_of(counts)
        runner.run_containers(values)
        profile = RunProfile()
        with watched_by(profile):
            for _ in range(repeat):
                runner.run_containers(values)
        profile.runs = repeat
        return profile

    def check(self, inputs: Mapping[str, Any], *, rtol: float = 1e-3, atol: float = 1e-5) -> ModelCheck:
        """Compare every node with the reference, with onnxruntime and with ONNX's reference; see ``checking.check``.

        Args:
            inputs: As for ``run``.
            rtol: Maximum difference, relative to the largest magnitude of the output.
            atol: Differences up to this are ignored.

        Returns:
            A ModelCheck, which prints as a summary.

        Raises:
            DmlError: As ``load`` and ``run``.
        """
        from dmlgpu.frontends.onnx.checking import check  # noqa: PLC0415 - it loads ONNX's reference

        self._run_inputs(inputs)
        assert self._model.source is not None
        bound = {name: tensor for name, tensor in self.bound.items() if name not in inputs}
        arrays = {
            info.name: _each(_as_array, self._container(info, {**bound, **inputs}[info.name]))
            for info in (*self.inputs, *self._model.variable)
            if info.name in bound or info.name in inputs
        }
        return check(self._model.source, self.device, arrays, rtol=rtol, atol=atol)

    def _zeros(self, shapes: Shapes) -> dict[str, Any]:
        """Return inputs for shapes given to ``compile``."""
        declared = {info.name: info for info in (*self.inputs, *self._model.variable)}
        dimensions = {size for info in declared.values() for size in info.shape or () if isinstance(size, str)}
        for name in shapes:
            if name not in declared and name not in dimensions:
                names = ", ".join((*declared, *sorted(dimensions)))
                raise InvalidArgument(
                    f"{self._label}: shapes must name inputs or dimensions ({names}), got {shown(name)}"
                )
        sizes = {name: size for name, size in shapes.items() if name not in declared}
        arrays: dict[str, Any] = {}
        for info in self.inputs:
            shape = shapes.get(info.name)
            if isinstance(shape, np.ndarray | Tensor):
                arrays[info.name] = shape
                continue
            if info.kind != "tensor":
                arrays[info.name] = None if info.is_optional and shape is None else shape
                continue
            if shape is None:
                if info.name in self._bound:
                    continue
                shape = [sizes.get(size) if isinstance(size, str) else size for size in info.shape or (None,)]
            if not isinstance(shape, Sequence) or not all(isinstance(size, int) and size >= 0 for size in shape):
                raise InvalidArgument(f"{self._label}: shapes must give input '{info}' a shape, got {shown(shape)}")
            arrays[info.name] = np.zeros(shape, info.dtype)
        return arrays

    def _run(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] | None, fetch: bool = False
    ) -> dict[str, RunOutput]:
        updates = {bound.updated_by: name for name, bound in self._bound.items() if bound.updated_by is not None}
        names = self._model.outputs
        if isinstance(outputs, Mapping):
            raise InvalidArgument(f"{self._label}: run(inputs, outputs=None): the arguments are swapped")
        if isinstance(outputs, str):
            raise InvalidArgument(
                f"{self._label}: outputs must be a list of names, got {outputs!r}; pass [{outputs!r}]"
            )
        requested = tuple(name for name in names if name not in updates) if outputs is None else tuple(outputs)
        for name in requested:
            if name not in names:
                raise InvalidArgument(f"{self._label}: unknown output {shown(name)}; the model has: {', '.join(names)}")
        values, counts = self._run_inputs(inputs)
        computed = tuple(name for name in names if name in requested or name in updates)
        runner = self._runner_of(counts, computed)
        results = runner.run_containers(values, fetch, self._donated(runner, inputs))
        by_name = dict(zip(computed, results, strict=True))
        for output, name in updates.items():
            result = by_name[output]
            assert isinstance(result, RunInput)
            tensor = self._on_device(name, result)
            self._bound[name] = InputBinding(tensor, output, is_shared=output in requested)
        return {name: by_name[name] for name in requested}

    def _runner_of(self, counts: Mapping[str, int | None], outputs: tuple[str, ...] | None = None) -> Runner:
        """Return the runner of some outputs, or all, for the element counts of inputs that are sequences or
        optionals."""
        outputs = self._model.outputs if outputs is None else outputs
        key = tuple(counts.items()), outputs
        runner = self._runners.get(key)
        if runner is None:
            graph = replace(self._model.graph_of(counts), outputs=outputs)
            runner = Runner(self.device, graph, self._weights, strict=self._strict)
            self._runners.put(key, runner, 1)
        self._runner = runner
        return runner

    def _donated(self, runner: Runner, inputs: Mapping[str, Any]) -> list[int]:
        """Return the indices of the inputs whose memory is not needed after a run."""
        return [
            index
            for index, name in enumerate(runner.inputs)
            if name in self._bound and name not in inputs and not self._bound[name].is_shared
            if self._bound[name].updated_by is not None
        ]

    @property
    def _label(self) -> str:
        return f"model {self._model.name!r}"

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def _run_inputs(self, inputs: Mapping[str, Any]) -> tuple[list[RunInput | None], dict[str, int | None]]:
        """Return the tensors of the inputs, and the element counts of sequences and optionals."""
        if not isinstance(inputs, Mapping):
            raise InvalidArgument(f"{self._label}: inputs must be a mapping from names to arrays, got {shown(inputs)}")
        declared = (*self.inputs, *self._model.variable)
        names = [info.name for info in declared]
        for name in inputs:
            if name not in names:
                raise InvalidArgument(
                    f"{self._label}: unknown input {shown(name)}; the model has: {', '.join(names) or 'none'}"
                )
        missing = [info.name for info in self.inputs if info.name not in inputs and info.name not in self._bound]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise InvalidArgument(f"{self._label}: missing input{'s' if len(missing) > 1 else ''} {listed}")
        dimensions: dict[str, tuple[int, str]] = {}
        values: list[RunInput | None] = []
        counts: dict[str, int | None] = {}
        for info in declared:
            bound = self._bound.get(info.name)
            if info.name not in inputs and bound is None:
                values.append(None)
                continue
            held = inputs[info.name] if bound is None or info.name in inputs else bound.tensor
            if info.kind != "tensor":
                container = self._container(info, held)
                items = container if isinstance(container, list) else [] if container is None else [container]
                counts[info.name] = None if container is None else len(items)
                values += items
                continue
            value = self._run_input(info, held)
            self._check_shape(info, value.shape, dimensions)
            values.append(value)
        return values, counts

    def _container(self, info: Declared, held: Any) -> RunOutput:
        """Return an input that may be a sequence or an optional; sizes of its tensors with one symbol may differ."""
        if held is None and info.is_optional:
            return None
        if not info.is_sequence:
            value = self._run_input(info, held)
            self._check_shape(info, value.shape, {})
            return value
        if not isinstance(held, list | tuple):
            raise InvalidArgument(
                f"{self._label}: input {info.name!r} must be a list of arrays of {info.dtype}, got {shown(held)}"
            )
        element = replace(info, kind="tensor")
        items = [self._run_input(element, item) for item in held]
        for item in items:
            self._check_shape(element, item.shape, {})
        return items

    def _on_device(self, name: str, fed: RunInput) -> Tensor:
        if isinstance(fed.held, Tensor):
            return fed.held
        if 0 in fed.shape:
            raise InvalidArgument(
                f"{self._label}: input {name!r} must have elements to be bound, got {list(fed.shape)}"
            )
        return Tensor(fed.held, fed.data_type, device=self.device)

    def _run_input(self, info: Declared, tensor: Any) -> RunInput:
        if isinstance(tensor, Tensor):
            if tensor.data_type is not info.data_type:
                raise InvalidArgument(
                    f"{self._label}: input {info.name!r} must be of {info.data_type.name}, got "
                    f"{tensor.data_type.name}; pass tensor.astype('{info.data_type.name.lower()}')"
                )
            return RunInput(tensor.sizes, tensor.data_type, info.coded, tensor.to(self.device))
        array = np.asarray(tensor)
        expected = info.dtype
        if array.dtype.name == info.type_name and not is_float_code(info.coded):
            array = array.astype(expected)
        if array.dtype != expected:
            raise InvalidArgument(
                f"{self._label}: input {info.name!r} must be of {expected}, got {array.dtype}; "
                f"pass array.astype(np.{expected.type.__name__})"
            )
        held: Any = as_coded(np.ascontiguousarray(array).reshape(array.shape))[0]
        if info.data_type.bits < 8 and array.size:
            held = Tensor(held, info.data_type, device=self.device)
        return RunInput(array.shape, info.data_type, info.coded, held)

    def _check_shape(self, info: Declared, shape: tuple[int, ...], dimensions: dict[str, tuple[int, str]]) -> None:
        if info.shape is None:
            return
        if len(shape) != len(info.shape):
            raise InvalidArgument(
                f"{self._label}: input {info.name!r} must have {len(info.shape)} dimensions, got shape {list(shape)}"
            )
        for axis, (size, expected) in enumerate(zip(shape, info.shape, strict=True)):
            if isinstance(expected, int) and size != expected:
                raise InvalidArgument(
                    f"{self._label}: input {info.name!r} must have size {expected} in dimension {axis}, "
                    f"got {list(shape)}"
                )
            if isinstance(expected, str):
                bound, first = dimensions.setdefault(expected, (size, info.name))
                if bound != size and expected.isidentifier():
                    raise InvalidArgument(
                        f"{self._label}: input {info.name!r} must have size {bound} in dimension {axis} ({expected!r}, "
                        f"as in {first!r}), got {list(shape)}"
                    )


def _each(function: Callable[[RunInput], Any], value: RunOutput) -> Any:
    """Return the result of a function of a tensor, of each tensor of a sequence, or None for an empty optional."""
    if isinstance(value, list):
        return [function(item) for item in value]
    return None if value is None else function(value)


def _as_array(fed: RunInput) -> Array:
    array = fed.held.numpy() if isinstance(fed.held, Tensor) else np.array(fed.held)
    return as_typed(array, fed.data_type, fed.coded) if fed.coded else array


def runner_of(session: Session) -> Runner:
    """Return the runner of a session's last run, for tools and tests that inspect its stages."""
    return session._runner


def bound_tensor(session: Session, name: str) -> Tensor:
    """Return the tensor of a bound input, which later runs may overwrite."""
    return session._bound[name].tensor


def bind_own(session: Session, name: str, tensor: Tensor, *, updated_by: str) -> None:
    """Bind an input to a tensor to which nothing else refers, so that runs may overwrite it."""
    session.bind(name, tensor, updated_by=updated_by)
    session._bound[name] = replace(session._bound[name], is_shared=False)


def recorded_run(
    session: Session, log: Sequence[ExecutedStep | None], inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> RecordedCall | None:
    """Return the call that repeats the last run of a session with other tensors.

    Args:
        session: The session.
        log: The operators of the run, as ``recording`` logged them.
        inputs: Inputs of the run that are not bound, packed.
        outputs: Outputs of the run.

    Returns:
        None if the run needs the host, or did not update bound inputs in place.
    """
    places = [(tensor.buffer.memory, 0) for tensor in inputs]
    if len({id(memory) for memory, _ in places}) < len(places):
        return None
    bound = [bound.tensor for bound in session._bound.values()]
    return RecordedCall.of(session_of(session.device), log, places, outputs, unchanged=bound)


def load(source: Source, device: Device | str | None = None, *, strict: bool = False) -> Session:
    """Load an ONNX model. Graphs are compiled when a run brings new input shapes.

    Args:
        source: Path of a file, its bytes, or a ``ModelProto`` of the package ``onnx``. External data must be in files
            inside the folder of the path.
        device: A Device, the name of an adapter, or None for ``default_device()``.
        strict: Whether to reject nodes that need host decisions: control flow when loading; nodes whose shapes depend
            on elements in the first run that reaches them, before it computes anything. Defaults to False.

    Returns:
        A Session.

    Raises:
        ModelError: If the model is malformed.
        NotSupported: If it has unsupported operators or types (the message lists all of them), or control flow with
            `strict`.
        AdapterNotFound: If no adapter has this name.
    """
    return Session(read(source), as_device("load", device), strict)
