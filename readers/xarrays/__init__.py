"""Objects of xarray's as volumes: whatever xarray reads, computes or holds, box by box.

A name comes in that has its object with it (names), voxels go out that xarray made (reader). xarray is never imported
here: whoever has an object of it has imported it.
"""

from voxload.readers.xarrays.format import XarrayFormat as XarrayFormat
from voxload.readers.xarrays.names import XarrayName as XarrayName
from voxload.readers.xarrays.names import is_xarray as is_xarray
