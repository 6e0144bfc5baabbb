"""Other programs that compute the same, each in a process of its own, to be measured beside dmlgpu.

``worker``, ``calls`` and the modules of ``programs`` run in the peers' own environments, where dmlgpu need
not be installed: they import NumPy, the peer and each other, nothing else. ``programs`` is no package, so that nothing
that walks over dmlgpu's modules imports them.
"""
