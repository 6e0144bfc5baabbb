"""Models that run: inputs checked, outputs as arrays or tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.common.timings import Timings
from dmlgpu.frontends.onnx.mapping import TIME_LIMIT, MapOptions, MappedSession, map_session
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, check_supported, read
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, Segment, Weights
from dmlgpu.frontends.onnx.watching import RunProfile, watched_by
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.checking import ModelCheck

Array = NDArray[Any]
Shapes = Mapping[str, Any]


@dataclass(frozen=True)
class Bound:
    """What an input is bound to.

    Attributes:
        tensor: its elements.
        updated_by: the output that it becomes after a run; None if it stays.
    """

    tensor: Tensor
    updated_by: str | None


@dataclass(frozen=True)
class CompileProgress:
    """A graph that ``Session.compile`` is about to compile, or has compiled; ``print`` shows it as a sentence.

    Attributes:
        number: which of the shapes it is for, from 1 on.
        count: how many shapes there are.
        operators: how many the graph has.
        kernels: what it became; 0 before, and on ``numpy``.
        seconds: how long it took; None before.
    """

    number: int
    count: int
    operators: int
    kernels: int = 0
    seconds: float | None = None

    def __str__(self) -> str:
        """Return a sentence."""
        what = f"shapes {self.number} of {self.count}: "
        operators = f"{self.operators} operator{'s' * (self.operators != 1)}"
        if self.seconds is None:
            return f"{what}compiling {operators}"
        kernels = f" to {self.kernels} kernel{'s' * (self.kernels != 1)}" if self.kernels else ""
        return f"{what}compiled {operators}{kernels} in {self.seconds:.1f} s"


@dataclass
class _CompileWatch:
    """Tells ``progress`` of what is compiled."""

    progress: Callable[[CompileProgress], Any]
    number: int
    count: int
    times: bool = False

    def compiling(self, segment: Segment) -> None:
        self.progress(CompileProgress(self.number, self.count, self._operators(segment)))

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        program = segment.compiled.program
        kernels = 0 if program is None else len(program.kernels)
        self.progress(CompileProgress(self.number, self.count, self._operators(segment), kernels, seconds))

    @staticmethod
    def _operators(segment: Segment) -> int:
        return sum(isinstance(node.desc, OperatorDesc) for node in segment.graph.nodes)

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        pass


class Session:
    """A model on a device; made by ``load``.

    What is compiled for the shapes of a run is kept for the next one.

    Args:
        model: what ``model.read`` returned.
        device: where it runs.
        strict: whether nodes that the host must decide about are refused.
    """

    def __init__(self, model: OnnxModel, device: Device, strict: bool = False):
        check_supported(model, strict)
        self._model, self.device, self._strict = model, device, strict
        self._weights = Weights(device)
        self._runner = Runner(device, model.graph, self._weights, strict=strict)
        self._bound: dict[str, Bound] = {}

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, declared)) for declared in (self.inputs, self.outputs))
        return f"<Session {self._model.name!r}: {inputs} -> {outputs}; on '{self.device.adapter}'>"

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """What ``run`` must be given, as the model declares it; initializers that are inputs, too, may be given."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[Declared, ...]:
        """What ``run`` returns, as the model declares it."""
        return self._model.declared_outputs

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Where each node was computed in the last run; empty before the first.

        Asked the first time for shapes, it goes through what the graph compiler does, which may take seconds.
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
        """Run many batches, and yield the outputs of each in their order.

            for outputs in session.map(pictures, adapters="all"):
                print(outputs["probs"].argmax())

        Args:
            batches: inputs as for ``run``, or an array where the model has one input. They are read as they are needed.
            adapters: names or numbers of adapters of this machine, each of which gets a process of its own with the
                model; ``"all"`` for every one but the reference. Without it, batches run here, on the session's device.
            scheduler: the address of a Dask cluster whose workers run them; ``adapters`` are chosen among theirs then.
            strict: whether a batch that fails raises its error. Otherwise a ``FailedBatch``, which raises it when an
                output is looked up, takes the place of its outputs, and others go on.
            in_flight: batches read and not yet yielded, at most; None for four per worker.
            time_limit: seconds for one batch in another process.

        A worker that is lost costs the batches that it was at, which others do again; one that costs three workers has
        failed.

        Raises:
            InvalidArgument: a wrong argument.
            InvalidState: inputs are bound, and batches are to run elsewhere.
            AdapterNotFound: no such adapter.
            DeviceRemoved: no worker is left.
        """
        precise = bool(getattr(self.device.backend.target, "precise", False))
        options = MapOptions(self._strict, precise, time_limit)
        names = [info.name for info in self.inputs]
        session = MappedSession(self._model, self.run, names, list(self._bound), options)
        places: dict[str, Any] = {"adapters": adapters, "scheduler": scheduler}
        return map_session(session, batches, **places, strict=strict, in_flight=in_flight)

    @property
    def timings(self) -> Timings | None:
        """Where the time of compiling went, of all that is kept for the shapes of runs; None on the adapter ``numpy``.

        After one run they add up to its time, but for the run itself. ``planning`` has the translation of nodes.
        """
        compiled = [timings for operator in list(self._weights.users) if (timings := operator.timings) is not None]
        if not compiled:
            return None
        names = [field.name for field in fields(Timings)]
        sums = {name: sum(getattr(timings, name) for timings in compiled) for name in names}
        return Timings(**sums | {"planning": sums["planning"] + self._weights.translating})

    @property
    def bound(self) -> Mapping[str, Tensor]:
        """What inputs are bound to, by name: for one that outputs update, that of the last run."""
        return {name: bound.tensor for name, bound in self._bound.items()}

    def bind(self, name: str, tensor: Tensor | Array, *, updated_by: str | None = None) -> None:
        """Give an input to all runs to come, which need not name it; it stays on the device.

            session.bind("past_key", zeros, updated_by="present_key")  # a cache, handed from run to run

        Args:
            name: of an input.
            tensor: its elements; an array is uploaded. What was bound before is forgotten.
            updated_by: the output whose tensor the input is bound to after each run, without a copy: of a state, of a
                cache.

        Raises:
            InvalidArgument: no such input or output, or a type or shape that the input does not have.
            OutOfMemory: the device has no room.
        """
        declared = next((declared for declared in self.inputs if declared.name == name), None)
        if declared is None:
            names = ", ".join(info.name for info in self.inputs)
            raise InvalidArgument(f"{self._label}: name must be one of the inputs {names}, got {shown(name)}")
        if updated_by is not None and updated_by not in self._model.outputs:
            names = ", ".join(self._model.outputs)
            raise InvalidArgument(
                f"{self._label}: updated_by must be one of the outputs {names}, got {shown(updated_by)}"
            )
        value = self._run_input(declared, tensor)
        self._check_shape(declared, value.shape, {})
        self._bound[name] = Bound(self._on_device(name, value), updated_by)

    def unbind(self, name: str) -> Tensor:
        """Forget what an input is bound to, and return it.

        Raises:
            InvalidArgument: it is not bound.
        """
        if name not in self._bound:
            names = ", ".join(self._bound) or "none is"
            raise InvalidArgument(f"{self._label}: name must be one of the bound inputs ({names}), got {shown(name)}")
        return self._bound.pop(name).tensor

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Compute the outputs.

        Args:
            inputs: by name; arrays, or tensors, which are read where they are if they are on the session's device.
                Inputs that are bound may be left out; one that is given counts for this run.
            outputs: names of those that are wanted; None for all but those that update bound inputs.

        Returns:
            Arrays by name.

        Raises:
            InvalidArgument: a name, type, rank or size that is not the model's, symbols that contradict, or an index or
                length out of range in an array.
            NotSupported: a node cannot be computed for these shapes; OutOfMemory: the device has no room.
        """
        fetch = outputs is None and not self._bound  # all outputs are read
        return {name: _as_array(value) for name, value in self._run(inputs, outputs, fetch).items()}

    def run_tensors(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Tensor | Array]:
        """Compute as ``run``, and leave outputs on the device: tensors, but for those the host knows."""
        return {name: fed.held for name, fed in self._run(inputs, outputs).items()}

    def compile(
        self, shapes: Shapes | Sequence[Shapes], *, progress: Callable[[CompileProgress], Any] | None = None
    ) -> None:
        """Compile for shapes ahead of time, by runs on zeros; runs with these shapes then compile nothing.

            session.compile([{"x": (1, 3, 48, 192)}, {"x": (8, 3, 48, 192)}], progress=print)
            session.compile({"batch": 8})

        Where elements decide about shapes, what zeros lead to is compiled; give arrays for such inputs. Bound inputs
        stay as they are. Streams of random numbers go on as after any run.

        Args:
            shapes: shapes by name of inputs, or an array in the place of a shape, or sizes by name of dimensions;
                several of these in a list. Inputs that the model declares with numbers, and bound ones, need none.
            progress: is called with each graph before and after it is compiled.

        Raises:
            InvalidArgument: a name that is neither an input's nor a dimension's, a size that is missing, or a shape
                that the input cannot have.
            DmlError: as ``run``.
        """
        entries = list(shapes) if isinstance(shapes, Sequence) else [shapes]
        if not all(isinstance(entry, Mapping) for entry in entries):
            raise InvalidArgument(
                f"{self._label}: shapes must be a mapping from names to shapes, or a list of such, got {shown(shapes)}"
            )
        runs = [self._run_inputs(self._zeros(entry)) for entry in entries]
        for number, values in enumerate(runs, 1):
            watch = None if progress is None else _CompileWatch(progress, number, len(runs))
            with watched_by(watch):
                self._runner.run(values)

    def profile(self, inputs: Mapping[str, Any], *, repeat: int = 1) -> RunProfile:
        """Run with every kernel timed by itself, after a run that compiles.

            print(session.profile({"x": array}, repeat=20))

        Args:
            inputs: as for ``run``.
            repeat: how many runs are timed.

        Returns:
            A profile, which shows its kernels as a table; ``trace()`` returns it in Chrome's format.

        Raises:
            InvalidArgument: ``repeat`` is below 1.
            DmlError: as ``run``.
        """
        if repeat < 1:
            raise InvalidArgument(f"{self._label}: repeat must be at least 1, got {shown(repeat)}")
        values = self._run_inputs(inputs)
        self._runner.run(values)
        profile = RunProfile()
        with watched_by(profile):
            for _ in range(repeat):
                self._runner.run(values)
        profile.runs = repeat
        return profile

    def check(self, inputs: Mapping[str, Any], *, rtol: float = 1e-3, atol: float = 1e-5) -> ModelCheck:
        """Compare every node with the reference, with onnxruntime and with ONNX's reference; see ``checking.check``.

        Args:
            inputs: as for ``run``.
            rtol: greatest difference, as a share of the output's largest magnitude.
            atol: greatest difference that never counts.

        Raises:
            DmlError: as ``load`` and ``run``.
        """
        from dmlgpu.frontends.onnx.checking import check  # noqa: PLC0415 - it loads ONNX's reference

        self._run_inputs(inputs)
        assert self._model.source is not None
        bound = {name: tensor for name, tensor in self.bound.items() if name not in inputs}
        arrays = {
            info.name: _as_array(self._run_input(info, {**bound, **inputs}[info.name]))
            for info in (*self.inputs, *self._model.variable)
            if info.name in bound or info.name in inputs
        }
        return check(self._model.source, self.device, arrays, rtol=rtol, atol=atol)

    def _zeros(self, shapes: Shapes) -> dict[str, Any]:
        """Return inputs of shapes that ``compile`` was given."""
        declared = {info.name: info for info in (*self.inputs, *self._model.variable)}
        symbols = {size for info in declared.values() for size in info.shape or () if isinstance(size, str)}
        for name in shapes:
            if name not in declared and name not in symbols:
                names = ", ".join((*declared, *sorted(symbols)))
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
    ) -> dict[str, RunInput]:
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
        results = self._runner.run(self._run_inputs(inputs), fetch)
        by_name = dict(zip(names, results, strict=True))
        for output, name in updates.items():
            self._bound[name] = Bound(self._on_device(name, by_name[output]), output)
        return {name: by_name[name] for name in requested}

    @property
    def _label(self) -> str:
        return f"model {self._model.name!r}"

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def _run_inputs(self, inputs: Mapping[str, Any]) -> list[RunInput | None]:
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
        symbols: dict[str, tuple[int, str]] = {}
        values: list[RunInput | None] = []
        for info in declared:
            bound = self._bound.get(info.name)
            if info.name not in inputs and bound is None:
                values.append(None)
                continue
            value = self._run_input(info, inputs[info.name] if bound is None or info.name in inputs else bound.tensor)
            self._check_shape(info, value.shape, symbols)
            values.append(value)
        return values

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
                    f"{self._label}: input {info.name!r} must be of {info.data_type.name}, got {tensor.data_type.name}"
                )
            return RunInput(tensor.sizes, tensor.data_type, info.is_bool, tensor.to(self.device))
        array = np.asarray(tensor)
        expected = info.dtype
        if info.data_type.bits < 8 and array.dtype.name == info.data_type.name.lower():
            array = array.astype(expected)
        if array.dtype != expected:
            raise InvalidArgument(
                f"{self._label}: input {info.name!r} must be of {expected}, got {array.dtype}; "
                f"pass array.astype(np.{expected.type.__name__})"
            )
        held: Any = array.astype(np.uint8) if info.is_bool else np.ascontiguousarray(array).reshape(array.shape)
        if info.data_type.bits < 8 and array.size:
            held = Tensor(held, info.data_type, device=self.device)
        return RunInput(array.shape, info.data_type, info.is_bool, held)

    def _check_shape(self, info: Declared, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> None:
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
                known, first = symbols.setdefault(expected, (size, info.name))
                if known != size and expected.isidentifier():
                    raise InvalidArgument(
                        f"{self._label}: input {info.name!r} must have size {known} in dimension {axis} ({expected!r}, "
                        f"as in {first!r}), got {list(shape)}"
                    )


def _as_array(fed: RunInput) -> Array:
    array = fed.held.numpy() if isinstance(fed.held, Tensor) else np.array(fed.held)
    return array.astype(np.bool_) if fed.is_bool else array


def load(source: Source, device: Device | str | None = None, *, strict: bool = False) -> Session:
    """Read a model and make it ready to run; graphs are compiled when inputs of new shapes come.

    Args:
        source: the path of a file, its bytes, or a model of the package ``onnx``. External data must be in files inside
            the folder of the path.
        device: where it runs: a device, the name of an adapter, or None for ``default_device()``.
        strict: whether nodes that the host must decide about are refused: control flow here, others, whose shapes
            depend on elements, by the run that first meets them, before it computes anything.

    Raises:
        ModelError: the model is malformed.
        NotSupported: it has operators or types that are not supported; the message names all such operators. Or, with
            ``strict``, it has control flow.
        AdapterNotFound: no adapter of the name.
    """
    return Session(read(source), as_device("load", device), strict)
