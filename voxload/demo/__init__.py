"""Real input for the demo: universes whose power spectrum follows from their parameters."""
