"""The user's own forward, run on blocks: tensors that know of which whole they are a part.

Forward is recorded on shapes (recording), every call is given a rule (planning, `rules`), and passes carry the plan
out (passes, running), in compiled graphs too (compiled). `onblocks` is the network that results. Read sharding, then
block.
"""
