"""Claim: no damage crashes a reader or a conversion, hangs it or makes it take memory without bound; none is silent.

``readers`` damages whole tiny files of every format - cuts, flipped bits, blocks zeroed, repeated, removed and copied
over others, numbers that overflow - and reads each in a process that is watched. ``convert`` damages tiny sources
likewise and converts each; what is stored then is read and compared. Damage that a checksum of the format covers must
be an error. Prints how often each outcome came, and ends with status 1 when one of them is a failure. Input I of seed
S is the same in every run: --only I takes it again.

    python -m tests.support.fuzzing readers|convert [--count 20000] [--seed 0] [--jobs 2] [--keep FOLDER] [--json]
"""

from __future__ import annotations

import sys

from tests.support.fuzzing.command import main

if __name__ == "__main__":
    sys.exit(main())
