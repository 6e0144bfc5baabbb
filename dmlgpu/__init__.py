"""DirectML's operators and dispatch model on every GPU that wgpu reaches."""

__version__ = "0.1.0"
