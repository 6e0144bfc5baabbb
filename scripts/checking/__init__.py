"""What ``scripts/check`` does: the parts of operators, what a file concerns, the checks themselves."""
