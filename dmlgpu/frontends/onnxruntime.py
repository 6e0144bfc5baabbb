"""onnxruntime's Python interface, computed by dmlgpu: a script changes its import and nothing else.

    from dmlgpu.onnxruntime import InferenceSession

    session = InferenceSession("model.onnx")
    (logits,) = session.run(["logits"], {"x": array})

Sessions run on one device, DirectML's operators on a GPU. Execution providers, threads, memory arenas and optimization
levels are accepted and have no effect. Options that would change results or need native pointers raise NotSupported.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.frontends.onnx.model import Source, parsed, read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.frontends.onnx.tensor_proto import DATA_TYPES, ELEMENT_TYPES, type_name
from dmlgpu.frontends.onnx.watching import RunProfile, watched_by
from dmlgpu.frontends.onnxruntime_options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
)
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.tensor import Tensor

Array: TypeAlias = NDArray[Any]
ProviderNames: TypeAlias = Sequence[str | tuple[str, Mapping[str, Any]]]

PROVIDER = "DmlExecutionProvider"
"""onnxruntime's name of DirectML; the only provider of these sessions."""

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]


def __dir__() -> list[str]:
    return __all__


def get_available_providers() -> list[str]:
    """Return the execution providers of this machine: DirectML's operators, on any adapter."""
    return [PROVIDER]


get_all_providers = get_available_providers


def get_device() -> str:
    """Return "GPU" if there is an adapter other than the NumPy reference, else "CPU"."""
    return "GPU" if any(info.backend != "NumPy" for info in adapters()) else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accept a log level (0 to 4); dmlgpu raises exceptions and warnings, and logs nothing."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accept a verbosity; it has no effect."""


class OrtValue:
    """A tensor: an array on the host, or a tensor on a session's device.

    Made by ``ortvalue_from_numpy`` and ``ortvalue_from_shape_and_type``, and returned by runs. A value on the host
    shares the memory of its array.
    """

    def __init__(self, value: Array | Tensor, is_bool: bool | None = None):
        self._value = value
        self._is_bool = value.dtype == np.bool_ if is_bool is None else is_bool

    @staticmethod
    def ortvalue_from_numpy(array: Array, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Return a value with the elements of an array.

        Args:
            array: Array of a type that DirectML has, or bool.
            device_type: "cpu" keeps the array itself; any other name uploads it to adapter ``device_id``.
            device_id: Index of the adapter.

        Raises:
            InvalidArgument: If the dtype is not supported.
        """
        if device_type == "cpu":
            return OrtValue(np.asarray(array))
        is_bool = array.dtype == np.bool_
        uploaded = array.astype(np.uint8) if is_bool else array
        return OrtValue(Tensor(uploaded, device=_adapter_device(device_id)), is_bool)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Return a value of zeros.

        Args:
            shape: Its shape.
            element_type: A NumPy dtype, or the number of an ONNX element type.
            device_type: As for ``ortvalue_from_numpy``.
            device_id: As for ``ortvalue_from_numpy``.
        """
        return OrtValue.ortvalue_from_numpy(np.zeros(tuple(shape), _numpy_type(element_type)), device_type, device_id)

    def numpy(self) -> Array:
        """Return the elements as an array."""
        if isinstance(self._value, Tensor):
            array = self._value.numpy()
            return array.astype(np.bool_) if self._is_bool else array
        return self._value

    def update_inplace(self, array: Array) -> None:
        """Replace the elements; shape and dtype must be those of the value.

        Raises:
            InvalidArgument: If shape or dtype differ.
        """
        array = np.asarray(array)
        if (list(array.shape), array.dtype) != (self.shape(), self._dtype):
            raise InvalidArgument(
                f"OrtValue.update_inplace: the array must have shape {self.shape()} and dtype {self._dtype}, "
                f"got {list(array.shape)} and {array.dtype}"
            )
        if isinstance(self._value, Tensor):
            self._value[...] = array.astype(np.uint8) if self._is_bool else array
        else:
            self._value[...] = array

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """Return the type as onnxruntime writes it: ``tensor(float)``."""
        return f"tensor({type_name(self.element_type())})"

    def element_type(self) -> int:
        """Return the number of ONNX's element type."""
        if self._is_bool:
            return TensorProto.BOOL
        if isinstance(self._value, Tensor):
            return ELEMENT_TYPES[self._value.data_type]
        return helper.np_dtype_to_tensor_dtype(self._value.dtype)

    def device_name(self) -> str:
        """Return "cpu" or "dml"."""
        return "dml" if isinstance(self._value, Tensor) else "cpu"

    def tensor_size_in_bytes(self) -> int:
        """Return the number of bytes of the elements."""
        return int(np.prod(self.shape(), dtype=np.int64)) * self._dtype.itemsize

    def data_ptr(self) -> int:
        """Return the address of an array on the host.

        Raises:
            NotSupported: If the value is on a device, whose memory has no address.
        """
        if isinstance(self._value, Tensor):
            raise NotSupported("OrtValue.data_ptr: GPU memory has no address; numpy() copies the elements")
        return int(self._value.ctypes.data)

    def has_value(self) -> bool:
        """Return True: a value always has elements."""
        return True

    def is_tensor(self) -> bool:
        """Return True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False."""
        return False

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.bool_) if self._is_bool else self._value.dtype

    def _replace(self, value: OrtValue) -> None:
        """Take the elements of a result: into the array that this value shares, or as a tensor."""
        if isinstance(self._value, Tensor):
            self._value, self._is_bool = value._value, value._is_bool
        else:
            self.update_inplace(value.numpy())


class IOBinding:
    """Inputs and outputs of runs, bound by name; made by ``InferenceSession.io_binding``."""

    def __init__(self, session: InferenceSession):
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | str] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Array) -> None:
        """Bind an input to an array on the host."""
        self._inputs[self._known(name, self._session.get_inputs())] = OrtValue(np.asarray(array))

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind an input to a value."""
        self._inputs[self._known(name, self._session.get_inputs())] = value

    def bind_input(  # noqa: PLR0917 - as onnxruntime
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Raise NotSupported: GPU buffers of other libraries have no address that could be shared."""
        raise NotSupported("IOBinding.bind_input: pointers cannot be bound; use bind_ortvalue_input")

    def bind_output(  # noqa: PLR0917 - as onnxruntime
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have an output computed and left on the host ("cpu") or on the session's device (any other name)."""
        if buffer_ptr is not None:
            raise NotSupported("IOBinding.bind_output: pointers cannot be bound; use bind_ortvalue_output")
        self._outputs[self._known(name, self._session.get_outputs())] = device_type

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Have an output written to a value."""
        self._outputs[self._known(name, self._session.get_outputs())] = value

    def synchronize_inputs(self) -> None:
        """Do nothing: uploads precede the run on the device's queue."""

    def synchronize_outputs(self) -> None:
        """Do nothing: reading a result waits for it."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Return the outputs of the last run as arrays."""
        return [result.numpy() for result in self._results]

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self._outputs.clear()

    @staticmethod
    def _known(name: str, arguments: Sequence[NodeArg]) -> str:
        names = [argument.name for argument in arguments]
        if name not in names:
            raise InvalidArgument(f"IOBinding: name must be one of {', '.join(names)}, got {shown(name)}")
        return name


class InferenceSession:
    """A model that runs on a device.

    Args:
        path_or_bytes: Path of a model, its bytes, or a model of the package ``onnx``.
        sess_options: Options; see ``SessionOptions``.
        providers: ``DmlExecutionProvider``, if named first, may choose an adapter by ``device_id`` in its options.
            Other names cause one warning per process: the session computes on the device in any case.
        provider_options: Options per provider.
        device: A device or an adapter's name, instead of the providers' ``device_id``.

    Raises:
        ModelError: If the model is malformed.
        NotSupported: If it has operators or types that are not supported.
    """

    _warned: ClassVar[set[str]] = set()

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: SessionOptions | None = None,
        providers: ProviderNames | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        device: Device | str | None = None,
        **_ignored: Any,
    ):
        self._options = sess_options or SessionOptions()
        names, options = self._split(providers, provider_options)
        self._provider_options = options.get(PROVIDER, {})
        if device is None and "device_id" in self._provider_options:
            device = _adapter_device(self._provider_options["device_id"])
        if unused := [name for name in names if name not in (PROVIDER, *self._warned)]:
            self._warned.update(unused)
            warnings.warn(
                f"execution providers are ignored ({', '.join(unused)}): dmlgpu computes on the session's device; "
                "pass device= to choose an adapter",
                stacklevel=2,
            )
        if self._options.optimized_model_filepath:
            warnings.warn("SessionOptions.optimized_model_filepath is ignored: no model is written", stacklevel=2)
        model = read(path_or_bytes, sizes=self._options._sizes, denoted=self._options._denoted)
        self._session = Session(model, as_device("InferenceSession", device))
        self._declared = model
        self._source = path_or_bytes
        self._metadata: ModelMetadata | None = None
        self._profile = RunProfile() if self._options.enable_profiling else None
        self._start = time.perf_counter_ns()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{argument.name}: {argument.type} {argument.shape}" for argument in self.get_inputs())
        outputs = ", ".join(f"{argument.name}: {argument.type} {argument.shape}" for argument in self.get_outputs())
        return f"InferenceSession({inputs} -> {outputs}; on {self._session.device.adapter.name!r})"

    # ---- the model --------------------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that a run needs."""
        return [NodeArg.of(declared) for declared in self._declared.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return [NodeArg.of(declared) for declared in self._declared.declared_outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the initializers that a run may replace."""
        return [NodeArg.of(declared) for declared in self._declared.variable]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model file."""
        if self._metadata is None:
            self._metadata = ModelMetadata.of(parsed(self._source))
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return ``["DmlExecutionProvider"]``."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Return the options of the provider."""
        return {PROVIDER: dict(self._provider_options)}

    def set_providers(self, providers: ProviderNames, provider_options: Any = None) -> None:
        """Raise NotSupported: a session stays on its device."""
        raise NotSupported("InferenceSession.set_providers: a session stays on its device; make a new session")

    def disable_fallback(self) -> None:
        """Do nothing: there is no fallback."""

    def enable_fallback(self) -> None:
        """Do nothing: there is no fallback."""

    # ---- runs -------------------------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: Names of the outputs to return, in order; None or an empty list for all.
            input_feed: Arrays or ``OrtValue`` by input name; lists of them for sequences, None for optionals.
            run_options: Accepted; without effect.

        Returns:
            One array per output name; a list of arrays for a sequence, None for an optional without an element.

        Raises:
            InvalidArgument: If a name, dtype, rank or size is not the model's.
            NotSupported: If a node cannot be computed for these shapes.
            OutOfMemory: If the device has no room.
        """
        if isinstance(output_names, Mapping):
            raise InvalidArgument("run: arguments are swapped; call run(output_names, input_feed)")
        names = list(output_names or self._declared.outputs)
        with self._lock, self._profiling():
            results = self._session.run(self._feeds(input_feed), list(dict.fromkeys(names)))
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Compute outputs in a thread, which then calls ``callback(results, user_data, error)``.

        ``error`` is an empty string after a successful run, else the message of the exception.
        """

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # passed to the callback, as onnxruntime does
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, name="InferenceSession.run_async").start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs and leave them on the device; arguments as for ``run``."""
        names = list(output_names or self._declared.outputs)
        declared_outputs = {declared.name: declared for declared in self._declared.declared_outputs}
        for name in names:
            if name in declared_outputs and declared_outputs[name].kind != "tensor":
                raise NotSupported(
                    f"run_with_ort_values: an OrtValue is a tensor, and output {name!r} is not; call run"
                )
        with self._lock, self._profiling():
            results = self._session.run_tensors(self._feeds(input_dict_ort_values), list(dict.fromkeys(names)))
        return [OrtValue(results[name], declared_outputs[name].is_bool) for name in names]

    def io_binding(self) -> IOBinding:
        """Return an empty binding for ``run_with_iobinding``."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute the bound outputs from the bound inputs."""
        results = self.run_with_ort_values(list(iobinding._outputs), iobinding._inputs, run_options)
        iobinding._results = []
        for target, result in zip(iobinding._outputs.values(), results, strict=True):
            if isinstance(target, OrtValue):
                target._replace(result)
                iobinding._results.append(target)
            else:
                iobinding._results.append(OrtValue(result.numpy()) if target == "cpu" else result)

    # ---- profiles ---------------------------------------------------------------------------------------------------

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling began, in nanoseconds of a monotonic clock."""
        return self._start

    def end_profiling(self) -> str:
        """Write the profile and return the file's name.

        The file is in the format of Chrome's tracing and lies in the current folder unless
        ``SessionOptions.profile_file_prefix`` names another one.

        Returns:
            The file's name; empty if profiling was not enabled.
        """
        if self._profile is None:
            return ""
        path = Path(f"{self._options.profile_file_prefix}{datetime.now():%Y-%m-%d_%H-%M-%S}.json")
        path.write_text(json.dumps(self._profile.trace()["traceEvents"]), encoding="utf-8")
        self._profile = None
        return str(path)

    def _profiling(self) -> AbstractContextManager[None]:
        return nullcontext() if self._profile is None else watched_by(self._profile)

    # ---- arguments --------------------------------------------------------------------------------------------------

    def _feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(feeds, Mapping):
            raise InvalidArgument(f"run: input_feed must be a mapping from input names to arrays, got {shown(feeds)}")
        values = {**self._options._initializers, **feeds}
        return {name: value._value if isinstance(value, OrtValue) else value for name, value in values.items()}

    @staticmethod
    def _split(
        providers: ProviderNames | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> tuple[list[str], dict[str, Mapping[str, Any]]]:
        """Return the providers' names, and the options of each."""
        entries = [(entry, {}) if isinstance(entry, str) else entry for entry in providers or ()]
        if provider_options is not None and len(provider_options) != len(entries):
            raise InvalidArgument(
                f"InferenceSession: provider_options must have one entry per provider ({len(entries)}), "
                f"got {len(provider_options)}"
            )
        for index, options in enumerate(provider_options or ()):
            entries[index] = entries[index][0], options
        return [name for name, _ in entries], dict(entries)


def _adapter_device(index: Any) -> Device:
    """Return the shared device of the adapter with an index."""
    return as_device("device_id", str(index))


def _numpy_type(element_type: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a dtype or of the number of an ONNX element type."""
    if isinstance(element_type, int) and element_type in DATA_TYPES:
        is_bool = element_type == TensorProto.BOOL
        return np.dtype(np.bool_) if is_bool else DATA_TYPES[TensorProto.DataType.ValueType(element_type)].numpy
    return np.dtype(element_type)
