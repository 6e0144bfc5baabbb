"""Keywords of functions and methods under the names that other libraries use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

ALIASES = {"count_include_pad": "include_padding", "ddof": "correction", "dim": "axis", "keepdim": "keepdims"}
"""Names of keywords in PyTorch and NumPy that functions of ``dmlgpu.ops`` and methods of tensors accept as well."""

ALIASED = frozenset(ALIASES.values())
"""Parameters that have an alias."""

RENAMED = {
    "attn_mask": "mask",
    "data_type": "dtype",
    "epsilon": "eps",
    "filter": "weight",
    "heads": "num_heads",
    "interpolation": "method",
    "is_causal": "causal",
    "output_type": "dtype",
    "repeats": "reps",
    "sizes": "shape",
    "unbiased": "correction",
    "widths": "pad_width",
    "window": "kernel_size",
}
"""Keywords of ``dmlgpu.ops`` by the names that DirectML, PyTorch or earlier versions use."""


def takes_aliases(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a method so that it also accepts the keywords of ``ALIASES``."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        keywords: Any = kwargs
        if not kwargs.keys().isdisjoint(ALIASES):
            keywords = {ALIASES.get(key, key): value for key, value in kwargs.items()}
        try:
            return method(*args, **keywords)
        except TypeError as error:
            raise with_right_name(error, method, kwargs) from None

    return call


def with_right_name(error: TypeError, function: Callable[..., Any], keywords: Mapping[str, Any]) -> TypeError:
    """Return an error that names the keyword, if one of ``RENAMED`` was passed."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in keywords:
        keyword = RENAMED.get(name)
        if name not in parameters and keyword in parameters:
            return TypeError(
                f"{function.__name__}() got an unexpected keyword argument {name!r}; it is called {keyword!r}"
            )
    return error
