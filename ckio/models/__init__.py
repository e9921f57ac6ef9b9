"""Example models: real, small, and used by the demo and the tests."""
