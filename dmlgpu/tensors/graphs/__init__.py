"""Building graphs from expressions: sizes and types are inferred, in the manner of DirectMLX."""
