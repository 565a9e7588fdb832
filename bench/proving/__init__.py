"""What bench/gpu.py is made of: parts that prove claims, each in a process of its own."""
