"""Suggestions in messages about missing names: the namespace that has the name, or a similar name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection

import numpy as np

_NAMESPACES = ("dmlgpu.ops", "dmlgpu.array", "dmlgpu.ops.linalg", "dmlgpu.ops.fft", "dmlgpu")
"""Namespaces in which names are looked up, in this order."""

_LIKENESS = 0.8
"""Minimum ratio of ``difflib`` between a name and its misspelling."""

EQUIVALENTS = {
    "absolute": "dmlgpu.ops.abs",
    "amax": "dmlgpu.ops.max",
    "amin": "dmlgpu.ops.min",
    "arccos": "dmlgpu.ops.acos",
    "arccosh": "dmlgpu.ops.acosh",
    "arcsin": "dmlgpu.ops.asin",
    "arcsinh": "dmlgpu.ops.asinh",
    "arctan": "dmlgpu.ops.atan",
    "arctan2": "dmlgpu.ops.atan2",
    "arctanh": "dmlgpu.ops.atanh",
    "array": "dmlgpu.Tensor, or dmlgpu.array.asarray",
    "asarray": "dmlgpu.Tensor, or dmlgpu.array.asarray",
    "bernoulli": "dmlgpu.random.default_rng(seed).bernoulli",
    "bmm": "dmlgpu.ops.matmul",
    "choice": "dmlgpu.random.default_rng(seed).choice",
    "chunk": "dmlgpu.ops.split",
    "clamp": "dmlgpu.ops.clip",
    "div": "dmlgpu.ops.divide",
    "eq": "dmlgpu.ops.equal",
    "gather": "dmlgpu.ops.take_along_axis",
    "ge": "dmlgpu.ops.greater_equal",
    "gt": "dmlgpu.ops.greater",
    "index_select": "dmlgpu.ops.take",
    "integers": "dmlgpu.random.default_rng(seed).integers",
    "le": "dmlgpu.ops.less_equal",
    "lt": "dmlgpu.ops.less",
    "manual_seed": "dmlgpu.random.seed",
    "mm": "dmlgpu.ops.matmul",
    "mul": "dmlgpu.ops.multiply",
    "ne": "dmlgpu.ops.not_equal",
    "neg": "dmlgpu.ops.negative",
    "normal": "dmlgpu.random.default_rng(seed).normal",
    "permutation": "dmlgpu.random.default_rng(seed).permutation",
    "pow": "dmlgpu.ops.power",
    "rand": "dmlgpu.random.default_rng(seed).random",
    "randint": "dmlgpu.random.default_rng(seed).integers",
    "randn": "dmlgpu.random.default_rng(seed).normal",
    "randperm": "dmlgpu.random.default_rng(seed).permutation",
    "ravel": "dmlgpu.ops.flatten",
    "scaled_dot_product_attention": "dmlgpu.ops.attention",
    "seed": "dmlgpu.random.seed",
    "shuffle": "dmlgpu.random.default_rng(seed).shuffle",
    "standard_normal": "dmlgpu.random.default_rng(seed).standard_normal",
    "sub": "dmlgpu.ops.subtract",
    "tensor": "dmlgpu.Tensor",
    "uniform": "dmlgpu.random.default_rng(seed).uniform",
}
"""Equivalents of functions of NumPy or PyTorch that have other names here."""


def suggestion(name: str, home: str, with_similar: bool = True) -> str:
    """Return the end of the message about a name that a namespace lacks: the name to use instead, or nothing.

    Args:
        name: The name.
        home: The namespace that lacks it: ``dmlgpu.ops``.
        with_similar: Whether to suggest a similar name of the namespace.
    """
    if name.startswith("_"):
        return ""
    if name in EQUIVALENTS:
        return f"; use {EQUIVALENTS[name]}"
    for namespace in _NAMESPACES:
        if namespace != home and name in _names(namespace):
            return f"; use {namespace}.{name}"
    if home in _NAMESPACES and name in importlib.import_module("dmlgpu.tensors.numpy_composed").COMPOSED:
        return f"; use numpy.{name}, which computes on the device of a Tensor"
    similar = _similar(name, _names(home)) if with_similar else []
    return f"; did you mean {f'{home}.{similar[0]}'.removeprefix('dmlgpu.')}?" if similar else ""


def _similar(name: str, candidates: Collection[str]) -> list[str]:
    """Return the name that a misspelling resembles, if there is one.

    A name of NumPy is no misspelling, nor is one with other digits, or one that contains the candidate.
    """
    if any(hasattr(module, name) for module in (np, np.linalg, np.fft)):
        return []
    likely = [candidate for candidate in candidates if candidate not in name and _digits(candidate) == _digits(name)]
    return difflib.get_close_matches(name, likely, 1, _LIKENESS)


def _digits(name: str) -> list[str]:
    return [character for character in name if character.isdigit()]


def _names(namespace: str) -> Collection[str]:
    """Return the public names of a namespace."""
    return importlib.import_module(namespace).__all__
