"""Implementation of scripts/real_models.py: the list, downloads, inputs, runs and the page."""
