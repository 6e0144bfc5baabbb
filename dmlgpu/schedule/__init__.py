"""Schedules: how a plan is computed, every choice as data."""
