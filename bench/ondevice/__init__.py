"""What bench/device.py is made of."""
