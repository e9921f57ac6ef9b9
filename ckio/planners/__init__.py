"""Planners: pure functions that make a schedule for a chain on a platform."""
