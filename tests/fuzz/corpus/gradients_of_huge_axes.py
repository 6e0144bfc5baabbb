"""Gradients of resampling over axes of 2^31 elements: limits first, tables of whom reads whom after."""

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from tests.fuzz.devices import open_device


def replay(monitor):
    device = open_device(monitor.adapter)
    for stem in ("resample_grad", "resample_grad1"):
        cases = OPERATOR_CASES[stem]
        for name in cases.names("quick"):
            desc = cases.case(name).desc
            for axis, _ in enumerate(desc.inputs[0].tensor.sizes):
                changes = {}
                for slot in (*desc.inputs, *desc.outputs):
                    sizes = list(slot.tensor.sizes)
                    sizes[axis] = 2**31 - 1
                    changes[slot.field] = TensorDesc(slot.tensor.data_type, sizes)
                monitor.call(device.create_operator, desc.replace(**changes))
