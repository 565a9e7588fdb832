"""Objects behind URLs: requests in parallel, bounded, counted, and repeated where that helps.

A URL comes in, bytes go out: by name (store), as ranges of one object (ranges), as a file of Python's (file), or many
at once ahead of their use (coalesce, flight). Read objects first, the contract, then store.
"""

from voxload.readers.remote.objects import Traffic as Traffic
from voxload.readers.remote.store import RemoteStore as RemoteStore
