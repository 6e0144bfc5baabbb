"""Schedules that many operators share, and what picks among them: pure functions of plans and targets."""
