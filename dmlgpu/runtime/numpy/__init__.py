"""The executor on host memory: the NumPy reference as the adapter ``numpy``, which needs no driver."""
