"""Conversion of raw cubes into chunked, catalogued samples.

>>> from voxload.convert import ConvertOptions, convert
>>> report = convert("raw/", "universes/", options=ConvertOptions(max_memory=2**30))  # doctest: +SKIP
"""

from voxload.convert.compression import Compression as Compression
from voxload.convert.dryrun import PlannedConversion as PlannedConversion
from voxload.convert.dryrun import PlannedVolume as PlannedVolume
from voxload.convert.dryrun import plan_conversion as plan_conversion
from voxload.convert.gridding import Assignment as Assignment
from voxload.convert.gridding import Gridding as Gridding
from voxload.convert.gridding import GridPoints as GridPoints
from voxload.convert.gridding import GridUnit as GridUnit
from voxload.convert.gridding import ParticleChoice as ParticleChoice
from voxload.convert.layout import Readers as Readers
from voxload.convert.options import ConvertOptions as ConvertOptions
from voxload.convert.options import ConvertReport as ConvertReport
from voxload.convert.options import Packing as Packing
from voxload.convert.options import Progress as Progress
from voxload.convert.options import StoredFormat as StoredFormat
from voxload.convert.run import convert as convert
from voxload.convert.share import Share as Share
from voxload.convert.sources.hints import Headerless as Headerless
from voxload.convert.sources.hints import Hints as Hints
from voxload.convert.sources.hints import MemoryOrder as MemoryOrder
