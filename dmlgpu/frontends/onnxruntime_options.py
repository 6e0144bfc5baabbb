"""Options of onnxruntime's sessions and runs, and metadata of models; exported by ``dmlgpu.onnxruntime``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import ModelProto

from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.frontends.onnx.model import Declared
from dmlgpu.frontends.onnx.tensor_proto import type_name

if TYPE_CHECKING:
    from dmlgpu.frontends.onnxruntime import OrtValue


class GraphOptimizationLevel(enum.IntEnum):
    """Accepted by ``SessionOptions``; graphs are always optimized."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted by ``SessionOptions``; without effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted by ``SessionOptions``; without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@dataclass(slots=True)
class SessionOptions:
    """Options of a session.

    ``enable_profiling``, ``profile_file_prefix`` and the free dimensions count; the other options are accepted and have
    no effect. An attribute that onnxruntime does not have raises AttributeError.
    """

    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    _config: dict[str, str] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _denoted: dict[str, int] = field(default_factory=dict)
    _initializers: dict[str, OrtValue] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry; it has no effect."""
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return a stored entry.

        Raises:
            InvalidArgument: If no entry of the name was added.
        """
        if key not in self._config:
            raise InvalidArgument(f"SessionOptions: no session configuration was added with key {shown(key)}")
        return self._config[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a symbolic dimension of the inputs a size."""
        self._sizes[name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give the dimensions with a denotation, such as DATA_BATCH, a size."""
        self._denoted[denotation] = size

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace an initializer of the model that is also an input."""
        self._initializers[name] = value

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Accept an execution provider; it has no effect."""

    def register_custom_ops_library(self, path: str) -> None:
        """Raise NotSupported: libraries of native operators cannot run on a GPU."""
        raise NotSupported(f"SessionOptions: custom operator libraries are not supported, got {shown(path)}")


@dataclass(slots=True)
class RunOptions:
    """Options of a run, which are accepted and have no effect."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    _config: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry; it has no effect."""
        self._config[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Return a stored entry, an empty string if there is none."""
        return self._config.get(key, "")


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model.

    Attributes:
        name: Its name.
        shape: Size, symbol's name or None per dimension; None if the model declares no shape.
        type: As onnxruntime writes it: ``tensor(float)``.
    """

    name: str
    shape: list[int | str | None] | None
    type: str

    @classmethod
    def of(cls, declared: Declared) -> NodeArg:
        """Return the description of a declared input or output."""
        type_text = f"tensor({type_name(declared.element) if declared.element else 'unknown'})"
        if declared.is_sequence:
            type_text = f"seq({type_text})"
        if declared.is_optional:
            type_text = f"optional({type_text})"
        return cls(declared.name, None if declared.shape is None else list(declared.shape), type_text)


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of a model file."""

    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int

    @classmethod
    def of(cls, model: ModelProto) -> ModelMetadata:
        """Return the metadata of a model of the package ``onnx``."""
        return cls(
            {entry.key: entry.value for entry in model.metadata_props},
            model.doc_string,
            model.domain,
            model.graph.doc_string,
            model.graph.name,
            model.producer_name,
            model.model_version,
        )
