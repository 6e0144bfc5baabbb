"""Peers: other programs that compute the same, each in its own process, benchmarked together with dmlgpu.

``worker`` and the modules of ``programs`` run in the environments of peers, where dmlgpu need not be installed. They
import NumPy, the peer, each other and ``dmlgpu.common.processes``. ``programs`` is not a package, so that nothing that
walks dmlgpu's modules imports them.
"""
