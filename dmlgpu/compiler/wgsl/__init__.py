"""WGSL of scheduled steps: templates, accessors, literals, and the linker, which writes what a body declares."""
