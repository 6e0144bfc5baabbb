"""Fusion of root-mean-square normalizations into the products that read the normalized rows.

A factor of a row may as well multiply its sums as its elements, so a product of few rows sums the squares of the
elements that it reads anyway. Normalized rows are not rounded to their data type: results differ from those of two
kernels by less than the rounding of the products, and are the closer ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, memory_of
from dmlgpu.compiler.operators.normalization import NORMALIZE
from dmlgpu.compiler.plan import (
    Affine,
    Apply,
    Contract,
    PairedContract,
    PlanTensor,
    Product,
    RegisterValue,
    Role,
    RowNorm,
    Rows,
    Step,
    View,
)
from dmlgpu.compiler.plan.parts import read
from dmlgpu.compiler.rewrites.sources import number
from dmlgpu.compiler.rewrites.spaces import affine_between

MEAN_SQUARE = "normalization/mean_square"


def fuse_norms(rewriting: Rewriting) -> None:
    """Compute normalizations in the products that read their rows, if nothing else reads these."""
    can_normalize = rewriting.capabilities.normalizes
    for index, step in rewriting.indexed():
        if not isinstance(step, Rows) or not _is_root_mean_square(step):
            continue
        memory = memory_of(step.output)
        if memory[0] is not Role.TEMPORARY or rewriting.producer(memory) is None:
            continue
        readers = rewriting.readers(memory)
        products = {reader: _normalized(rewriting.step(reader), step) for reader in readers}
        fused = {
            reader: product
            for reader, product in products.items()
            if product is not None and can_normalize(product) and rewriting.fits(product)
        }
        if fused and fused.keys() == readers:
            for reader, product in fused.items():
                rewriting.replace(reader, product)
            rewriting.drop(index, ", ".join(product.label for product in fused.values()))


NORMS = StepPass("norms", fuse_norms)


def _is_root_mean_square(step: Rows) -> bool:
    """Return whether rows in memory are divided by their root mean square, and at most multiplied by a tensor."""
    if [stage.file for stage in step.stages] != [MEAN_SQUARE] or step.statistics:
        return False
    body = step.body
    if not isinstance(step.source, PlanTensor) or not isinstance(body, Apply) or body.file != NORMALIZE:
        return False
    sources = dict(body.inputs)
    no_change = all(sources[name] == number(0, body.sizes) for name in ("mean", "lack", "bias"))
    is_divided = isinstance(sources["variance"], RegisterValue)
    scale = sources["scale"]
    is_scaled = scale == number(1, body.sizes) or (isinstance(scale, PlanTensor) and scale.data_type.is_float)
    return sources["input"] == step.source and no_change and is_divided and is_scaled


def _normalized(step: Step, norm: Rows) -> Contract | PairedContract | None:
    """Return a product of normalized rows that normalizes them itself; None for other steps."""
    if not isinstance(step, Contract | PairedContract) or not isinstance(step.product.a, PlanTensor):
        return None
    product, a, memory = step.product, step.product.a, memory_of(norm.output)
    is_read_once = [tensor for tensor in read(step) if memory_of(tensor) == memory] == [a]
    affine = affine_between(a, norm.output) if is_read_once and product.norm is None else None
    if affine is None or a.view is not View.COMPUTE or not _reads_rows(product, affine, norm):
        return None
    body = norm.body
    assert isinstance(body, Apply) and isinstance(norm.source, PlanTensor)
    scale, epsilon = dict(body.inputs)["scale"], dict(body.constants)["epsilon"]
    gain = affine.of(scale, a.sizes) if isinstance(scale, PlanTensor) else None
    rows = affine.of(norm.source, a.sizes)
    return replace(step, product=replace(product, a=rows, norm=RowNorm(gain, epsilon)))


def _reads_rows(product: Product, affine: Affine, norm: Rows) -> bool:
    """Return whether the rows of a product are normalized ones, as a whole and each element once.

    Args:
        product: The product.
        affine: Map from the coordinates of its rows to those of the normalized ones.
        norm: The normalization.
    """
    first = len(product.space.batch) + len(product.space.rows)
    inner = product.a.sizes[first:]
    assert isinstance(product.a, PlanTensor)
    if math.prod(inner) != math.prod(norm.output.sizes[axis] for axis in norm.axes):
        return False
    if not all(stride for size, stride in zip(inner, product.a.strides[first:], strict=True) if size > 1):
        return False  # elements that repeat
    return all(
        all(not step for step in (steps[:first] if axis in norm.axes else steps[first:]))
        for axis, steps in enumerate(affine.steps)
    )
