"""What is tested: each operator's cases, and what these are made of: layouts, contents, indices, tolerances.

``families`` has the operators' cases, a module per family; ``registry`` finds a case by its name.
"""
