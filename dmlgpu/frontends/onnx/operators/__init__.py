"""ONNX operators by topic, each translated by a function that its module registers."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's contributed operators."""

DMLGPU = "dmlgpu"
"""The domain of operators that only networks of dmlgpu have."""

ML = "ai.onnx.ml"
"""ONNX's domain of classical machine learning."""

ACTIVATIONS = "activations"
"""Attribute of MatMulNBits with the type of the rows."""

COUNTS_PAST = "counts_past"
"""Attribute of GroupQueryAttention that is 1 if seqlens_k has the numbers of past keys, without the new ones."""
