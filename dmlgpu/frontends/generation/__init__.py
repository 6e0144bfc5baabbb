"""Language models: from a folder or a file to text, with caches and sampling on the device.

    generator = Generator.load("phi-3-mini")
    for piece in generator.generate("Once upon a time"):
        print(piece, end="")

Needs the packages ``onnx`` and ``tokenizers``: ``pip install dmlgpu[llm]``.
"""

from __future__ import annotations
