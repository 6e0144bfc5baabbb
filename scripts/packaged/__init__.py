"""What scripts/real_models.py is made of: the list, packages, inputs, runs and the page."""
