"""The device: the factory of all other objects (DirectML: IDMLDevice)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence, Set
from typing import Any, Self, overload

from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import ExecutionFlags, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import DmlError, InvalidArgument, shown
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import Choice, choose, open_executor, wrap_executor
from dmlgpu.runtime.binding import BindingTable
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.child import NAME, DeviceChild, DmlObject, as_tuple, expect_child
from dmlgpu.runtime.commands import FENCE_VALUE, CommandList, CommandRecorder, Fence, Queue
from dmlgpu.runtime.executor import WORD_BYTES, Backend
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
from dmlgpu.runtime.state import DeviceState

_FEATURE_LEVEL = coercion.member_of(FeatureLevel)
_NAMES = coercion.tuple_of(coercion.text, "names of features")
_BUDGET = coercion.optional(coercion.between(0, coercion.UINT64_MAX))
_FLAGS = coercion.flags_of(ExecutionFlags)


class Device(DmlObject):
    """An adapter with everything that DirectML's device offers (IDMLDevice). Thread-safe.

    Args:
        adapter: which adapter: an ``AdapterInfo``, an index, a part of its text, or None (see ``adapters.choose``).
        feature_level: behave as this level: operators, types and ranks of later levels are refused.
        deterministic: results do not depend on the order in which a GPU runs its invocations. Implies ``precise``.
        precise: nothing trades digits for speed: convolutions never go through Winograd's filtering, and the flag
            ALLOW_HALF_PRECISION_COMPUTATION allows nothing.
        memory_budget: most bytes of buffers at a time, on the ``numpy`` adapter of what operators need to compute too.
            None means no bound on adapters with memory of their own, which refuse by themselves. For ``numpy`` and
            software adapters it means what the environment variable DMLGPU_MEMORY_BUDGET says, in bytes, else half of
            the host's memory.
        disabled_features: adapter features to leave unused, under WebGPU's names (``"shader-int64"``).

    Raises:
        AdapterNotFound: no adapter matches; all are listed.
        InvalidArgument: an unknown feature level, or an argument of the wrong kind.
        NotSupported: the driver gives no device.
        InvalidState: a GPU is asked for in a process forked from one that had used one or looked for adapters.
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
    ):
        level = coercion.argument("Device", "feature_level", _FEATURE_LEVEL, feature_level)
        options = _options("Device", deterministic, precise, memory_budget, disabled_features)
        self._start(open_executor(choose(adapter), options), level)

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
        """Make a device over a ``wgpu.GPUDevice`` that somebody else keeps; it uses the features that are on.

        Raises:
            AdapterNotFound: wgpu is not installed.
            InvalidArgument: no wgpu device, or as the constructor.
        """
        caller = "Device.from_wgpu"
        level = coercion.argument(caller, "feature_level", _FEATURE_LEVEL, feature_level)
        options = _options(caller, deterministic, precise, memory_budget, disabled_features)
        return cls.from_backend(wrap_executor(wgpu_device, options), feature_level=level)

    @classmethod
    def from_backend(cls, backend: Backend, *, feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4) -> Self:
        """Make a device over an executor of one's own (see ``dmlgpu.runtime.executor``).

        Raises:
            InvalidArgument: no executor, or an unknown feature level.
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
        """Facts about the adapter."""
        return self._state.backend.info

    @property
    def feature_level(self) -> FeatureLevel:
        """The level as which the device behaves."""
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
        """The compiled pipelines that are kept for when equal kernels are compiled again.

        ``limits`` says how much is kept and can be set (``CacheLimits(entries=1024, size=256 << 20)`` at first, in
        bytes as estimated from the text: 190 per character on llvmpipe, 60 on SwiftShader, both measured, 200 on other
        drivers), ``info`` what is there and how it was used, ``clear`` empties it. Compiled operators keep their own
        pipelines alive besides, which are found again as well. Memory of dropped pipelines goes back to the system
        when 16 MiB were dropped. Empty on adapters that compile nothing.
        """
        return self._pipeline_cache

    @property
    def description(self) -> str:
        return self._state.label

    @property
    def name(self) -> str | None:
        return self._name

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = coercion.argument(self.description, "name", NAME, name)
        self._state.name(name)

    @property
    def removed_reason(self) -> str | None:
        """Why the device is gone, None while it is there (IDMLDevice::GetDeviceRemovedReason)."""
        return self._state.removed

    def remove(self, reason: str = "it was removed on request") -> None:
        """Remove the device: from now on every call on it and its objects raises DeviceRemoved.

        Raises:
            InvalidArgument: a reason that is no text.
        """
        self._state.remove(coercion.argument("remove", "reason", coercion.text, reason))

    def evict(self, objects: Sequence[DeviceChild]) -> None:
        """Check the objects and do nothing: wgpu moves no single object out of memory (IDMLDevice::Evict).

        Raises:
            InvalidArgument: no sequence, an object that is not pageable, or another device's.
        """
        self._check_pageable("evict", objects)

    def make_resident(self, objects: Sequence[DeviceChild]) -> None:
        """Check the objects and do nothing: they always are (IDMLDevice::MakeResident). Raises as ``evict``."""
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
        """Check a description (IDMLDevice::CreateOperator).

        Raises:
            InvalidDescription: it breaks a rule, or needs a later feature level; names operator, field, expected, got.
            OperatorNotImplemented: dmlgpu does not have the operator yet.
            NotSupported: the adapter lacks what the operator needs.
        """
        self._state.check()
        self._check_desc(desc)
        return Operator(self, self._state, desc)

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
        """Make an operator executable (IDMLDevice::CompileOperator).

        Args:
            operator: one of this device.
            flags: DISABLE_META_COMMANDS is always so here; the others as documented by DirectML.
            preserve_padding: executions change no bit of the outputs but those of their elements. Else what lies in the
                words of 32 bits around and between elements of fewer bits may be overwritten, as DirectML allows. Where
                an output has such padding, this takes another kernel and a copy of the output, for some operators.

        Raises:
            InvalidArgument: another device's operator, or no flags.
            ShaderError: the driver refuses a shader, which is a bug of dmlgpu.
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
        compiled._took(time.perf_counter() - start)
        return compiled

    def compile_graph(
        self,
        graph: GraphDesc,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        *,
        disabled_passes: Collection[str] = (),
    ) -> CompiledOperator:
        """Make a graph of operators executable as one (IDMLDevice1::CompileGraph).

        Its inputs and outputs are those of the graph, by number; an initializer fills its persistent resource, and one
        recorded dispatch runs it all.

        Args:
            graph: operators, constants and the edges between them.
            flags: as for ``compile_operator``, for all operators.
            disabled_passes: names of the compiler's passes (``dmlgpu.compiler.graph.passes.PASSES``) to leave out.

        Raises:
            InvalidGraph: the graph or one of its operators breaks a rule; the message names node or edge, what was
                expected and what was given.
            InvalidArgument: no graph, no flags, or a name that is no pass.
            NotSupported: the adapter lacks what a node needs.
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
        compiled = CompiledOperator(
            self,
            self._state,
            title="graph",
            inputs=graph_ports(
                "graph input", network.inputs, {edge.graph_input: edge.name for edge in graph.input_edges}
            ),
            outputs=graph_ports(
                "graph output", network.output_tensors, {edge.graph_output: edge.name for edge in graph.output_edges}
            ),
            executable=executable,
            flags=flags,
        )
        compiled.name = graph.name
        compiled._took(time.perf_counter() - start)
        return compiled

    def create_operator_initializer(self, operators: Sequence[CompiledOperator] = ()) -> OperatorInitializer:
        """Create an initializer of compiled operators (IDMLDevice::CreateOperatorInitializer).

        Raises:
            InvalidArgument: another device's operator, or one twice.
        """
        return OperatorInitializer(self, self._state, operators)

    def create_binding_table(self, dispatchable: Dispatchable | None = None) -> BindingTable:
        """Make a table that binds buffers to a dispatchable (IDMLDevice::CreateBindingTable), or to none yet.

        Raises:
            InvalidArgument: another device's dispatchable.
        """
        return BindingTable(self, self._state, dispatchable)

    # ---- work and memory --------------------------------------------------------------------------------------------

    def create_command_recorder(self) -> CommandRecorder:
        """Create a command recorder (IDMLDevice::CreateCommandRecorder)."""
        return CommandRecorder(self, self._state)

    def create_command_list(self) -> CommandList:
        """Make an open, empty command list."""
        return CommandList(self, self._state)

    def create_fence(self, initial_value: int = 0) -> Fence:
        """Make a fence that has reached ``initial_value``, an integer from 0 to 2^64 - 1.

        Raises:
            InvalidArgument: another value.
        """
        value = coercion.argument("create_fence", "initial_value", FENCE_VALUE, initial_value)
        return Fence(self, self._state, value)

    def create_buffer(self, size: int, name: str | None = None) -> Buffer:
        """Allocate ``size`` bytes, zeroed.

        Args:
            size: bytes, a positive multiple of 4 below 2^64.
            name: shows up in errors and in the driver's traces.

        Raises:
            InvalidArgument: not such a multiple of 4, or a name that is no text.
            OutOfMemory: beyond the adapter's limits or the device's memory budget.
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
        """Make a buffer over a wgpu buffer of the same wgpu device; see ``Buffer.from_wgpu``."""
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

        Raises:
            InvalidArgument: no query, an operator or field that does not exist, an empty list of levels.
        """
        self._state.check()
        return answer(query, self._feature_level, self._refusal, operators.implemented())

    def _refusal(self, desc: OperatorDesc) -> DmlError | None:
        """Return the exception with which a description would be refused, or None."""
        try:
            self._check_desc(desc)
        except DmlError as refused:
            return refused
        return None


def _options(
    caller: str, deterministic: object, precise: object, memory_budget: object, disabled_features: object
) -> dict[str, Any]:
    """Return the options of an executor, checked."""
    return {
        "deterministic": coercion.argument(caller, "deterministic", coercion.boolean, deterministic),
        "precise": coercion.argument(caller, "precise", coercion.boolean, precise),
        "memory_budget": coercion.argument(caller, "memory_budget", _BUDGET, memory_budget),
        "disabled_features": _names(caller, "disabled_features", disabled_features),
    }


def _names(caller: str, argument: str, listed: object) -> tuple[str, ...]:
    """Return the names in a sequence or a set."""
    return coercion.argument(caller, argument, _NAMES, tuple(listed) if isinstance(listed, Set) else listed)


_DEFAULT_LOCK = threading.Lock()
_default: Device | None = None
_shared: dict[str, Device] = {}  # bounded by the adapters of the machine


def default_device() -> Device:
    """Return the default device: one per process, a new one after its removal.

    The environment variable DMLGPU_ADAPTER chooses its adapter, see ``adapters.choose``.
    """
    global _default  # noqa: PLW0603 - the cache is the point
    with _DEFAULT_LOCK:
        if _default is None or _default.removed_reason is not None:
            _default = Device()
        return _default


def as_device(caller: str, device: Device | str | None) -> Device:
    """Return the device that a ``device`` argument stands for: None is ``default_device()``, a text the device of the
    first adapter that it matches (see ``adapters.choose``), one per process and adapter.

    Raises:
        InvalidArgument: neither a device nor a text nor None; names the caller.
        AdapterNotFound: no adapter matches the text.
    """
    if device is None:
        return default_device()
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name of an adapter or None, got {type(device).__name__}"
        )
    info = choose(device)
    with _DEFAULT_LOCK:
        shared = _shared.get(str(info))
        if shared is None or shared.removed_reason is not None:
            shared = _shared[str(info)] = Device(info)
        return shared


def shared_devices() -> list[Device]:
    """Return the devices that ``as_device`` opened by the names of adapters, without removed ones."""
    with _DEFAULT_LOCK:
        return [device for device in _shared.values() if device.removed_reason is None]
