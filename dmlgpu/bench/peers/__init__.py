"""Other programs that compute the same, each in a process of its own, measured beside dmlgpu.

``worker`` and the modules of ``programs`` run in the peers' own environments, where dmlgpu need not be installed: they
import NumPy, the peer, each other and ``dmlgpu.common.processes``. ``programs`` is no package, so that nothing that
walks over dmlgpu's modules imports them.
"""
