"""Does the suite see faults? Mutants of the shaders, made by rule, and which of them the cases catch."""
