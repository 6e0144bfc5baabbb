"""Models and graphs written as folders: what people call."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.export.compiling import ExportChoices, as_graph, exportable
from dmlgpu.export.folder import Exported, write_folder
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.model import Source

Array: TypeAlias = NDArray[Any]
Described: TypeAlias = GraphDesc | OperatorDesc | Tensor | Sequence[Tensor]

_PASSES = coercion.tuple_of(coercion.text, "names of passes")
_NAMES = coercion.optional(coercion.tuple_of(coercion.text, "names"))


def write(
    graph: Described,
    folder: str | os.PathLike[str],
    *,
    weights: Mapping[str, Array] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    schedules: str = "gpu",
    half_precision: bool = False,
    disabled_passes: Collection[str] = (),
) -> Exported:
    """Write a folder that computes a graph in a page, without Python (docs/export.md).

    Args:
        graph: a graph, an operator, or the outputs of a graph of ``dmlgpu.tensors.graphs``.
        folder: where; it is made where it is missing, and files of the same names are replaced.
        weights: arrays that the folder holds, by the names of inputs, each of the tensor's sizes and NumPy type: of all
            that are OWNED_BY_DML, and of whichever others no run shall be given.
        inputs, outputs: names, by number; None takes those of the edges, and numbers those without one.
        schedules: ``"gpu"`` or ``"cpu"``: the family of schedules.
        half_precision: whether 16-bit arithmetic is native, which takes browsers with the feature ``shader-f16``.
        disabled_passes: names of the graph compiler's passes (``dmlgpu.compiler.graph.passes.PASSES``) to leave out.

    Raises:
        InvalidArgument: an argument of the wrong kind, names that are not the graph's, weights that do not fit.
        InvalidGraph: the graph or one of its operators breaks a rule.
        NotSupported: it needs a feature or a limit that not every device with WebGPU has; the message names it.
        OSError: a file cannot be written.
    """
    target = _folder("write", folder)
    desc = _described(graph)
    if weights is not None and not isinstance(weights, Mapping):
        raise InvalidArgument(f"write: weights must be a mapping from names to arrays, got {shown(weights)}")
    choice = _choice("write", schedules, half_precision, disabled_passes)
    model = exportable(
        desc,
        choice,
        weights=weights or {},
        inputs=coercion.argument("write", "inputs", _NAMES, inputs),
        outputs=coercion.argument("write", "outputs", _NAMES, outputs),
        provenance=choice.provenance(),
    )
    return write_folder(model, target)


def write_onnx(
    source: Source,
    folder: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    schedules: str = "gpu",
    half_precision: bool = False,
) -> Exported:
    """Write a folder that computes an ONNX model in a page, for inputs of fixed sizes.

    Args:
        source: the path of a file, its bytes, or a model of the package ``onnx``.
        folder, schedules, half_precision: as of ``write``.
        shapes: of inputs, by name: of all that have dimensions without a number.

    Raises:
        InvalidArgument: a shape that is missing, or does not fit the model.
        ModelError: the model is malformed.
        NotSupported: nodes that the host computes or must decide about; the message names them. And as ``write``.
        OSError: a file cannot be written.
    """
    from dmlgpu.export.models import exportable_model  # noqa: PLC0415  onnx is an extra

    target = _folder("write_onnx", folder)
    choice = _choice("write_onnx", schedules, half_precision, ())
    return write_folder(exportable_model(source, shapes, choice, _provenance(source)), target)


def write_dxdispatch(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str | None = None,
    *,
    schedules: str = "gpu",
) -> Exported:
    """Write a folder that computes an operator or a graph of a DxDispatch model in a page.

    Tensors that are OWNED_BY_DML get the values that the model binds at initialisation.

    Args:
        path: of the model.
        folder, schedules: as of ``write``.
        name: of the dispatchable; None where there is one.

    Raises:
        InvalidArgument: no such dispatchable, or several and no name.
        ModelError, MissingFile: the model is malformed or missing.
        NotSupported: it is a shader or an ONNX model; and as ``write``.
        OSError: a file cannot be written.
    """
    from dmlgpu.export.models import exportable_dispatchable  # noqa: PLC0415  loads DxDispatch's reader

    target = _folder("write_dxdispatch", folder)
    model = _folder("write_dxdispatch", path, "path")
    name = coercion.argument("write_dxdispatch", "name", coercion.optional(coercion.text), name)
    return write_folder(exportable_dispatchable(model, name, schedules, _provenance(model)), target)


def _described(graph: object) -> GraphDesc:
    if isinstance(graph, OperatorDesc):
        return as_graph(graph)
    if isinstance(graph, GraphDesc):
        return graph
    outputs = (graph,) if isinstance(graph, Tensor) else graph
    if not isinstance(outputs, tuple | list) or not outputs or getattr(outputs[0], "graph", None) is None:
        raise InvalidArgument(
            f"write: graph must be a GraphDesc, an OperatorDesc or Expressions of a Graph, got {shown(graph)}"
        )
    return outputs[0].graph.desc(outputs)


def _folder(caller: str, folder: object, argument: str = "folder") -> Path:
    try:
        path = Path(os.fspath(folder))  # type: ignore[call-overload]
    except Exception:  # whatever a foreign __fspath__ raises
        raise InvalidArgument(f"{caller}: {argument} must be a path, got {shown(folder)}") from None
    if "\0" in str(path) or not str(path).isprintable():
        raise InvalidArgument(f"{caller}: {argument} must be a path, got {shown(folder)}")
    return path


def _choice(caller: str, schedules: object, half_precision: object, disabled_passes: object) -> ExportChoices:
    return ExportChoices(
        coercion.argument(caller, "schedules", coercion.text, schedules),
        coercion.argument(caller, "half_precision", coercion.boolean, half_precision),
        coercion.argument(caller, "disabled_passes", _PASSES, disabled_passes),
    )


def _provenance(source: object) -> dict[str, Any]:
    """Return the name of a source's file, without its folder, and the digest of its bytes."""
    if isinstance(source, bytes):
        return {"sha256": hashlib.sha256(source).hexdigest()}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        digest = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if path.is_file() else {}
        return {"source": path.name, **digest}
    return {}
