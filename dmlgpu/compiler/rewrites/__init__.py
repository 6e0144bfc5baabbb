"""Building blocks and rewrites of plans that operators, graphs and schedules share."""
