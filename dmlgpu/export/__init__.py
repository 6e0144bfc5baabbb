"""Export models and test suites as static web pages that run with WebGPU, without Python.

    dmlgpu.export.write(graph, "folder", weights={"filter": array})
    dmlgpu.export.write_onnx("model.onnx", "folder", shapes={"x": (1, 3, 224, 224)})

Input shapes are fixed. ``pages/`` has the shared files of folders: the JavaScript runtime, its types, and the pages.
"""

from dmlgpu.export.folder import Exported
from dmlgpu.export.writing import write, write_dxdispatch, write_onnx

__all__ = ["Exported", "write", "write_dxdispatch", "write_onnx"]
