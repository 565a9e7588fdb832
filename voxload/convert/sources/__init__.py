"""Raw formats that can be converted, one a file."""

from voxload.convert.sources.hints import Headerless as Headerless
from voxload.convert.sources.hints import Hints as Hints
from voxload.convert.sources.hints import MemoryOrder as MemoryOrder
from voxload.convert.sources.protocol import RawCube as RawCube
from voxload.convert.sources.protocol import RawFormat as RawFormat
from voxload.convert.sources.protocol import Source as Source
from voxload.convert.sources.registry import FORMATS as FORMATS
from voxload.convert.sources.registry import open_sources as open_sources
