"""Demos: reduce a photograph to a palette, read text in an image, train a network."""
