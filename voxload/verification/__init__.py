"""Verification: stored chunks read again and judged.

>>> from voxload.verification import verify
>>> verify("universes/").damaged  # doctest: +SKIP
0
"""

from voxload.verification.report import Check as Check
from voxload.verification.report import Fault as Fault
from voxload.verification.report import VerifyProgress as VerifyProgress
from voxload.verification.report import VerifyReport as VerifyReport
from voxload.verification.run import verify as verify
