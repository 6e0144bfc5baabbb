"""Finding out which choices are fastest on the adapter at hand, and keeping them."""
