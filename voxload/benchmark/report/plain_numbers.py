"""PlainNumbers: how the numbers of an axis are written. matplotlib is imported here: load it where a figure is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import Formatter

from voxload.pictures.numbers import plain


class PlainNumbers(Formatter):
    """Writes the numbers of an axis in full: no factor such as 1e6 stands at its end."""

    def __call__(self, x: float, pos: int | None = None) -> str:  # noqa: ARG002 - matplotlib's signature
        """Return one number."""
        return plain([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Return all numbers of an axis; on a logarithmic one steps say nothing."""
        is_logarithmic = isinstance(self.axis, Axis) and self.axis.get_scale() == "log"
        return [f"{value:,.10g}" for value in values] if is_logarithmic else plain([float(value) for value in values])
