"""Retries: tells a waiting user that a storage is asked again, and why."""

from __future__ import annotations

import logging
import re
import sys

from voxload.text import shown

_REPR = re.compile(r"""^\w+\((["'])(.*)\1\)$""")
"""An error as stamina hands it on: its class and message as Python writes them."""
_LONGEST = 100
"""Characters of a cause: one line on most terminals; the error at the end has it whole."""


class _RetryLines(logging.Handler):
    """Prints a line on standard error for each request that is sent again.

    stamina logs retries with their facts as attributes of the record, which no default format shows.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of stamina's."""
        facts = vars(record)
        cause = _REPR.sub(r"\2", " ".join(str(facts.get("stamina.caused_by", "no answer")).split()))
        number, wait = facts.get("stamina.retry_num", "?"), facts.get("stamina.wait_for", "?")
        print(f"voxload: attempt {number} failed, next in {wait} s: {shown(cause[:_LONGEST])}", file=sys.stderr)


def show_retries() -> None:
    """Let retries be seen from now on; a second call changes nothing."""
    logger = logging.getLogger("stamina")
    if not any(isinstance(handler, _RetryLines) for handler in logger.handlers):
        logger.addHandler(_RetryLines())
        logger.propagate = False
