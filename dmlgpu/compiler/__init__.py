"""From descriptions to programs: plan, schedule, render. Pure: no GPU is touched."""
