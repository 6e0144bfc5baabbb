"""Building graphs of operators: types and shapes are inferred, in the manner of DirectMLX."""
