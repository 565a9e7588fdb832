"""What moves halo slabs between ranks."""
