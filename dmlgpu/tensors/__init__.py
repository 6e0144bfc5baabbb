"""Arrays on devices: ``Tensor``, the memory that they share, and eager calls of operators."""
