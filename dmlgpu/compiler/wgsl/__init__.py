"""Turning a plan into WGSL text: templates, accessors, packing, walk, linker, literals."""

from dmlgpu.compiler.wgsl.render import render

__all__ = ["render"]
