"""What bench/plan.py trains: networks that calibration has not seen, and the ways in which each is split."""
