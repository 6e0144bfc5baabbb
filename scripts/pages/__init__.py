"""Pages of the documentation site that are generated when it is built: one per operator and one per verb."""
