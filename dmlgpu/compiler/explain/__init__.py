"""Explanations of compiled operators and graphs as data: plan, schedule with reasons, kernels, fusion, memory."""

from dmlgpu.compiler.explain.explanation import ExplainedKernel, Explanation, check, explain_graph, explain_operator
from dmlgpu.compiler.explain.facts import as_json

__all__ = ["ExplainedKernel", "Explanation", "as_json", "check", "explain_graph", "explain_operator"]
