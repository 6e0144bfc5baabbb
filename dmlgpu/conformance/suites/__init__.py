"""Lists of cases that can be run by name, and the cases that are no single operator's: programs, sizes, functions."""
