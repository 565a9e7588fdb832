"""Plan of exchanges, layers and the front of the spatially-parallel engine."""
