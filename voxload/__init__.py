"""Data loading and I/O for 3-D samples too large for one GPU."""
