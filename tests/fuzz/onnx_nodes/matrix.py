"""Matrix products, Einsum, determinants, linear attention's parts, losses."""

from __future__ import annotations

import numpy as np

from tests.fuzz.onnx_nodes.draw import FLOATS, MICROSOFT, Draw, NodeCase, generator


def _factors(draw: Draw, high_rank: int = 4) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two matrices that can be multiplied, with batches that broadcast."""
    inner = 0 if draw.chance(0.03) else draw.pick(1, 2, 3, 4, 5, 8, 17, 33)
    batch = draw.shape(0, high_rank - 2, most=3)
    rows, columns = draw.pick(0, 1, 1, 2, 3, 4, 5, 8, 9) if draw.chance(0.3) else draw.integer(1, 6), draw.integer(1, 8)
    left, right = (*draw.broadcast(batch), rows, inner), (*draw.broadcast(batch), inner, columns)
    if draw.chance(0.1):
        left = (inner,)
    if draw.chance(0.1):
        right = (inner,)
    return left, right


@generator("MatMul")
def matmul(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, low=-20, high=20) if draw.pool and draw.chance(0.7) else None
    if x is not None:
        columns = draw.integer(1, 6)
        y = draw.tensor(x.dtype.name, (x.shape[-1], columns))
        return draw.case(x, y, length=x.shape[-1], scale=80)
    left, right = _factors(draw)
    dtype = draw.dtype()
    return draw.case(draw.tensor(dtype, left), draw.tensor(dtype, right), length=left[-1], scale=16)


@generator("Gemm")
def gemm(draw: Draw) -> NodeCase:
    m, n, k = draw.integer(1, 6), draw.integer(1, 8), draw.pick(1, 2, 3, 4, 8, 17)
    if draw.chance(0.05):
        m, n, k = draw.pick((0, n, k), (m, 0, k), (m, n, 0))
    x = draw.main(low_rank=2, high_rank=2, low=-20, high=20) if draw.pool else None
    trans_a, trans_b = draw.maybe(0, 1), draw.maybe(0, 1)
    if x is not None:
        m, k = x.shape[::-1] if trans_a else x.shape
    dtype = draw.dtype() if x is None else x.dtype.name
    a = draw.tensor(dtype, (k, m) if trans_a else (m, k)) if x is None else x
    b = draw.tensor(dtype, (n, k) if trans_b else (k, n))
    c = draw.tensor(dtype, draw.broadcast((m, n))) if draw.version < 11 or draw.chance(0.7) else None
    whole = dtype not in FLOATS
    factors = [draw.maybe(*((1.0, 2.0) if whole else (0.5, -1.25, 0.0))) for _ in range(2)]
    return draw.case(a, b, c, alpha=factors[0], beta=factors[1], transA=trans_a, transB=trans_b, length=k, scale=80)


@generator("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(draw: Draw) -> NodeCase:
    left, right = _factors(draw)
    trans_a, trans_b = draw.maybe(0, 1), draw.maybe(0, 1)
    if len(left) == 1 or len(right) == 1:
        # onnxruntime reads outside the elements if one operand is a vector and the other is transposed.
        trans_a = trans_b = None
    if trans_a:
        left = (*left[:-2], left[-1], left[-2])
    if trans_b:
        right = (*right[:-2], right[-1], right[-2])
    dtype = draw.pick("float32", "float32", "float16")
    options: dict[str, object] = {"alpha": draw.maybe(0.5, -1.25), "transA": trans_a, "transB": trans_b}
    if draw.op_type == "FusedMatMulActivation":
        options["activation"] = draw.pick("Relu", "Tanh", "Sigmoid")
    return draw.case(draw.tensor(dtype, left), draw.tensor(dtype, right), length=40, scale=16, **options)


@generator("FusedGemm", domain=MICROSOFT)
def fused_gemm(draw: Draw) -> NodeCase:
    case = gemm(draw)
    case.attributes["activation"] = draw.pick("Relu", "Tanh", "Sigmoid", "LeakyRelu")
    case.inputs = [None if array is None else np.asarray(array, "float32") for array in case.inputs]
    return case


@generator("Einsum")
def einsum(draw: Draw) -> NodeCase:
    sizes = {letter: draw.integer(1, 4) for letter in "abcdeij"}
    if draw.chance(0.03):
        sizes["a"] = 0
    equation = draw.pick(
        *("ij,jk->ik", "ij->ji", "ii->i", "ii", "ij->", "i,j->ij", "bij,bjk->bik", "...ij,...jk->...ik", "abc,cd->abd"),
        *("i,i->", "ij,ij->i", "abij,abjc->abic", "bij,bj->bi", "ij", "...i->...", "ab,bc,cd->ad", "abc->ca", "iij->j"),
        *("a,ab,abc->abc", "ji,i->j", "b i j , b j -> b i", "ij,jk", "...,...->...", "i...->...", "ab,cd->abcd"),
    )
    sizes["k"] = draw.integer(1, 4)
    dtype = draw.dtype(0, ("float32", "float32", "float16", "int32", "int64", "float64"))
    lead = draw.shape(0, 2, most=3)
    inputs = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        before, dots, after = term.partition("...")
        shape = [*(sizes[at] for at in before), *(lead if dots else ()), *(sizes[at] for at in after)]
        inputs.append(draw.tensor(dtype, shape))
    return draw.case(*inputs, equation=equation, length=16, scale=64)


@generator("Det")
def det(draw: Draw) -> NodeCase:
    size = draw.integer(1, 4)
    return draw.case(draw.tensor(draw.dtype(), (*draw.shape(0, 2), size, size)), length=24, scale=200)


@generator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(draw: Draw) -> NodeCase:
    n, classes = draw.integer(1, 4), draw.integer(1, 5)
    rest = draw.shape(0, 2, most=3, empty=0)
    dtype = draw.dtype(0, ("float32", "float16"))
    target = draw.array(draw.pick("int64", "int32"), (n, *rest), 0, classes - 1)
    ignored = draw.maybe(0, -1, 2)
    # A mean over ignored elements only is 0 / 0.
    if ignored == -1 and target.size > 1:
        target.reshape(-1)[0] = -1
    if ignored is not None and (target == ignored).all():
        ignored = None
        target = np.abs(target)
    weight = draw.array(dtype, (classes,), 0.5, 2) if draw.chance(0.5) else None
    outputs = draw.integer(1, 2) if draw.op_type == "SoftmaxCrossEntropyLoss" else 1
    x = draw.tensor(dtype, (n, classes, *rest))
    reduction = draw.maybe("mean", "sum", "none")
    return draw.case(
        x, target, weight, ignore_index=ignored, reduction=reduction, outputs=outputs, length=x.size, scale=16
    )
