"""Jobs of many ranks: agreement between the ranks, and the levels and models that they share."""
