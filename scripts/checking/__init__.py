"""Implementation of ``scripts/check``: parts of operators, dependents of a file, and the checks."""
