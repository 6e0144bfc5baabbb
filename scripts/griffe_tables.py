"""griffe extension: functions of ``dmlgpu.array`` that a table makes, which the static source shows as attributes."""

from __future__ import annotations

import inspect
from typing import Any

from griffe import Docstring, Extension, Function, Module, Parameter, ParameterKind, Parameters, Parser

import dmlgpu.array

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: ParameterKind.keyword_only,
}


class TableFunctions(Extension):
    """Replaces attributes by the functions that they are when the module is imported."""

    def on_package(self, *, pkg: Module, **options: Any) -> None:
        """Replace the attributes of ``dmlgpu.array.elementwise`` that hold functions."""
        if pkg.name != "dmlgpu":
            return
        module = pkg["array.elementwise"]
        for name in [name for name, member in module.members.items() if not member.is_alias and member.is_attribute]:
            value = getattr(dmlgpu.array, name, None)
            if inspect.isfunction(value):
                module.set_member(name, _function(name, value, module[name]))


def _function(name: str, value: Any, attribute: Any) -> Function:
    signature = inspect.signature(value)
    parameters = Parameters(
        *(
            Parameter(parameter.name, annotation=str(parameter.annotation), kind=KINDS[parameter.kind])
            for parameter in signature.parameters.values()
        )
    )
    function = Function(
        name,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parameters=parameters,
        returns=str(signature.return_annotation),
    )
    function.docstring = Docstring(
        inspect.getdoc(value) or "", lineno=attribute.lineno, parent=function, parser=Parser.google
    )
    return function
