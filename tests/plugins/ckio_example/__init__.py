"""A backend, a codec, a planner and a model, which ckio finds by name where this is installed."""
