"""Accuracy of the functions of shaders/lib: distances from the true values.

Inputs of a function of one number are all float16 values, some float32 values of every exponent and sign, and every
number around the function's critical points: thresholds, overflow, multiples of pi/2. The true value is NumPy's or the
C library's in float64. The error is |computed - true| in units of the last place of the true value rounded to float32;
a wrong special value counts as infinite, a zero for a subnormal as none on adapters that flush.
"""
