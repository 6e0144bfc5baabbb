"""Pages of the documentation site that are written when it is built: one per operator, one per verb."""
