"""Device: batches copied beside the consumer's work, into buffers that are used again.

In come batches in staging slots; out come the same on the device. Others import batches and copiers. Read batches
first.
"""
