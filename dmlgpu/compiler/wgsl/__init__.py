"""Rendering of plans as WGSL: templates, accessors, packing, walks, linker, literals."""

from dmlgpu.compiler.wgsl.render import render

__all__ = ["render"]
