"""What runs in a process of its own; each module is called with a source and a result."""
