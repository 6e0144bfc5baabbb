"""Stubs (``.pyi``) for editors and type checkers: of modules whose members are made from the catalog, and of aliases.

The build hook (``hatch_build.py``) writes them into wheels and editable installs, ``scripts/generate`` into a checkout.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dmlgpu.catalog.documentation import annotation, default_source, description_docstring, output_names, single_type
from dmlgpu.catalog.functions import DIRECTMLX_NAMES, DIRECTMLX_PARAMETERS, FunctionSource, listed_parameters
from dmlgpu.catalog.loader import catalog
from dmlgpu.catalog.model import FieldSchema, OperatorSchema

_DESCRIPTIONS = '''"""Typed descriptions of DirectML's operators, one class each."""

{enums}
from dmlgpu.catalog.operator_desc import OperatorDesc as OperatorDesc
from dmlgpu.catalog.operator_desc import ScaleBias as ScaleBias
from dmlgpu.catalog.operator_desc import Size2D as Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc as TensorDesc

def all_descs() -> tuple[type[OperatorDesc], ...]:
    """Return all description classes, in the order of DML_OPERATOR_TYPE."""
    ...

def by_name(operator: str) -> type[OperatorDesc]:
    """Return the description class of an operator by DirectML's name (``GATHER_ND1``) or an alias (``SCATTER``).

    Raises:
        InvalidArgument: If there is no such operator.
    """
    ...
'''

_FUNCTIONS = '''"""A function per operator of DirectML, on tensors, arrays and nodes of graphs."""

from collections.abc import Sequence
from typing import NamedTuple

from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.types import TypeLike
{enums}
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D

__all__ = [
{names}
]
'''

_DIRECTMLX = '''"""DirectMLX's functions under its names, in snake_case."""

from collections.abc import Sequence
from typing import Any

from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike
{enums}
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.ops import directml

{names}
'''

_ALIAS = '''"""Another name of ``dmlgpu.{home}``."""

from dmlgpu.{home} import *
'''


def stubs() -> dict[str, str]:
    """Return the content of each stub file, by path in the package."""
    schemas = list(catalog().values())
    types = {single_type(field) for schema in schemas for field in schema.fields if field.type.startswith("DML_")}
    enums = f"from dmlgpu.catalog.enums import {', '.join(sorted({*types, 'DataType'}))}"
    names = "\n".join(f'    "{name}",' for name in FunctionSource.listed())
    package = sys.modules["dmlgpu"]  # loaded before its modules
    aliases = {alias: home for alias, home in package._MODULES.items() if alias != home}
    return {
        "__init__.pyi": "\n".join(_public(package)),
        **{f"{alias}.pyi": _ALIAS.format(home=home) for alias, home in aliases.items()},
        "catalog/descs.pyi": _module(_DESCRIPTIONS.format(enums=enums), map(_description, schemas)),
        "ops/directml.pyi": _module(
            _FUNCTIONS.format(enums=enums, names=names),
            (FunctionSource(schema).stub() for schema in schemas),
        ),
        "tensors/directmlx.pyi": _module(
            _DIRECTMLX.format(enums=enums, names=_directmlx_names()), (*_written_functions(), *_reordered_functions())
        ),
    }


def write(package: Path) -> None:
    """Write the stubs below the package folder, if they changed."""
    for name, text in stubs().items():
        path = package / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _public(package: Any) -> Iterator[str]:
    """Yield the lines of the package's stub."""
    yield f'"""{package.__doc__}"""\n'
    for home, names in package._HOMES.items():
        yield f"from dmlgpu.{home} import {', '.join(f'{name} as {name}' for name in names)}"
    for alias, home in package._MODULES.items():
        room, _, module = f"dmlgpu.{home}".rpartition(".")
        yield f"from {room} import {module} as {alias}"
    yield f"\n__version__: str\n__all__ = {package.__all__!r}\n"


def _directmlx_names() -> str:
    """Return the functions of ``ops.directml`` that have another name, and no other parameters."""
    return "\n".join(f"{name} = directml.{target}" for name, target in DIRECTMLX_NAMES.items())


def _written_functions() -> Iterator[str]:
    """Yield the functions that the module itself defines."""
    module = Path(__file__).parents[1] / "tensors" / "directmlx.py"
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body = [node.body[0], ast.Expr(ast.Constant(...))]
            yield ast.unparse(node)


def _reordered_functions() -> Iterator[str]:
    """Yield the functions of ``ops.directml`` with parameters in another order, or of other names."""
    for name, (stem, text) in DIRECTMLX_PARAMETERS.items():
        source = FunctionSource(catalog()[stem.upper()])
        rest = dict(declared.split(": ", 1) for declared in (*source.operands(), *source.keywords()))
        parameters: list[str] = []
        is_required = False
        for own, target, default in reversed([*listed_parameters(text)]):
            annotation, _, own_default = rest.pop(target).partition(" = ")
            is_required = is_required or not (default or own_default)
            parameters.append(f"{own}: {annotation}" + (f" = {default or own_default}" if not is_required else ""))
        keywords = [f"{keyword}: {declared}" for keyword, declared in rest.items()]
        head = ", ".join([*reversed(parameters), "*", *keywords])
        result = f"directml.{source.result}" if len(source.outputs) > 1 else source.result
        yield "\n".join([f"def {name}({head}) -> {result}:", *source.docstring(), "    ..."])


def _module(header: str, members: Iterable[str]) -> str:
    return "\n".join([header, *(f"{member}\n" for member in members)])


def _description(schema: OperatorSchema) -> str:
    lines = [f"class {schema.class_name}(OperatorDesc, operator={schema.name!r}):"]
    lines.append(f'    """{description_docstring(schema)}"""')
    lines += ["", f"    output_fields = {output_names(schema)!r}"]
    lines += [
        f"    {field.python_name}: {annotation(field)}{_default(schema, field)}" for field in schema.python_fields
    ]
    return "\n".join(lines)


def _default(schema: OperatorSchema, field: FieldSchema) -> str:
    if field.optional:
        return " = None"
    if field.is_tensor:
        return " = ..." if schema.fusion else ""
    value = default_source(schema, field)
    if value is None:
        return ""
    return " = ..." if field.is_array else f" = {value}"
