"""Private names of PyTorch stand in two modules, where the versions that have them are written and checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dmlgpu"
PLACES = {"internals.py", "compiler_internals.py"}
"""Modules that pass private names to ``versions.private``."""

ALLOWED = {
    "torch.ops.aten._": "operators, which the table's rule for versions covers",
    "_ATEN._": "the same, `torch.ops.aten`",
    "aten_._": "the same",
    "torch._foreach_": "operators on lists of tensors, which PyTorch's documentation lists",
}
"""Beginnings of expressions with private names that other modules may use, and why."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def names_defined_in(trees: list[ast.Module]) -> set[str]:
    """Return names of functions, classes, variables and attributes of ``self`` that modules define."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def imported_from_torch(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, full name and local name of everything that a module imports from PyTorch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [(f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.name, alias.asname or alias.name.split(".")[0]) for alias in node.names]
        else:
            continue
        for full, local in names:
            if full.split(".")[0] == "torch":
                yield node.lineno, full, local


def private_names_of_torch(tree: ast.Module, own: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and expression of each private name of PyTorch that a module imports or reads.

    These are private attributes of names that are imported from PyTorch, and private attributes of other objects that
    dmlgpu does not define.
    """
    imported = {local for _, _, local in imported_from_torch(tree)}
    for line, full, _ in imported_from_torch(tree):
        if any(map(is_private, full.split("."))):
            yield line, full
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            expression = ast.unparse(node)
            is_of_torch = expression.split(".")[0] in imported or node.attr not in own
            if is_of_torch and not expression.startswith(tuple(ALLOWED)):
                yield node.lineno, expression
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr", "setattr", "_replaced"}:
            for argument in node.args[1:2]:
                if isinstance(argument, ast.Constant) and is_private(argument.value) and argument.value not in own:
                    yield node.lineno, ast.unparse(node)


def test_private_names_of_pytorch_stand_in_two_modules() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    own = names_defined_in(list(trees.values()))
    folder = PACKAGE / "frontends" / "torch"
    users = [path for path in trees if path.is_relative_to(folder) or "torch" in path.name]
    assert len(users) > 40
    uses = [
        f"{path.relative_to(PACKAGE)}:{line}: {expression}"
        for path in sorted(users)
        if path.parent != folder or path.name not in PLACES
        for line, expression in private_names_of_torch(trees[path], own)
    ]
    assert not uses, "move these to internals.py or compiler_internals.py:\n" + "\n".join(uses)


def test_both_modules_check_every_private_name() -> None:
    """They import nothing private and read private attributes only of names that they have checked."""
    for name in PLACES:
        tree = ast.parse((PACKAGE / "frontends" / "torch" / name).read_text(encoding="utf-8"))
        checked = "".join(
            ast.unparse(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"private", "_place"}
            for argument in node.args
        )
        for line, expression in private_names_of_torch(tree, names_defined_in([tree])):
            assert expression.rpartition(".")[2] in checked, f"{name}:{line}: {expression} is not passed to `private`"


def test_other_uses_are_found() -> None:
    source = """
import torch, torch._dynamo
from torch import fx
from torch.utils import _pytree as pytree
from torch.nn import functional
x._mine, x._theirs, torch._C.thing(), fx._own, functional.relu, torch.ops.aten._softmax, getattr(x, "_cdata")
"""
    expressions = [expression for _, expression in private_names_of_torch(ast.parse(source), {"_mine", "_own"})]
    assert sorted(expressions) == sorted(
        ["torch._dynamo", "torch.utils._pytree", "x._theirs", "torch._C", "fx._own", "getattr(x, '_cdata')"]
    )
