"""The simulator: predict the times of a schedule without running it."""
