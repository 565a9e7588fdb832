"""The networks of the field, as ordinary torch modules."""
