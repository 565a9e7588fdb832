"""Conversion of raw cubes into chunked, catalogued samples.

>>> from voxload.convert import ConvertOptions, convert
>>> report = convert("raw/", "universes/", options=ConvertOptions(max_memory=2**29))  # doctest: +SKIP
"""

from voxload.convert.options import ConvertOptions as ConvertOptions
from voxload.convert.options import ConvertReport as ConvertReport
from voxload.convert.options import Progress as Progress
from voxload.convert.options import StoredFormat as StoredFormat
from voxload.convert.run import convert as convert
from voxload.convert.sources.hints import Headerless as Headerless
from voxload.convert.sources.hints import MemoryOrder as MemoryOrder
