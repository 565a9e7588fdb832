"""Description: what an object says of itself, which `Described` makes its repr and its HTML of.

Who describes itself reads no storage, waits for nobody and changes nothing: a debugger asks at any time, also of an
object whose `__init__` failed, and in the midst of an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from voxload.display.table import Listing, cut, facts_table, wrapped

_WIDTH = 100
"""Letters of a line of a plain repr, about."""
_PARTS = 16
"""Parts of a plain repr at most."""


@dataclass(frozen=True, slots=True)
class Description:
    """What an object says of itself."""

    name: str
    """Its class."""
    parts: tuple[str, ...]
    """What stands in the plain repr, a few words each."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """By name; those that are empty are left out."""
    listings: tuple[Listing, ...] = ()
    """Tables below the facts."""
    picture: str = ""
    """An SVG element, of `voxload.display.grid_picture`, whose texts are escaped."""
    note: str = ""
    """A sentence below all."""

    def text(self) -> str:
        """Return a line, or a few."""
        left = len(self.parts) - _PARTS
        more = [f"and {left} more"] if left > 0 else []
        return wrapped(self.name, [*(cut(part) for part in self.parts[:_PARTS]), *more], _WIDTH)

    def html(self) -> str:
        """Return an element for a notebook, without script, style sheet or anything to fetch."""
        beside = 'style="display:flex;flex-wrap:wrap;gap:0.5em 2em;align-items:flex-start"'
        facts = facts_table(self.facts) if any(self.facts.values()) else ""
        tables = "".join(listing.html() for listing in self.listings)
        note = f"<p>{escape(cut(self.note, 400))}</p>" if self.note else ""
        return (
            f'<div class="voxload"><p><b>{escape(cut(self.name))}</b></p>'
            f"<div {beside}><div>{facts}{tables}{note}</div><div>{self.picture}</div></div></div>"
        )


class Described:
    """An object that describes itself; its repr and its HTML never raise."""

    __slots__ = ()

    def _described(self) -> Description:
        """Return what the object says of itself; of who derives from this."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return _description(self).text()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return _description(self).html()


def _description(described: Described) -> Description:
    """Return what an object says of itself or, where it cannot, what kept it from that."""
    try:
        return described._described()  # noqa: SLF001 - of the same contract
    except Exception as error:  # noqa: BLE001 - whatever it is, a debugger that prints the object must not meet it
        said = f"not to be described: {type(error).__name__}"
        return Description(type(described).__name__, (said,), {"": said})
