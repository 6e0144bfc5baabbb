"""The steps of a plan, all kinds of them: what each computes, and nothing of how."""
