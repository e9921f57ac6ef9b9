"""A job of many ranks: what they agree on, and the levels and models that they share."""
