"""Does this adapter compute the right thing?

``cases`` say what is tested, ``suites`` list them by name, ``running`` runs them on a device, ``drivers`` finds the
machine's adapters and compares them, ``cluster`` uses those of other machines, ``report`` shows what came of it.
``accuracy`` measures the math library and whole operators, ``mutation`` tests the suites.
"""
