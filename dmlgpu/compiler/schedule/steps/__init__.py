"""All kinds of steps of a schedule: each is one kernel, with every choice that determines its source."""
