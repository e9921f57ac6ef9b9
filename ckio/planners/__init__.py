"""Planners: pure functions from a chain and a platform to a schedule."""
