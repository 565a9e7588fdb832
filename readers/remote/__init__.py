"""Objects behind URLs: requests in parallel, bounded, counted, and repeated where that helps."""

from voxload.readers.remote.store import RemoteStore as RemoteStore
from voxload.readers.remote.traffic import Traffic as Traffic
