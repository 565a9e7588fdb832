"""Clairvoyant prefetching: from the order of samples to who keeps which block, and when it is fetched.

In come a sampler, the sizes of blocks and the room of each rank; out come filled staging slots, or a prediction of
how long they would take. Data pass order, policies, planning, execution; simulation drives the same planners in
virtual time. Others import line, placement, events, cost, meter and simulate, the packages policies and machines,
order.source, order.dealing, planning.planner and execution.executor. Read placement first.
"""
