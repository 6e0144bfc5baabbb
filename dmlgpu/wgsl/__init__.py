"""Turning a plan into WGSL text: templates, accessors, packing, walk, linker, literals."""

from dmlgpu.wgsl.program import program
from dmlgpu.wgsl.render import render

__all__ = ["program", "render"]
