"""Example models: small models of real physics, used by the demo and the tests."""
