"""Raw formats that can be converted.

In comes a file, out come its raw cubes: each described without a voxel read, and read box by box. Read `protocol`
first, then `registry`, the one list of formats (a new one is a class in the room of its field and a line there).
`probe` is a file as formats look at it, `hints` what the caller says of it; `affine`, `axes` and `names` are what
formats share; `stacked` makes one source of several; `documents` is what lies beside headerless cubes. Rooms: `binary`
(bytes), `arrays` (containers of any field), `records`, `cosmology`, `medicine`, `simulation`.
"""

from voxload.convert.sources.hints import Headerless as Headerless
from voxload.convert.sources.hints import Hints as Hints
from voxload.convert.sources.hints import MemoryOrder as MemoryOrder
from voxload.convert.sources.protocol import RawCube as RawCube
from voxload.convert.sources.protocol import RawFormat as RawFormat
from voxload.convert.sources.protocol import Source as Source
from voxload.convert.sources.registry import FORMATS as FORMATS
from voxload.convert.sources.registry import open_sources as open_sources
