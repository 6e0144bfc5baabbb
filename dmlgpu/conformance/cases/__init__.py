"""Test cases of operators: layouts, contents, indices, tolerances.

``families`` has the cases of operators, a module per family; ``registry`` finds a case by name.
"""
