"""Static folders that run in any page with WebGPU, without Python: graphs for fixed sizes, and suites of cases.

    dmlgpu.export.write(graph, "folder", weights={"filter": array})
    dmlgpu.export.write_onnx("model.onnx", "folder", shapes={"x": (1, 3, 224, 224)})

``pages/`` holds what the folders have in common: the runtime in JavaScript, its types, and the pages.
"""

from dmlgpu.export.folder import Exported
from dmlgpu.export.writing import write, write_dxdispatch, write_onnx

__all__ = ["Exported", "write", "write_dxdispatch", "write_onnx"]
