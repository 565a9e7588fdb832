"""Reading: blocks from the storage into staging slots, by threads, ahead of their use.

In come foreseen or drawn indices; out come batches whose tensors look into slots. Others import readahead and
staging. Read readahead first.
"""
