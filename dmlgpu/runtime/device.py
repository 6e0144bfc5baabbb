"""The device, which creates all other objects (DirectML: IDMLDevice), and the default device of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, overload

from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import ExecutionFlags, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import DmlError, InvalidArgument, abridged, shown
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.sizes.networks import SizedNetwork
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import Choice, announce_faults, choose, open_executor, wrap_executor
from dmlgpu.runtime.binding import BindingTable
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.child import NAME, DeviceChild, DmlObject, as_tuple, expect_child
from dmlgpu.runtime.commands import FENCE_VALUE, CommandList, CommandRecorder, Fence, Queue
from dmlgpu.runtime.executor import WORD_BYTES, Backend, Executable
from dmlgpu.runtime.features import (
    Answer,
    FeatureLevels,
    FeatureLevelsQuery,
    OperatorSupport,
    OperatorSupportQuery,
    Query,
    TensorDataTypeSupport,
    TensorDataTypeSupportQuery,
    answer,
)
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, Operator, OperatorInitializer, graph_ports, ports
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.state import DeviceState

_FEATURE_LEVEL = coercion.member_of(FeatureLevel)
_NAMES = coercion.tuple_of(coercion.text, "names of features")
_BUDGET = coercion.optional(coercion.between(0, coercion.UINT64_MAX))
_FLAGS = coercion.flags_of(ExecutionFlags)


class Device(DmlObject):
    """An adapter opened for work; creates all other objects (DirectML: IDMLDevice). Thread-safe.

    Args:
        adapter: Which adapter: an ``AdapterInfo``, an index, part of an adapter's text such as ``"nvidia"`` or
            ``"vulkan"``, or None for the default adapter (see ``adapters.choose``).
        feature_level: Behave as this feature level: later operators, types and ranks are rejected. Defaults to 6_4.
        deterministic: Make results independent of the order in which GPU threads run. Implies `precise`. Defaults to
            False.
        precise: Never trade accuracy for speed: no Winograd convolutions, and the flag ALLOW_HALF_PRECISION_COMPUTATION
            has no effect. Defaults to False.
        memory_budget: Maximum bytes of buffers at a time; on the ``numpy`` adapter also of intermediate arrays. None
            sets no limit on adapters with memory of their own. For ``numpy`` and software adapters, None takes the
            environment variable DMLGPU_MEMORY_BUDGET (bytes), else half of the host's memory.
        disabled_features: Adapter features not to use, by their WebGPU names (``"shader-int64"``).
        specialize: When to compile kernels for the sizes of their tensors: ``"always"``; ``"never"``, all sizes share
            kernels that read sizes from parameters; or ``"auto"``, unless sizes are known to vary or it costs one
            pipeline more, and in the background for work that has proved hot.
            Both kinds of kernels agree within the operator's tolerance, but not always in every bit, so ``"auto"`` is
            ``"always"`` on a deterministic device. None takes the environment variable DMLGPU_SPECIALIZE, else
            ``"auto"``.
        checked: Keep wgpu's checks of indices and loops in all kernels, also on GPUs that limit accesses of buffers by
            themselves. The environment variable DMLGPU_CHECKS=always has the same effect. Defaults to False.

    Raises:
        AdapterNotFound: If no adapter matches; the message lists all adapters.
        InvalidArgument: If the feature level is unknown, or an argument has the wrong type.
        NotSupported: If the driver cannot create a device.
        InvalidState: If a GPU is requested in a forked process whose parent used or listed adapters.

    Example:
        >>> device = dmlgpu.Device("numpy")
        >>> buffer = device.create_buffer(8)
        >>> buffer.write(np.array([1, 2], np.float32))
        >>> buffer.read().view(np.float32).tolist()
        [1.0, 2.0]
    """

    _kind = "device"

    def __init__(
        self,
        adapter: Choice = None,
        *,
        feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4,
        deterministic: bool = False,
        precise: bool = False,
        memory_budget: int | None = None,
        disabled_features: Collection[str] = (),
        specialize: str | None = None,
        checked: bool = False,
    ):
        level = coercion.argument("Device", "feature_level", _FEATURE_LEVEL, feature_level)
        options = _options("Device", deterministic, precise, memory_budget, disabled_features)
        policy = Specialize.of(specialize)
        is_checked = coercion.argument("Device", "checked", coercion.boolean, checked)
        backend = open_executor(choose(adapter), options)
        announce_faults(backend.info)
        if is_checked:
            backend.target = backend.target.with_policies(checked=True)
        is_fixed = deterministic and policy is Specialize.AUTO
        backend.specializer = Specializer(Specialize.ALWAYS if is_fixed else policy)
        self._start(backend, level)

    @classmethod
    def from_wgpu(
        cls,
        wgpu_device: Any,
        *,
        feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4,
        deterministic: bool = False,
        precise: bool = False,
        memory_budget: int | None = None,
        disabled_features: Collection[str] = (),
    ) -> Self:
        """Create a device on an existing ``wgpu.GPUDevice``, which remains the caller's.

        Args:
            wgpu_device: The wgpu device; its enabled features are used.
            feature_level: As for the constructor.
            deterministic: As for the constructor.
            precise: As for the constructor.
            memory_budget: As for the constructor.
            disabled_features: As for the constructor.

        Returns:
            A Device.

        Raises:
            AdapterNotFound: If wgpu is not installed.
            InvalidArgument: If the argument is not a ``wgpu.GPUDevice``, or as in the constructor.
        """
        caller = "Device.from_wgpu"
        level = coercion.argument(caller, "feature_level", _FEATURE_LEVEL, feature_level)
        options = _options(caller, deterministic, precise, memory_budget, disabled_features)
        backend = wrap_executor(wgpu_device, options)
        announce_faults(backend.info)
        return cls.from_backend(backend, feature_level=level)

    @classmethod
    def from_backend(cls, backend: Backend, *, feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4) -> Self:
        """Create a device on a custom executor (see ``dmlgpu.runtime.executor``).

        Args:
            backend: The executor.
            feature_level: As for the constructor.

        Returns:
            A Device.

        Raises:
            InvalidArgument: If the argument is not an executor, or the feature level is unknown.
        """
        caller = "Device.from_backend"
        if not isinstance(getattr(backend, "info", None), AdapterInfo):
            raise InvalidArgument(f"{caller}: backend must be a Backend, got {type(backend).__name__}")
        device = cls.__new__(cls)
        device._start(backend, coercion.argument(caller, "feature_level", _FEATURE_LEVEL, feature_level))
        return device

    def _start(self, backend: Backend, feature_level: FeatureLevel) -> None:
        super().__init__()
        self._feature_level = feature_level
        self._state = DeviceState(backend)
        self._queue = Queue(self, self._state)
        cache = getattr(backend, "pipeline_cache", None)
        self._pipeline_cache: Cache[Any, Any] = Cache(CacheLimits(0, 0)) if cache is None else cache

    # ---- the device itself ------------------------------------------------------------------------------------------

    @property
    def adapter(self) -> AdapterInfo:
        """Name, driver, features and limits of the adapter."""
        return self._state.backend.info

    @property
    def feature_level(self) -> FeatureLevel:
        """The feature level as which the device behaves."""
        return self._feature_level

    @property
    def backend(self) -> Backend:
        """The executor, for measurements and tools."""
        return self._state.backend

    @property
    def parent(self) -> Any:
        """The wgpu device (IDMLDevice::GetParentDevice); None on the ``numpy`` adapter."""
        return getattr(self._state.backend, "wgpu_device", None)

    @property
    def queue(self) -> Queue:
        """The device's only queue."""
        return self._queue

    @property
    def pipeline_cache(self) -> Cache[Any, Any]:
        """Cache of compiled pipelines, an LRU cache. Empty on adapters that compile nothing.

        ``limits`` can be set; it defaults to ``CacheLimits(entries=1024, size=256 << 20)``, in bytes estimated from the
        length of the source: 190 per character on llvmpipe and 60 on SwiftShader (both measured), 200 on other drivers.
        ``info`` has entries, size, hits and misses. ``clear`` empties the cache. Compiled operators keep their
        pipelines alive beyond eviction, and equal kernels share them. Memory of evicted pipelines returns to the system
        after every 16 MiB.
        """
        return self._pipeline_cache

    @property
    def description(self) -> str:
        return self._state.label

    def __repr__(self) -> str:
        named = f" {abridged(self._name)!r}" if self._name else ""
        return f"<Device{named} on '{self.adapter}'>"

    @property
    def name(self) -> str:
        """The name that was set, which errors and traces show (IDMLObject::SetName), else the adapter's."""
        return self.adapter.name if self._name is None else self._name

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = coercion.argument(self.description, "name", NAME, name)
        self._state.name(name)

    @property
    def removed_reason(self) -> str | None:
        """Reason of the removal; None if the device is not removed (IDMLDevice::GetDeviceRemovedReason)."""
        return self._state.removed

    def remove(self, reason: str = "it was removed on request") -> None:
        """Remove the device: every later call on it and its objects raises DeviceRemoved.

        Args:
            reason: Reason in the messages of these exceptions, and in ``removed_reason``.

        Raises:
            InvalidArgument: If the reason is not a string.
        """
        self._state.remove(coercion.argument("remove", "reason", coercion.text, reason))

    def synchronize(self) -> None:
        """Wait until the device has computed everything that was called before, in all threads.

        Reading elements waits too: ``x.numpy()``, ``x.item()``, ``print(x)``. An exception in a signal handler, such as
        KeyboardInterrupt, ends the wait.

        Raises:
            DeviceRemoved: If the device is or becomes removed.

        Example:
            >>> device = dmlgpu.Device("numpy")
            >>> x = dmlgpu.ops.exp(dmlgpu.Tensor([0.0, 1.0], device=device))
            >>> device.synchronize()

        See also:
            ``Fence.wait``, which waits for earlier work only, with a timeout.
        """
        self._state.check()
        serial = self._state.last_serial
        if serial is not None:  # the lock is not held: other threads go on submitting
            self._state.call_unlocked(self._state.backend.wait, serial)

    def evict(self, objects: Sequence[DeviceChild]) -> None:
        """Validate the objects and do nothing: wgpu cannot evict single objects (IDMLDevice::Evict).

        Args:
            objects: Operators, compiled operators, initializers and buffers of this device.

        Raises:
            InvalidArgument: If the argument is not a sequence, or an object is not pageable or belongs to another
                device.
        """
        self._check_pageable("evict", objects)

    def make_resident(self, objects: Sequence[DeviceChild]) -> None:
        """Validate the objects and do nothing: they are always resident (IDMLDevice::MakeResident).

        Args:
            objects: As for ``evict``.

        Raises:
            InvalidArgument: As ``evict``.
        """
        self._check_pageable("make_resident", objects)

    def _check_pageable(self, method: str, objects: Sequence[DeviceChild]) -> None:
        self._state.check()
        for index, pageable in enumerate(as_tuple(method, "objects", objects, "pageable objects")):
            if not isinstance(pageable, Operator | CompiledOperator | OperatorInitializer | Buffer):
                raise InvalidArgument(
                    f"{method}: objects[{index}] must be an operator, an initializer or a buffer, "
                    f"got {type(pageable).__name__}"
                )
            expect_child(method, f"objects[{index}]", pageable, type(pageable), self._state)

    # ---- operators --------------------------------------------------------------------------------------------------

    def create_operator(self, desc: OperatorDesc) -> Operator:
        """Create an operator from a description, which is validated (IDMLDevice::CreateOperator).

        Args:
            desc: The description, such as ``descs.Gemm(...)``.

        Returns:
            An Operator, to be compiled by ``compile_operator``.

        Raises:
            InvalidDescription: If the description breaks a rule or needs a later feature level. The message has
                operator, field, expected and got.
            OperatorNotImplemented: If dmlgpu does not implement the operator.
            NotSupported: If the adapter lacks a feature or limit that the operator needs.
        """
        self._state.check()
        start = time.perf_counter()
        self._check_desc(desc)
        operator = Operator(self, self._state, desc)
        operator._unreported = time.perf_counter() - start
        return operator

    def _check_desc(self, desc: OperatorDesc) -> None:
        if not isinstance(desc, OperatorDesc):
            raise InvalidArgument(f"create_operator: desc must be an OperatorDesc, got {type(desc).__name__}")
        operators.check_rules(desc, self._feature_level)
        self._state.backend.check(desc)

    def compile_operator(
        self,
        operator: Operator,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        preserve_padding: bool = False,
    ) -> CompiledOperator:
        """Compile an operator for the adapter (IDMLDevice::CompileOperator).

        Args:
            operator: An operator of this device.
            flags: Execution flags, as in DirectML. DISABLE_META_COMMANDS has no effect: there are no meta-commands.
            preserve_padding: Guarantee that executions only change the elements of the outputs. By default, padding in
                the 32-bit words around and between smaller elements may be overwritten, as DirectML allows. If an
                output has such padding, True costs another kernel and, for some operators, a copy of the output.

        Returns:
            A CompiledOperator, to be initialized and dispatched.

        Raises:
            InvalidArgument: If the operator belongs to another device, or `flags` are no ExecutionFlags.
            ShaderError: If the driver rejects a shader, which is a bug of dmlgpu.
        """
        self._state.check()
        start = time.perf_counter()
        expect_child("compile_operator", "operator", operator, Operator, self._state)
        preserve_padding = coercion.argument("compile_operator", "preserve_padding", coercion.boolean, preserve_padding)
        flags = coercion.argument("compile_operator", "flags", _FLAGS, flags)
        desc, backend = operator.desc, self._state.backend
        half = bool(flags & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION)
        compiled = CompiledOperator(
            self,
            self._state,
            title=desc.operator,
            inputs=ports(desc.inputs, "input"),
            outputs=ports(desc.outputs, "output"),
            executable=self._state.call_unlocked(backend.compile, desc, half, preserve_padding),
            flags=flags,
            in_place=loader.operator(desc.operator).in_place,
        )
        compiled.name = operator.name
        compiled._took(time.perf_counter() - start + operator._unreported)
        operator._unreported = 0.0
        return compiled

    def compile_graph(
        self,
        graph: GraphDesc,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        disabled_passes: Collection[str] = (),
    ) -> CompiledOperator:
        """Compile a graph of operators into one executable (IDMLDevice1::CompileGraph).

        Inputs and outputs of the result are those of the graph, by index. An initializer fills its persistent resource,
        and one recorded dispatch runs the whole graph.

        Args:
            graph: Operators, constants and edges.
            flags: Execution flags of all operators, as for ``compile_operator``.
            disabled_passes: Names of passes of the graph compiler to disable (``dmlgpu.compiler.graph.passes.PASSES``).

        Returns:
            A CompiledOperator, to be initialized and dispatched.

        Raises:
            InvalidGraph: If the graph or an operator breaks a rule. The message names node or edge, expected and got.
            InvalidArgument: If `graph` is not a GraphDesc, `flags` are no ExecutionFlags, or a pass is unknown.
            NotSupported: If the adapter lacks a feature or limit that a node needs.
        """
        self._state.check()
        start = time.perf_counter()
        flags = coercion.argument("compile_graph", "flags", _FLAGS, flags)
        disabled = _names("compile_graph", "disabled_passes", disabled_passes)
        if not isinstance(graph, GraphDesc):
            raise InvalidArgument(f"compile_graph: graph must be a GraphDesc, got {type(graph).__name__}")
        network = resolve(graph)
        check_nodes(network, self._feature_level)
        half = bool(flags & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION)
        executable = self._state.call_unlocked(self._state.backend.compile_graph, network, half, disabled)
        return self._compiled_graph(graph, (network.inputs, network.output_tensors), executable, flags, start)

    def _compile_sized(self, sized: SizedNetwork) -> CompiledOperator:
        """Compile a checked graph for some sizes. Raises NotSupported as ``compile_graph``."""
        self._state.check()
        start = time.perf_counter()
        executable, desc = self._state.call_unlocked(self._state.backend.compile_sized, sized), sized.recorded.desc
        assert desc is not None
        return self._compiled_graph(desc, sized.tensors, executable, ExecutionFlags.NONE, start)

    def _compiled_graph(
        self,
        graph: GraphDesc,
        tensors: tuple[Sequence[TensorDesc | None], Sequence[TensorDesc]],
        executable: Executable,
        flags: ExecutionFlags,
        start: float,
    ) -> CompiledOperator:
        """Return the compiled operator of a graph with its executable; ``tensors`` are its inputs and outputs."""
        inputs, outputs = tensors
        compiled = CompiledOperator(
            self,
            self._state,
            title="graph",
            inputs=graph_ports("graph input", inputs, {edge.graph_input: edge.name for edge in graph.input_edges}),
            outputs=graph_ports("graph output", outputs, {edge.graph_output: edge.name for edge in graph.output_edges}),
            executable=executable,
            flags=flags,
        )
        compiled.name = graph.name
        compiled._took(time.perf_counter() - start)
        return compiled

    def create_operator_initializer(self, operators: Sequence[CompiledOperator] = ()) -> OperatorInitializer:
        """Create an initializer of compiled operators (IDMLDevice::CreateOperatorInitializer).

        Args:
            operators: Compiled operators of this device, each once.

        Returns:
            An OperatorInitializer.

        Raises:
            InvalidArgument: If an operator belongs to another device, or occurs twice.
        """
        return OperatorInitializer(self, self._state, operators)

    def create_binding_table(self, dispatchable: Dispatchable | None = None) -> BindingTable:
        """Create a table that binds buffers to a dispatchable (IDMLDevice::CreateBindingTable).

        Args:
            dispatchable: A compiled operator or an initializer; None creates an empty table.

        Returns:
            A BindingTable.

        Raises:
            InvalidArgument: If the dispatchable belongs to another device.
        """
        return BindingTable(self, self._state, dispatchable)

    # ---- work and memory --------------------------------------------------------------------------------------------

    def create_command_recorder(self) -> CommandRecorder:
        """Create a command recorder (IDMLDevice::CreateCommandRecorder).

        Returns:
            A CommandRecorder, which records dispatches into command lists.
        """
        return CommandRecorder(self, self._state)

    def create_command_list(self) -> CommandList:
        """Create a command list.

        Returns:
            An open, empty CommandList.
        """
        return CommandList(self, self._state)

    def create_fence(self, initial_value: int = 0) -> Fence:
        """Create a fence.

        Args:
            initial_value: Its first completed value, an integer from 0 to 2^64 - 1.

        Returns:
            A Fence.

        Raises:
            InvalidArgument: If `initial_value` is out of range.
        """
        value = coercion.argument("create_fence", "initial_value", FENCE_VALUE, initial_value)
        return Fence(self, self._state, value)

    def create_buffer(self, size: int, name: str | None = None) -> Buffer:
        """Allocate a buffer, filled with zeros.

        Args:
            size: Bytes, a positive multiple of 4 below 2^64.
            name: Name in error messages and driver traces. Optional.

        Returns:
            A Buffer.

        Raises:
            InvalidArgument: If `size` is not such a multiple of 4, or `name` is not a string.
            OutOfMemory: If the size exceeds the adapter's limits or the memory budget.
        """
        self._state.check()
        count = coercion.as_index(size)
        if count is None or not 0 < count <= coercion.UINT64_MAX or count % WORD_BYTES:
            limit = " below 2^64" if count is not None and count > coercion.UINT64_MAX else ""
            raise InvalidArgument(
                f"create_buffer: size must be a positive multiple of {WORD_BYTES} bytes{limit}, got {shown(size)}"
            )
        coercion.argument("create_buffer", "name", NAME, name)
        memory = self._state.call(self._state.backend.create_buffer, count, name or "unnamed")
        return Buffer(self, self._state, size=count, memory=memory, identity=memory, name=name)

    def wrap_buffer(self, wgpu_buffer: Any, name: str | None = None) -> Buffer:
        """Create a buffer over a wgpu buffer of the same wgpu device; see ``Buffer.from_wgpu``.

        Args:
            wgpu_buffer: The ``wgpu.GPUBuffer``, which remains the caller's.
            name: Name in error messages and driver traces. Optional.

        Returns:
            A Buffer.

        Raises:
            InvalidArgument: If the device does not run on wgpu, `wgpu_buffer` cannot be used, or `name` is not a
                string.
        """
        self._state.check()
        wrap = getattr(self._state.backend, "wrap_buffer", None)
        if wrap is None:
            raise InvalidArgument(f"Buffer.from_wgpu: {self.description} does not run on wgpu")
        coercion.argument("Buffer.from_wgpu", "name", NAME, name)
        memory = self._state.call(wrap, wgpu_buffer, name or "")
        return Buffer(self, self._state, size=memory.size, memory=memory, identity=wgpu_buffer, name=name)

    # ---- features ---------------------------------------------------------------------------------------------------

    @overload
    def check_feature_support(self, query: TensorDataTypeSupportQuery) -> TensorDataTypeSupport: ...
    @overload
    def check_feature_support(self, query: FeatureLevelsQuery) -> FeatureLevels: ...
    @overload
    def check_feature_support(self, query: OperatorSupportQuery) -> OperatorSupport: ...

    def check_feature_support(self, query: Query) -> Answer:
        """Answer a feature query (IDMLDevice::CheckFeatureSupport).

        Args:
            query: A FeatureLevelsQuery, TensorDataTypeSupportQuery or OperatorSupportQuery.

        Returns:
            The FeatureLevels, TensorDataTypeSupport or OperatorSupport that answers the query.

        Raises:
            InvalidArgument: If `query` has another type, names an unknown operator or field, or lists no levels.
        """
        self._state.check()
        return answer(query, self._feature_level, self._rejection, operators.implemented())

    def _rejection(self, desc: OperatorDesc) -> DmlError | None:
        """Return the exception with which the device rejects a description, or None."""
        try:
            self._check_desc(desc)
        except DmlError as error:
            return error
        return None


def _options(
    caller: str, deterministic: object, precise: object, memory_budget: object, disabled_features: object
) -> dict[str, Any]:
    """Validate the options of an executor and return them."""
    return {
        "deterministic": coercion.argument(caller, "deterministic", coercion.boolean, deterministic),
        "precise": coercion.argument(caller, "precise", coercion.boolean, precise),
        "memory_budget": coercion.argument(caller, "memory_budget", _BUDGET, memory_budget),
        "disabled_features": _names(caller, "disabled_features", disabled_features),
    }


def _names(caller: str, argument: str, listed: object) -> tuple[str, ...]:
    """Return the names in a sequence or a set."""
    return coercion.argument(caller, argument, _NAMES, tuple(listed) if isinstance(listed, Set) else listed)


# ---- default device, and devices opened by name --------------------------------------------------------------------

_LOCK = threading.Lock()
shared: dict[str, Device] = {}  # bounded by the adapters of the machine


class _Default:
    """Adapters and devices that calls without a device use."""

    by_environment: Device | None = None
    by_program: Device | AdapterInfo | None = None


_in_context: ContextVar[Device | AdapterInfo | None] = ContextVar("dmlgpu_device", default=None)


def default_device() -> Device:
    """Return the device that functions use if neither their tensors nor ``device`` name one.

    It is the one of the innermost ``dmlgpu.device`` block, else of ``set_default_device``, else of the adapter that
    the environment variable DMLGPU_ADAPTER names, else of the first hardware adapter (see ``adapters.choose``). While
    ``dmlgpu.compile`` traces a function, it is the device that the function is compiled for.

    Returns:
        The device; one per process and adapter, and a new one after its removal, unless a ``Device`` was chosen.

    Raises:
        AdapterNotFound: If DMLGPU_ADAPTER matches no adapter.
    """
    chosen = _in_context.get() or _Default.by_program
    if chosen is not None:
        return chosen if isinstance(chosen, Device) else _device_of(chosen)
    device = _Default.by_environment
    if device is None or device.removed_reason is not None:
        device = _Default.by_environment = _device_of(choose())
    return device


def set_default_device(device: Device | Choice) -> None:
    """Choose the device that functions use if neither their tensors nor ``device`` name one, in all threads.

    Args:
        device: Device, part of an adapter's name, its index in ``dmlgpu.adapters()``, an ``AdapterInfo``, or None for
            the choice of the environment variable DMLGPU_ADAPTER.

    Raises:
        InvalidArgument: If ``device`` is of another type.
        AdapterNotFound: If no adapter matches.

    See also:
        ``dmlgpu.device``, which chooses for a block of code.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.set_default_device("numpy")
        >>> dmlgpu.default_device().adapter.name
        'numpy'
        >>> dmlgpu.set_default_device(None)
    """
    _Default.by_program = None if device is None else _chosen("set_default_device", device)


@contextmanager
def device(device: Device | Choice) -> Iterator[Device]:
    """Choose the default device inside a ``with`` block, or in a function that this decorates.

    The choice holds in the current thread or asyncio task. Blocks nest.

    Args:
        device: Device, part of an adapter's name, its index in ``dmlgpu.adapters()``, an ``AdapterInfo``, or None for
            the adapter of the environment variable DMLGPU_ADAPTER.

    Yields:
        The device.

    Raises:
        InvalidArgument: If ``device`` is of another type.
        AdapterNotFound: If no adapter matches.

    Example:
        >>> import dmlgpu
        >>> with dmlgpu.device("numpy"):
        ...     dmlgpu.Tensor([1.0, 2.0]).device.adapter.name
        'numpy'
    """
    token = _in_context.set(_chosen("device", device))
    try:
        yield default_device()
    finally:
        _in_context.reset(token)


def _chosen(caller: str, device: Device | Choice) -> Device | AdapterInfo:
    """Return a device, or the adapter that a name, an index or None stands for."""
    if isinstance(device, Device):
        return device
    if device is not None and not isinstance(device, str | AdapterInfo) and coercion.as_index(device) is None:
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name or index of an adapter, or None, got {shown(device)}"
        )
    return choose(device)


def as_device(caller: str, device: Device | str | None) -> Device:
    """Return the device that a ``device`` argument stands for: None is ``default_device()``, a string the device of the
    first adapter that it matches (see ``adapters.choose``), one per process and adapter.

    Raises:
        InvalidArgument: If it is neither a device, a string nor None; names the caller.
        AdapterNotFound: If no adapter matches the string.
    """
    if device is None:
        return default_device()
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name of an adapter or None, got {type(device).__name__}"
        )
    return _device_of(choose(device))


def _device_of(info: AdapterInfo) -> Device:
    """Return the device of an adapter, shared by all of its names; a new one if it was removed."""
    with _LOCK:
        device = shared.get(str(info))
        if device is None or device.removed_reason is not None:
            device = shared[str(info)] = Device(info)
        return device


def other_device(own: Device, other: Device) -> str:
    """Return the name of a device in messages that expected the device ``own``."""
    if other.adapter == own.adapter:
        return "another Device object of that adapter, which has memory of its own"
    return f"'{other.adapter}'"


def shared_devices() -> list[Device]:
    """Return the devices opened by ``as_device``, without removed ones."""
    with _LOCK:
        return [device for device in shared.values() if device.removed_reason is None]
