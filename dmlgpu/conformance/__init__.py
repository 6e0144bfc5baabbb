"""Conformance tests of adapters.

``cases`` defines the tests, ``suites`` lists them by name, ``running`` runs them on a device, ``drivers`` finds and
compares the adapters of the machine, ``cluster`` uses those of other machines, ``report`` presents results.
``accuracy`` measures the math library and whole operators, ``mutation`` tests the suites themselves.
"""
