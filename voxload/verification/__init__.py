"""Verification: stored chunks read again and judged.

In comes a catalogue, out comes a report of what is damaged, and checksums for what is sound; stands on catalog,
convert (lock, manifest) and readers. Read run first.
"""

from voxload.verification.run import verify as verify
from voxload.verification.volume import Check as Check
from voxload.verification.volume import Fault as Fault
from voxload.verification.volume import VerifyProgress as VerifyProgress
from voxload.verification.volume import VerifyReport as VerifyReport
