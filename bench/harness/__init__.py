"""What the scripts share: command lines and tables, goals beside figures, and processes that answer."""
