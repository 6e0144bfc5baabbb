"""Tracing of functions of tensors to graphs: ``compile`` traces them and caches the traces."""
