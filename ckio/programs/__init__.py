"""Programs of unknown shape: interrupted after any tick, stored as plain data, and reversed."""
