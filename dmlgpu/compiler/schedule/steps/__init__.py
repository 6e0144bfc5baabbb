"""The steps of a schedule, all kinds of them: each is one kernel, with every choice that its text follows."""
