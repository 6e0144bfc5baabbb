"""GGUF files: read, memory-mapped, and turned into the network that onnxruntime-genai would export.

    model = gguf.read("qwen2.5-0.5b-instruct-q4_k_m.gguf")
    for stored in gguf.stored_weights("qwen2.5-0.5b-instruct-q4_k_m.gguf"):
        print(stored)

A file comes in; a LanguageModel goes out: ``files`` reads headers, ``weights`` repacks blocks for MatMulNBits,
``architectures`` says what metadata mean, ``network`` writes the graph, ``tokenizer`` makes the tokenizer.
Needs the packages ``gguf``, ``onnx`` and ``tokenizers``: ``pip install dmlgpu[llm]``.
"""

from __future__ import annotations

from dmlgpu.frontends.generation.gguf.model import StoredWeights, read, stored_weights

__all__ = ["StoredWeights", "read", "stored_weights"]


def __dir__() -> list[str]:
    return __all__
