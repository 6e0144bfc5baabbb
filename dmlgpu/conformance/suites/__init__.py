"""Test suites: cases that run by name, including those of no single operator (programs, graphs, sizes, functions)."""
