"""Graphs of operators under construction; types and shapes are inferred, as in DirectMLX."""
