"""The parts of bench/loader.py: what is loaded and by whom, the process of one run, what runs come to, and the plot."""
