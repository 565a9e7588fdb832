"""Calibration: what a machine takes for operations, messages and sums, measured as the engine runs them.

Networks of layers at sizes that cover what people train run on as many ranks as the machine is to have at once; every
operation is timed where it runs. A machine's file comes out. Read run first.
"""
