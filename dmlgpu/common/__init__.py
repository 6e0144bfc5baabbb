"""Exceptions, argument coercion, caches and files, which all other packages use."""
