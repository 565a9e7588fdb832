"""Raw formats that can be converted, one a file."""
