"""Models that run: inputs checked, outputs as arrays or tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.frontends.onnx.mapping import TIME_LIMIT, MapOptions, MappedSession, map_session
from dmlgpu.frontends.onnx.model import Declared, OnnxModel, Source, check_supported, read
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.segments import RunInput, Weights
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shared import as_device
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class Bound:
    """What an input is bound to.

    Attributes:
        tensor: its elements.
        updated_by: the output that it becomes after a run; None if it stays.
    """

    tensor: Tensor
    updated_by: str | None


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
        self._runner = Runner(device, model.graph, Weights(device), strict=strict)
        self._bound: dict[str, Bound] = {}

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """What ``run`` must be given, as the model declares it; initializers that are inputs, too, may be given."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what ``run`` returns."""
        return self._model.outputs

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
        if updated_by is not None and updated_by not in self.outputs:
            names = ", ".join(self.outputs)
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

    def _run(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] | None, fetch: bool = False
    ) -> dict[str, RunInput]:
        updates = {bound.updated_by: name for name, bound in self._bound.items() if bound.updated_by is not None}
        requested = tuple(name for name in self.outputs if name not in updates) if outputs is None else tuple(outputs)
        for name in requested:
            if name not in self.outputs:
                raise InvalidArgument(f"{self._label}: outputs must be of {', '.join(self.outputs)}, got {shown(name)}")
        results = self._runner.run(self._run_inputs(inputs), fetch)
        by_name = dict(zip(self.outputs, results, strict=True))
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
                raise InvalidArgument(f"{self._label}: inputs must be named {', '.join(names)}, got {shown(name)}")
        missing = [info.name for info in self.inputs if info.name not in inputs and info.name not in self._bound]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise InvalidArgument(f"{self._label}: inputs must have {listed}, got {shown(list(inputs))}")
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
        expected = np.dtype(np.bool_) if info.is_bool else info.data_type.numpy
        if info.data_type.bits < 8 and array.dtype.name == info.data_type.name.lower():
            array = array.astype(expected)
        if array.dtype != expected:
            raise InvalidArgument(f"{self._label}: input {info.name!r} must be of {expected}, got {array.dtype}")
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
