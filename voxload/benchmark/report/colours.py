"""Colours of plots and page, for light and dark: plots are drawn in the light ones, which the page makes variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour in both schemes."""

    name: str
    """Of its CSS variable, without the dashes."""
    light: str
    dark: str

    @property
    def variable(self) -> str:
        """How CSS refers to it."""
        return f"var(--{self.name})"


INK: Final = Colour("ink", "#1b1f24", "#e6e8eb")
MUTED: Final = Colour("muted", "#5a5f68", "#a3a9b3")
LINE: Final = Colour("line", "#d4d8de", "#3a4049")
PAPER: Final = Colour("paper", "#fdfdfe", "#15181c")
PANEL: Final = Colour("panel", "#f2f4f7", "#1e2228")
WARNING: Final = Colour("warning", "#8a4b00", "#ffc266")
COMPUTE: Final = Colour("compute", "#1f5fa8", "#6ea8e6")
STALL: Final = Colour("stall", "#d9701a", "#f0954a")
PEERS: Final = Colour("peers", "#8a8f98", "#7c848f")
SERIES: Final = (
    Colour("series-1", "#1f5fa9", "#6ea8e7"),
    Colour("series-2", "#c25a0c", "#f0954b"),
    Colour("series-3", "#2a7f4f", "#5cc58c"),
    Colour("series-4", "#7b3fa0", "#c08be0"),
    Colour("series-5", "#b3263a", "#f07a8a"),
    Colour("series-6", "#0f7c86", "#4fc3cd"),
)
SOURCES: Final = {
    "storage": Colour("storage", "#c9600f", "#f0954c"),
    "disk": Colour("disk", "#7b3fa1", "#c08be1"),
    "peer": Colour("peer", "#2a7f50", "#5cc58d"),
    "memory": Colour("memory", "#1f5faa", "#6ea8e8"),
}
ALL: Final = (INK, MUTED, LINE, PAPER, PANEL, WARNING, COMPUTE, STALL, PEERS, *SERIES, *SOURCES.values())
"""Every one has a light colour of its own, so that a drawn plot tells them apart."""


def as_variables(drawn: str) -> str:
    """Return SVG in which the light colours are variables, so that it follows the page's scheme."""
    for colour in ALL:
        drawn = drawn.replace(colour.light, colour.variable)
    return drawn


def declarations(*, dark: bool) -> str:
    """Return the variables of one scheme as CSS."""
    return " ".join(f"--{colour.name}: {colour.dark if dark else colour.light};" for colour in ALL)
