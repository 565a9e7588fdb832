"""Picture: one plot with its words and colours, as SVG inside a page or as a PNG file.

matplotlib's object interface only, as in `voxload.files.pictures`: nothing here touches its global state.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from voxload.files.atomic import replacing
from voxload.files.pictures import drawing
from voxload.pictures.numbers import plain
from voxload.text import drawn

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter


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


WIDTH = 4.0
"""Inches, 288 points: a phone shows them a little larger than they are drawn, a desktop half as large again."""
SMALL = 9
"""Points of the text of ticks and legends."""
TICKS = 5
"""Most steps of an axis whose numbers may have many digits."""
_LETTERS = 44
"""Letters of a line of a legend."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_DIGITS = re.compile(r"(\.\d\d)\d+(?=[ \n\"])")
"""Decimals beyond hundredths of a point, which nobody sees; scales end in a bracket and keep theirs."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_NAMESPACE = re.compile(r' xmlns(?::\w+)?="[^"]*"')
_NAME = re.compile(r'(?<= id=")[^"]+|(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
_SIZE = re.compile(r' (?:width|height)="[^"]*"')


@dataclass(frozen=True, slots=True)
class Picture:
    """One plot."""

    key: str
    """Its name in the page and as a file."""
    title: str
    caption: str
    """What is drawn, in words."""
    description: str
    """What is to be seen, with figures, for who does not see it."""
    figure: Figure

    def svg(self) -> str:
        """Return the plot as an element of a page: without a header, and no name that another plot may have."""
        stream = io.StringIO()
        drawing("matplotlib.backends.backend_svg").FigureCanvasSVG(self.figure)
        self.figure.savefig(stream, format="svg", facecolor="none", metadata=_NO_METADATA)
        drawn = stream.getvalue()
        for what in (_HEAD, _COMMENT, _METADATA, _STYLE, _NAMESPACE):
            drawn = what.sub("", drawn)
        opening, rest = drawn.split(">", 1)
        drawn = f"{_SIZE.sub('', opening)}>{rest}".replace("xlink:href", "href")
        return as_variables(_renamed(_DIGITS.sub(r"\1", drawn), self.key))

    def write_png(self, folder: Path) -> Path:
        """Write the plot with its title as ``KEY.png``; the file appears whole or not at all."""
        path = folder / f"{self.key}.png"
        drawing("matplotlib.backends.backend_agg").FigureCanvasAgg(self.figure)
        heading = self.figure.suptitle(drawn(self.title), fontsize=10.5, color=INK.light)
        heading.set(visible=True, in_layout=True)
        with replacing(path) as temporary:
            self.figure.savefig(temporary, format="png", dpi=200, facecolor="white")
        heading.set(visible=False, in_layout=False)
        return path


def blank(height: float) -> Figure:
    """Return a figure of so many inches that lays out its panels by itself."""
    figure: Figure = drawing("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")
    return figure


def write_plainly(axis: Axis) -> None:
    """Write the numbers of an axis in full: no factor such as 1e6 stands at its end."""
    axis.set_major_formatter(_plain_numbers()())


@cache
def _plain_numbers() -> type[Formatter]:
    """Return a formatter of numbers in full; a class of matplotlib's, which is imported where something is drawn."""
    base: type[Formatter] = drawing("matplotlib.ticker").Formatter

    def one(_: Formatter, value: float, place: int | None = None) -> str:  # noqa: ARG001 - matplotlib's signature
        return plain([value])[0]

    def together(self: Formatter, values: Sequence[float]) -> list[str]:
        axis: Any = self.axis
        if axis.get_scale() == "log":  # steps between its numbers say nothing
            return [f"{value:,.10g}" for value in values]
        return plain([float(value) for value in values])

    return type("PlainNumbers", (base,), {"__call__": one, "format_ticks": together})


def tidy(panel: Axes, *, grid: str = "both") -> None:
    """Give a panel the house's lines, colours and numbers; `grid` says along which axis lines are drawn."""
    scalar = drawing("matplotlib.ticker").ScalarFormatter
    for axis in (panel.xaxis, panel.yaxis):
        if isinstance(axis.get_major_formatter(), scalar):
            write_plainly(axis)
    panel.set_facecolor("none")
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["bottom", "left"]].set_color(MUTED.light)
    panel.tick_params(which="both", colors=MUTED.light, labelcolor=INK.light, labelsize=SMALL)
    panel.grid(visible=True, axis=grid, color=LINE.light, linewidth=0.8)  # type: ignore[arg-type]
    panel.set_axisbelow(True)
    for text in (panel.title, panel.xaxis.label, panel.yaxis.label):
        text.set(color=INK.light, fontsize=9.5)


def note(panel: Axes, text: str, at: tuple[float, float]) -> None:
    """Write a few words right of a point of the panel."""
    style: dict[str, Any] = {"va": "center", "fontsize": SMALL - 0.5, "color": INK.light}
    panel.annotate(text, at, (5, 0), textcoords="offset points", **style)


def legend(figure: Figure, *panels: Axes, columns: int) -> None:
    """Put the panels' legend below all panels, each label once; nothing where there is none."""
    found = [pair for panel in panels for pair in zip(*panel.get_legend_handles_labels(), strict=True)]
    handles = list({label: handle for handle, label in found}.values())
    labels = list(dict.fromkeys(label for _, label in found))
    if not labels:
        return
    style: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": INK.light}
    spaces: dict[str, Any] = {"handlelength": 1.5, "handletextpad": 0.5, "columnspacing": 1.1}
    wrapped = [fill(str(label), _LETTERS) for label in labels]
    figure.legend(handles, wrapped, loc="outside lower center", ncols=columns, **style, **spaces)


def _renamed(drawn: str, key: str) -> str:
    """Return SVG whose names are counted and carry the plot's own: pages are the same each time, names unlike."""
    numbers: dict[str, int] = {}
    return _NAME.sub(lambda found: f"{key}-{numbers.setdefault(found[0], len(numbers))}", drawn)
