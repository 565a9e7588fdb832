"""Numbers of an axis: each is complete as it stands, without a factor or an offset at the end of the axis; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def plain(ticks: Sequence[float]) -> list[str]:
    """Return numbers of an axis as text, each complete: no factor or offset stands elsewhere.

    >>> plain([0.0, 500000.0, 1000000.0]), plain([300000.1, 300000.2]), plain([0.0, 2e-9, 4e-9])
    (['0', '500,000', '1,000,000'], ['300,000.1', '300,000.2'], ['0', '2e-09', '4e-09'])
    """
    largest = max((abs(tick) for tick in ticks), default=0.0)
    gaps = [abs(second - first) for first, second in pairwise(ticks) if second != first]
    step = min(gaps, default=largest)
    if largest and step and (largest >= 1e9 or largest < 1e-3):
        digits = max(0, math.ceil(math.log10(largest / step)) if step else 0)
        return [f"{tick:.{digits + 1}g}" if tick else "0" for tick in ticks]
    places = max(0, -math.floor(math.log10(step)) + (_needs_more(step))) if step else 0
    texts = [f"{tick:,.{places}f}" for tick in ticks]
    return [text.rstrip("0").rstrip(".") if "." in text else text for text in texts] if not gaps else texts


def _needs_more(step: float) -> int:
    """Return 1 where a step such as 0.25 takes a digit more than its size says."""
    lead = step / 10 ** math.floor(math.log10(step))
    return 0 if math.isclose(lead, round(lead), rel_tol=1e-6) else 1
