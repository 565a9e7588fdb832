"""What a loader costs the loop that it feeds: the batch that is ready, the work beside it, the first item.

`bench/loop.py` is the door. Read cases first.
"""
