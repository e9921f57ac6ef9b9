"""The simulator: what a schedule will cost, before it costs anything."""
