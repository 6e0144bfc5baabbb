"""Gradients of functions of tensors: ``grad`` and ``value_and_grad``, and a rule for each operator that has one."""
