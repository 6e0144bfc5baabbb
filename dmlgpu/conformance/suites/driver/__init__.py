"""The suite ``driver``: plain WGSL kernels that test the driver itself, by the rules of WGSL."""
