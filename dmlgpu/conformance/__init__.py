"""Does this adapter compute the right thing? Cases, layouts, tolerances, and the runner that puts them together."""
