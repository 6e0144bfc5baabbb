"""Hypothesis strategies for cases (needs the extra ``test``).

Types, sizes, layout and variant shrink; a failing case still has a name that ``case_by_name`` takes back.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import Key
from dmlgpu.conformance.cases.layouts import EDGE_SIZES, TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases

EXTENTS = st.integers(1, 6) | st.sampled_from(EDGE_SIZES)


@st.composite
def keys_of(draw: st.DrawFn, cases: OperatorCases, most_elements: int = 4096) -> Key:
    """Draw the key of a case of an operator, whose inputs have at most ``most_elements`` elements."""
    types = draw(st.sampled_from(cases.types))
    layout = draw(st.sampled_from(TensorLayout))
    variant = draw(st.sampled_from(cases.allowed_variants(types, layout)))
    sizes: list[int] = []
    for _ in range(draw(st.sampled_from(cases.ranks))):
        sizes.append(min(draw(EXTENTS), most_elements // math.prod(sizes)))
    return Key(types, tuple(sizes), layout, variant, draw(st.integers(0, 999)))


def cases_of(cases: OperatorCases, most_elements: int = 4096) -> st.SearchStrategy[Case]:
    """Draw cases of an operator."""
    return keys_of(cases, most_elements).map(cases.case_of)
