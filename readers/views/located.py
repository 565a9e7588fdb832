"""located: the part of a stored volume that a location names."""

from __future__ import annotations

from voxload.readers.protocol import Location, Reader
from voxload.readers.views.lead import LeadReader
from voxload.readers.views.window import WindowReader


def located(stored: Reader, location: Location, *, owns: bool) -> Reader:
    """Return a reader of what `location` names, of which `stored` reads the whole; see `Location.stored`.

    Where it is the whole, `stored` is returned. `owns` says whether closing it closes `stored`, which others may share.

    Raises DataError when the part does not lie in what is stored, UsageError where axes that it needs are not there.
    """
    reader = stored
    if location.lead is not None:
        reader = LeadReader(reader, location, lead=location.lead, owns=owns)
    if location.window is not None:
        reader = WindowReader(reader, location, window=location.window, owns=owns)
    return reader
