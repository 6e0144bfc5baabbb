"""Records which branches of the templates in shaders/ are rendered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from jinja2 import nodes

from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.mutation.suite import clear_caches

TRUE, FALSE, LOOP, MACRO, FILE = "true", "false", "loop", "macro", "file"
"""Kinds of branches: a condition is true or false, a loop has an iteration, a macro is called, a file is rendered."""


@dataclass(frozen=True)
class Branch:
    """A branch of a template.

    Attributes:
        file: Path of the template below ``shaders/``, without suffix.
        line: Line number in the file.
        column: Index of the statement or expression among those of the line.
        kind: Kind of the branch.
        text: The line.
    """

    file: str
    line: int
    column: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"shaders/{self.file}.wgsl:{self.line}: {self.kind}: {self.text}"


class BranchRecorder:
    """Records the branches of instrumented templates.

    Attributes:
        branches: All branches of the compiled templates.
        rendered: Indices of the rendered ones.
    """

    def __init__(self) -> None:
        self.branches: list[Branch] = []
        self.rendered: set[int] = set()

    def instrument(self, tree: nodes.Template, file: str) -> nodes.Template:
        """Insert calls of this recorder into a template."""
        lines = templates.source(file).split("\n")
        above = len(templates.header(file).splitlines())  # not part of the template
        columns: dict[int, int] = {}

        def add(node: nodes.Node, *kinds: str) -> nodes.Const:
            """Add the branches of a node, and return the index of the first one."""
            line = node.lineno + above
            column = columns[line] = columns.get(line, -1) + 1
            text = lines[line - 1].strip()
            self.branches += [Branch(file, line, column, kind, text) for kind in kinds]
            return nodes.Const(len(self.branches) - len(kinds))

        def mark(node: nodes.Node, kind: str) -> nodes.Node:
            return nodes.Output([_call(self.mark, add(node, kind))])

        def visit(node: nodes.Node) -> None:
            match node:
                case nodes.If() | nodes.CondExpr():
                    node.test = _call(self.decide, add(node, TRUE, FALSE), node.test)
                case nodes.For():
                    node.body.insert(0, mark(node, LOOP))
                case nodes.Macro():
                    node.body.insert(0, mark(node, MACRO))
            for child in list(node.iter_child_nodes()):
                visit(child)

        first = mark(tree, FILE)
        visit(tree)
        tree.body.insert(0, first)
        tree.set_lineno(1)
        return tree

    def unrendered(self) -> list[Branch]:
        """Return the branches that were not rendered."""
        return [branch for index, branch in enumerate(self.branches) if index not in self.rendered]

    def mark(self, index: int) -> str:
        """Record a branch, and return no text."""
        self.rendered.add(index)
        return ""

    def decide(self, index: int, condition: object) -> bool:
        """Record the true branch of a condition or the false one, which follows it, and return the condition."""
        holds = bool(condition)
        self.rendered.add(index if holds else index + 1)
        return holds


def _call(method: Any, *arguments: Any) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method.__name__), list(arguments), [], None, None)


@contextlib.contextmanager
def recorded_branches() -> Iterator[BranchRecorder]:
    """Record branches of all templates while they are rendered; programs compiled before are compiled again."""
    environment, recorder = templates.environment(), BranchRecorder()
    compile_tree = environment.compile

    def instrumented(source: str, name: str, filename: str | None) -> Any:
        return compile_tree(recorder.instrument(environment.parse(source, name, filename), name), name, filename)

    assert environment.cache is not None
    patched = {"compile": instrumented, "mark": recorder.mark, "decide": recorder.decide}
    with mock.patch.multiple(environment, create=True, bytecode_cache=None, **patched):  # stores none of its templates
        clear_caches()
        environment.cache.clear()
        for folder in templates.folders():
            if folder != "lib":  # functions without template lines
                for file in templates.files(folder):
                    environment.get_template(file)
        try:
            yield recorder
        finally:
            clear_caches()
            environment.cache.clear()
