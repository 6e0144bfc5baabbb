"""Rows that are quantized and dequantized again, as ONNX Runtime rounds the activations of products with quantized
weights: stored as integers for kernels that multiply integers. Also marks the products whose weights may be
repacked."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.graph.passes.inlining import DEQUANTIZE, inlined
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, element_wise_leaves, memory_of
from dmlgpu.compiler.plan import Apply, Contract, Map, PlanBinding, PlanTensor, Role
from dmlgpu.compiler.rewrites.sources import leaves

QUANTIZE = "quantization/quantize"


def mark_owned(rewriting: Rewriting) -> None:
    """Mark products that dequantize OWNED_BY_DML inputs: the initialization may repack these."""

    def is_owned(binding: PlanBinding) -> bool:
        if not isinstance(binding.index, int) or binding.role is not Role.INPUT:
            return binding.role in (Role.CONSTANT, Role.PERSISTENT)
        desc = rewriting.network.inputs[binding.index]
        return desc is not None and desc.owned_by_dml

    for index, step in rewriting.indexed():
        if isinstance(step, Contract) and all(is_owned(tensor.binding) for tensor in leaves(step.product.b)):
            rewriting.replace(index, replace(step, product=replace(step.product, integers_owned=True)))


OWNED = StepPass("owned", mark_owned, optional=False)


def store_integers(rewriting: Rewriting) -> None:
    """Store rows that a map quantizes and dequantizes as INT8, if all products that read them multiply integers."""
    multiplies = rewriting.capabilities.multiplies_integers
    for index, step in rewriting.indexed():
        parts = _parts(step) if isinstance(step, Map) else None
        if parts is None:
            continue
        quantize, dequantize = parts
        memory = memory_of(dequantize.output)
        readers = {reader: rewriting.step(reader) for reader in rewriting.readers(memory)}
        products = {reader: _of_integers(product, dequantize) for reader, product in readers.items()}
        stored = {
            reader: product for reader, product in products.items() if product is not None and multiplies(product)
        }
        if readers.keys() == stored.keys() and all(map(rewriting.fits, stored.values())):
            rewriting.replace(index, quantize)
            for reader, product in stored.items():
                rewriting.replace(reader, product)
            rewriting.note(step.label, f"stored as INT8 for {', '.join(each.label for each in readers.values())}")


INTEGERS = StepPass("integers", store_integers)


def _parts(step: Map) -> tuple[Map, Map] | None:
    """Return the quantization and the dequantization of a map that does both; None for other maps."""
    body = step.body
    if not isinstance(body, Apply) or body.file != DEQUANTIZE or step.output.binding.role is not Role.TEMPORARY:
        return None
    codes = dict(body.inputs)["input"]
    if not isinstance(codes, Apply) or codes.file != QUANTIZE or codes.data_type is not DataType.INT8:
        return None
    integers = PlanTensor.temporary(step.label, DataType.INT8, codes.sizes)
    inputs = tuple((name, integers if name == "input" else source) for name, source in body.inputs)
    label = step.label.replace("dequantize", "quantize")
    return replace(step, label=label, body=codes, output=integers), replace(step, body=replace(body, inputs=inputs))


def _of_integers(step: object, dequantize: Map) -> Contract | None:
    """Return a product with the dequantization of its rows; None for other steps."""
    if not isinstance(step, Contract):
        return None
    product, memory = step.product, memory_of(dequantize.output)
    leaf = next((leaf for leaf in element_wise_leaves(product.a) if memory_of(leaf) == memory), None)
    rows = None if leaf is None else inlined(product.a, leaf, dequantize)
    return None if rows is None else replace(step, product=replace(product, a=rows))
