"""Export models and graphs as folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.export.compiling import ExportChoices, as_graph, combined, exportable
from dmlgpu.export.folder import Exported, path_argument, write_folder
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.model import Source

Array: TypeAlias = NDArray[Any]
Described: TypeAlias = GraphDesc | OperatorDesc | Tensor | Sequence[Tensor]

_SIZES = coercion.tuple_of(coercion.between(1, 2**32 - 1), "positive integers")
_PASSES = coercion.tuple_of(coercion.text, "names of passes")
_NAMES = coercion.optional(coercion.tuple_of(coercion.text, "names"))


def write(
    graph: Described,
    folder: str | os.PathLike[str],
    *,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    weights: Mapping[str, Array] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    schedules: str = "gpu",
    half_precision: bool = False,
    disabled_passes: Collection[str] = (),
    matrices: str = "",
) -> Exported:
    """Export a graph to a folder that runs in a web page, without Python (docs/export.md).

    Args:
        graph: A GraphDesc, an OperatorDesc, or outputs of a Graph.
        folder: Output folder; created if it does not exist. Files of the same names are replaced.
        sizes: A size or several by name, as in ``{"n": range(1, 9)}``, if sizes of the Graph have names. The folder
            takes all combinations, at most 64, which share kernels and weights.
        weights: Arrays by input name, with the tensor's sizes and dtype: required for inputs that are OWNED_BY_DML,
            optional for others, which then are constant.
        inputs, outputs: Names, by index; None takes the names of the edges, or numbers.
        schedules: Family of schedules, ``"gpu"`` (default) or ``"cpu"``.
        half_precision: Use float16 arithmetic, which needs the browser feature ``shader-f16``. Defaults to False.
        disabled_passes: Names of passes of the graph compiler to disable (``dmlgpu.compiler.graph.passes.PASSES``).
        matrices: Size of the matrices that products of float16 use, ``"16x16x16"``, ``"8x16x16"`` or ``"8x8x8"``: the
            browser must list it, and have the feature ``chromium-experimental-subgroup-matrix``. Empty (default) uses
            none.

    Returns:
        An Exported with files, kernels and sizes.

    Raises:
        InvalidArgument: If an argument has the wrong type, a name is not the graph's, a size is missing, or weights do
            not fit.
        InvalidGraph: If the graph or an operator breaks a rule.
        NotSupported: If it needs a feature or limit that WebGPU does not guarantee; the message names it.
        OSError: If a file cannot be written.
    """
    target = path_argument("write", folder)
    described = _described(graph, sizes)
    if weights is not None and not isinstance(weights, Mapping):
        raise InvalidArgument(f"write: weights must be a mapping from names to arrays, got {shown(weights)}")
    choice = _choice("write", schedules, half_precision, disabled_passes, matrices)
    choice = replace(choice, shares_kernels=len(described) > 1)
    inputs = coercion.argument("write", "inputs", _NAMES, inputs)
    outputs = coercion.argument("write", "outputs", _NAMES, outputs)
    models = [
        exportable(desc, choice, weights=weights or {}, inputs=inputs, outputs=outputs, provenance=choice.provenance())
        for desc in described
    ]
    return write_folder(models, target)


def write_onnx(
    source: Source,
    folder: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int | Sequence[int]]] | None = None,
    *,
    schedules: str = "gpu",
    half_precision: bool = False,
    matrices: str = "",
) -> Exported:
    """Export an ONNX model to a folder that runs in a web page, for one or several input shapes.

    Kernels, weights and buffers are shared between shapes.

    Args:
        source: Path of a file, its bytes, or a model of the package ``onnx``.
        folder, schedules, half_precision, matrices: As for ``write``.
        shapes: Shapes by input name, for all inputs with free dimensions: a size per dimension, or several, as in
            ``{"image": (1, 3, 48, range(160, 641, 32))}``. Dimensions with the same symbol have the same size. The
            folder takes all combinations, at most 64.

    Returns:
        An Exported with files, kernels and sizes.

    Raises:
        InvalidArgument: If a shape is missing or does not fit the model.
        ModelError: If the model is malformed.
        NotSupported: If nodes need host computation or decisions (the message names them), or as ``write``.
        OSError: If a file cannot be written.
    """
    from dmlgpu.export.models import exportable_models  # noqa: PLC0415  onnx is an extra

    target = path_argument("write_onnx", folder)
    choice = _choice("write_onnx", schedules, half_precision, (), matrices)
    return write_folder(exportable_models(source, shapes, choice, _provenance(source)), target)


def write_dxdispatch(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str | None = None,
    *,
    schedules: str = "gpu",
) -> Exported:
    """Export an operator or a graph of a DxDispatch model to a folder that runs in a web page.

    Tensors that are OWNED_BY_DML get the values that the model binds at initialization.

    Args:
        path: Path of the model.
        folder, schedules: As for ``write``.
        name: Name of the dispatchable; None if there is only one.

    Returns:
        An Exported with files, kernels and sizes.

    Raises:
        InvalidArgument: If there is no such dispatchable, or there are several and no name.
        ModelError, MissingFile: If the model is malformed or missing.
        NotSupported: If it is a shader or an ONNX model, or as ``write``.
        OSError: If a file cannot be written.
    """
    from dmlgpu.export.models import exportable_dispatchable  # noqa: PLC0415  loads DxDispatch's reader

    target = path_argument("write_dxdispatch", folder)
    model = path_argument("write_dxdispatch", path, "path")
    name = coercion.argument("write_dxdispatch", "name", coercion.optional(coercion.text), name)
    return write_folder([exportable_dispatchable(model, name, schedules, _provenance(model))], target)


def _described(graph: object, sizes: object) -> list[GraphDesc]:
    """Return the descriptions of a graph, for each combination of its sizes."""
    outputs = (graph,) if isinstance(graph, Tensor) else graph
    is_built = isinstance(outputs, tuple | list) and outputs and getattr(outputs[0], "graph", None) is not None
    if not is_built and sizes is not None:
        raise InvalidArgument(f"write: sizes must be None unless graph is outputs of a Graph, got {shown(sizes)}")
    if isinstance(graph, OperatorDesc):
        return [as_graph(graph)]
    if isinstance(graph, GraphDesc):
        return [graph]
    if not is_built:
        raise InvalidArgument(
            f"write: graph must be a GraphDesc, an OperatorDesc or Expressions of a Graph, got {shown(graph)}"
        )
    assert isinstance(outputs, tuple | list)
    build = outputs[0].graph.desc
    if sizes is None:
        return [build(outputs)]
    if not isinstance(sizes, Mapping):
        raise InvalidArgument(f"write: sizes must be a mapping from names to sizes, got {shown(sizes)}")
    several = {
        name: coercion.argument("write", f"sizes[{name!r}]", _SIZES, (size,) if isinstance(size, int) else size)
        for name, size in sizes.items()
    }
    return [build(outputs, sizes=chosen) for chosen in combined("write", several)]


def _choice(
    caller: str, schedules: object, half_precision: object, disabled_passes: object, matrices: object
) -> ExportChoices:
    return ExportChoices(
        coercion.argument(caller, "schedules", coercion.text, schedules),
        coercion.argument(caller, "half_precision", coercion.boolean, half_precision),
        coercion.argument(caller, "disabled_passes", _PASSES, disabled_passes),
        matrices=coercion.argument(caller, "matrices", coercion.text, matrices),
    )


def _provenance(source: object) -> dict[str, Any]:
    """Return the name of a source file without its folder, and the hash of its bytes."""
    if isinstance(source, bytes):
        return {"sha256": hashlib.sha256(source).hexdigest()}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        digest = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if path.is_file() else {}
        return {"source": path.name, **digest}
    return {}
