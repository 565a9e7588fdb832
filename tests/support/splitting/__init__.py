"""Random layers over random cuts, and their comparison with torch in one process."""
