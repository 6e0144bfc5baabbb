"""Exceptions, argument coercion, caches and files: what every room needs and none of them owns."""
