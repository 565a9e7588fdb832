"""Raw formats that can be converted, one a file."""

from voxload.convert.sources.detect import open_source as open_source
from voxload.convert.sources.protocol import RawCube as RawCube
from voxload.convert.sources.protocol import Source as Source
