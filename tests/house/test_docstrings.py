"""Public methods are documented. ruff's own rule requires that of overrides too, whose base documents them."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil

import dmlgpu


def test_public_methods_have_a_docstring_of_their_own_or_of_their_base():
    names = [module_info.name for module_info in pkgutil.walk_packages(dmlgpu.__path__, "dmlgpu.")]
    if importlib.util.find_spec("wgpudawn") is None:
        names.remove("dmlgpu.runtime.wgpu.dawn")
    modules = [importlib.import_module(name) for name in names]
    undocumented = [
        f"{cls.__module__}.{cls.__name__}.{name}"
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and not cls.__name__.startswith("_")
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property))
        and not inspect.getdoc(getattr(cls, name))
    ]
    assert undocumented == []
