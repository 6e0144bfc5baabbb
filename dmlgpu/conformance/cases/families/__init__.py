"""The cases of every operator, a module per family; each registers the operators' case objects."""
