"""The report: one page that asks for nothing else, with every plot, as a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.image import imread

from tests.benchmark.browser import CHROMIUM, Browser
from tests.benchmark.documents import Recipe, document
from voxload.benchmark.measure.document import Document
from voxload.benchmark.report.byte_plots import tier_picture
from voxload.benchmark.report.page import draw, page
from voxload.benchmark.report.result import LETTERS, read_results
from voxload.benchmark.report.speed_plots import throughput_picture
from voxload.benchmark.report.time_plots import shares
from voxload.benchmark.results.measures import number
from voxload.cli.bench.report import report
from voxload.errors import DataError, NotFoundError

SHARED = ("throughput", "latency", "tiers", "amplification")
SINGLE = (*SHARED, "timeline", "epochs")
NASTY = "<script>alert('x')</script> & \"quotes\""


def _write(folder: Path, documents: Sequence[Document]) -> list[Path]:
    paths = [folder / f"result-{place}.json" for place, _ in enumerate(documents, 1)]
    for path, found in zip(paths, documents, strict=True):
        found.write(path)
    return paths


def _page(paths: Sequence[Path]) -> str:
    results = read_results(paths)
    return page(results, draw(results))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a page of one result and one of three; return them by name."""
    folder = tmp_path_factory.mktemp("report")
    scaled = [Recipe(ranks=ranks, nodes=1, repetitions=2, seed=ranks, steps=6) for ranks in (2, 4)]
    silent = Recipe(ranks=2, nodes=1, repetitions=1, seed=9, loader="another", compute=0, tells=False, labels=(NASTY,))
    made = {"one": [document(Recipe())], "several": [document(recipe) for recipe in (*scaled, silent)]}
    found = {}
    for name, documents in made.items():
        inside = folder / name
        inside.mkdir()
        found[name] = inside / "page.html"
        found[name].write_text(_page(_write(inside, documents)), encoding="utf-8")
    return found


def _plots(html: str) -> list[str]:
    return re.findall(r'<figure id="([^"]+)">', html)


@pytest.mark.long
def test_every_plot_is_there(pages: dict[str, Path]) -> None:
    """Of one result six; of several what they share, and the two over time of each."""
    assert _plots(pages["one"].read_text()) == list(SINGLE)
    own = [f"{kind}-{place}" for place in (1, 2, 3) for kind in ("timeline", "epochs")]
    assert _plots(pages["several"].read_text()) == [*SHARED, *own]


def test_every_plot_has_title_caption_and_words(pages: dict[str, Path]) -> None:
    """Who does not see a plot is told its figures."""
    html = pages["one"].read_text()
    for part in re.findall(r"<figure .*?</figure>", html, re.DOTALL):
        title, said, caption = re.findall(r'<h3>(.+?)</h3>|aria-label="(.+?)"|<figcaption>(.+?)</figcaption>', part)
        assert title[0]
        assert said[1].startswith(title[0])
        assert re.search(r"\d", said[1])
        assert len(caption[2].split()) > 10
        assert part.count('role="img"') == 1


@pytest.mark.parametrize("name", ["one", "several"])
def test_the_page_names_nothing_outside_itself(pages: dict[str, Path], name: str) -> None:
    """No address, no file, no import, no script: it can be mailed and opened without a network."""
    html = pages[name].read_text()
    assert not re.findall(r"(?:https?:)?//[^\s/]", html)
    assert not re.findall(r"\b(?:src|srcset|data|action)=|@import|<(?:script|link|iframe|img|object|embed)\b", html)
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', html))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


@pytest.mark.parametrize("name", ["one", "several"])
def test_names_inside_the_page_are_unlike(pages: dict[str, Path], name: str) -> None:
    """Plots drawn one by one share a page; each clip path and glyph is found under a name that only it has."""
    html = pages[name].read_text()
    names = re.findall(r' id="([^"]+)"', html)
    assert len(set(names)) == len(names)
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html)) <= {
        pair for found in names for pair in ((found, ""), ("", found))
    }


@pytest.mark.long
def test_the_same_results_give_the_same_page(pages: dict[str, Path]) -> None:
    """Nothing of the clock or of chance is in it."""
    path = pages["one"]
    assert _page([path.parent / "result-1.json"]) == path.read_text()


def test_the_verdict_comes_first_and_origins_last(pages: dict[str, Path]) -> None:
    """The verdict, labels, figures, plots; then hosts, versions, command and seeds."""
    html = pages["one"].read_text()
    order = [
        '<section id="verdict"',
        "samples per second",
        "warm cache: 83 %",
        "samples/s",
        "<svg",
        "versions.numpy",
        "0, 1, 2, 3, 4",
        "voxload bench run",
    ]
    assert [html.index(text) for text in order] == sorted(html.index(text) for text in order)


def test_a_page_of_several_says_which_is_the_fastest(tmp_path: Path) -> None:
    """In its first sentence; names that are markup stay names."""
    recipes = [Recipe(ranks=2, nodes=1, seed=1), Recipe(ranks=2, nodes=1, seed=2, loader="<b>slow</b>", stall=0.05)]
    paths = _write(tmp_path, [document(recipe) for recipe in recipes])
    html = _page(paths)
    found = re.search(r"<h1>.*?</h1><section id=\"verdict\"[^>]*><p class=\"verdict\">(.*?)</p>", html, re.DOTALL)
    assert found is not None
    assert re.match(r"voxload \(result-1\) is the fastest, \S+ times as fast as the next, &lt;b&gt;slow", found[1])
    assert found[1].endswith("That is sure.")
    assert "<b>slow" not in html
    warm = document(replace(recipes[1], loader="warm"))
    cold = replace(warm.runs[0].cold, resident=1.0)
    paths = _write(
        tmp_path, [document(recipes[0]), replace(warm, runs=tuple(replace(run, cold=cold) for run in warm.runs))]
    )
    html = _page(paths)
    assert "Nothing is ranked: no two results compare like with like." in html
    assert "page cache warm instead of cold" in html


def test_a_line_of_throughput_joins_no_cold_runs_with_warm_ones(tmp_path: Path) -> None:
    """They are two lines, and bars say which they are."""
    made = [document(Recipe(ranks=ranks, nodes=1, epochs=1, steps=2, repetitions=2)) for ranks in (1, 2)]
    cold = replace(made[1].runs[0].cold, resident=1.0)
    warm = replace(made[1], runs=tuple(replace(run, cold=cold) for run in made[1].runs))
    (panel,) = throughput_picture(read_results(_write(tmp_path, [made[0], warm]))).figure.axes
    lines = {str(line.get_label()) for line in panel.lines if line.get_linestyle() == "-"}
    assert lines == {"voxload, page cache cold", "voxload, page cache warm"}
    (panel,) = throughput_picture(read_results(_write(tmp_path, [made[1], warm]))).figure.axes
    assert [text.get_text().split(", ")[-1] for text in panel.get_yticklabels()] == ["cold", "warm"]


@pytest.mark.parametrize("factor", [1e-6, 1e7, 1e12])
def test_numbers_of_axes_stand_in_full(tmp_path: Path, factor: float) -> None:
    """No axis has a factor or an offset at its end, however large or small its numbers are."""
    made = document(Recipe(ranks=2, nodes=1, epochs=2, steps=3, repetitions=2))
    grown = ("samples_per_second", "delivered_bytes", "asked_bytes", "read_bytes", "device_bytes")
    runs = tuple(
        replace(run, figures={**run.figures, **{name: run.figures[name] * factor for name in grown}})
        for run in made.runs
    )
    for picture in draw(read_results(_write(tmp_path, [replace(made, runs=runs)]))).every:
        picture.svg()
        for panel in picture.figure.axes:
            for axis in (panel.xaxis, panel.yaxis):
                assert axis.get_offset_text().get_text() == "", picture.key
                texts = [text.get_text() for text in axis.get_ticklabels() if text.get_text()]
                assert len(set(texts)) == len(texts), (picture.key, texts)


@pytest.mark.long
def test_texts_of_a_result_stay_texts(pages: dict[str, Path]) -> None:
    """A label with markup is shown as it is, with the result that it is about."""
    html = pages["several"].read_text()
    assert "<script" not in html
    assert "result-3: &lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;quotes&quot;" in html


@pytest.mark.long
def test_a_result_of_one_step_and_many_ranks_is_drawn(tmp_path: Path) -> None:
    """Nothing is left after the warm-up, and more ranks ran than stripes fit: both are said."""
    short = document(Recipe(ranks=20, nodes=1, epochs=1, steps=1, repetitions=1))
    html = _page(_write(tmp_path, [short]))
    assert "no stall after the warm-up" in html
    assert "16 of 20 ranks are drawn" in html
    assert "rank 0: computing" in html
    assert "rank 19: computing" in html
    assert "nan" not in html


def test_stripes_hold_all_the_time_that_was_measured() -> None:
    """Shares of all bins add up to the seconds of each kind, and never to more than the whole."""
    record = document(Recipe(ranks=1, nodes=1, repetitions=1)).runs[0].records[0]
    end = record.epochs[-1].steps.begin[-1] + record.epochs[-1].steps.durations[-1]
    edges = np.linspace(0, end, 78)
    found = shares(record, edges)
    for name, share in (("compute", found.computing), ("peers", found.peers), ("stall", found.stall)):
        seconds = sum(sum(getattr(epoch.steps, name)) for epoch in record.epochs)
        assert float((share * np.diff(edges)).sum()) == pytest.approx(seconds)
    assert float((found.computing + found.peers + found.stall).max()) <= 1 + 1e-9


@pytest.mark.long
def test_lines_of_throughput_join_what_differs_in_scale_alone(tmp_path: Path) -> None:
    """Two loaders on one, two and sixteen ranks are two lines over a logarithmic axis, with numbers far apart."""
    recipes = [
        Recipe(ranks=ranks, nodes=1, epochs=1, steps=2, repetitions=2, loader=loader)
        for loader in ("voxload", "another")
        for ranks in (16, 1, 2)
    ]
    picture = throughput_picture(read_results(_write(tmp_path, [document(recipe) for recipe in recipes])))
    (panel,) = picture.figure.axes
    lines = {
        str(line.get_label()): np.asarray(line.get_xdata()).tolist()
        for line in panel.lines
        if line.get_linestyle() != "None"
    }
    assert lines == {"voxload": [1, 2, 16], "another": [1, 2, 16], "in proportion": [1, 2, 16]}
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "2", "16"]
    assert "result-2: " in picture.description


def test_bytes_by_tier_compare_like_with_like(tmp_path: Path) -> None:
    """Loaders' own counts where all have some; else the kernel's of all of them, and own counts apart."""
    tells = document(Recipe(repetitions=1))
    (run,) = tells.runs
    figures = run.figures
    asks = replace(tells, runs=(replace(run, figures={**figures, "sources": {}}),))
    memory = f"{number(figures['sources']['memory'] / 1e9)} GB from node memory"
    asked = f"{number(figures['asked_bytes'] / 1e9)} GB from storage"
    alike = tier_picture(read_results(_write(tmp_path, [tells, asks])))
    assert len(alike.figure.axes) == 1
    first, second = alike.description.split("; ")
    assert memory in first
    assert second == f"result-2: {asked}"
    assert "As the loaders count them" in alike.caption

    mixed = tier_picture(read_results(_write(tmp_path, [tells, asks, document(Recipe(repetitions=1, tells=False))])))
    kernel, own = mixed.figure.axes
    assert (len(kernel.get_yticks()), len(own.get_yticks())) == (3, 2)
    assert not kernel.get_shared_x_axes().joined(kernel, own)
    said = mixed.description.split("; ")
    device = f"{number(figures['device_bytes'] / 1e9)} GB from devices"
    assert all("counted by the kernel" in line and device in line and "from page cache" in line for line in said[:3])
    assert said[3].startswith("result-1, counted by the loader itself: ")
    assert memory in said[3]
    assert said[4] == f"result-2, counted by the loader itself: {asked}"
    assert "result-3 count nothing" in mixed.caption


def test_long_names_are_cut_in_plots_and_stay_unlike(tmp_path: Path) -> None:
    """Files of a sweep differ in their middles: numbers tell them apart; two of one name get their folders'."""
    found = document(Recipe(ranks=1, nodes=1, epochs=1, steps=1, repetitions=1))
    paths = [tmp_path / f"voxload-threads_{count}-prefetch_2-epochs_3.json" for count in (2, 4)]
    for path in paths:
        found.write(path)
    results = read_results(paths)
    assert [result.name for result in results] == [path.stem for path in paths]
    assert len({result.short for result in results}) == 2
    assert all(len(result.short) <= LETTERS for result in results)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        found.write(tmp_path / folder / "run.json")
    alike = read_results([tmp_path / "a" / "run.json", tmp_path / "b" / "run.json"])
    assert [result.name for result in alike] == ["a/run", "b/run"]


def test_a_result_without_runs_is_refused(tmp_path: Path) -> None:
    """It has no figures; one that is not there, or is something else, is named too."""
    empty = replace(document(Recipe(repetitions=1)), runs=())
    (path,) = _write(tmp_path, [empty])
    with pytest.raises(DataError, match="no runs"):
        read_results([path])
    with pytest.raises(NotFoundError, match=r"other\.json"):
        read_results([tmp_path / "other.json"])


@pytest.mark.long
def test_the_command_writes_page_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page, and a picture of each plot that is not blank; each is named."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report)
    paths = _write(tmp_path, [document(Recipe(ranks=2, nodes=1, epochs=1, steps=4, repetitions=2))])
    output, folder = tmp_path / "out.html", tmp_path / "plots" / "png"
    app([*map(str, paths), "--output", str(output), "--png", str(folder)], standalone_mode=False)
    assert _plots(output.read_text()) == list(SINGLE)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(SINGLE)
    told = capsys.readouterr().out
    for path in (output, *folder.iterdir()):
        assert f"wrote {path}" in told
    for path in folder.iterdir():
        pixels = imread(path)
        assert pixels.shape[1] == 800
        assert float(pixels[..., :3].std()) > 0.05


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Run one browser for all tests; skipped by name where there is none."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


_BOXES = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll('path, use')].filter(shape => shape.getBoundingClientRect().width > 0);
  return {key: svg.parentElement.id, width: box.width, height: box.height, left: box.left, right: box.right,
    visible: svg.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}), shapes: shapes.length};
})"""
_WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
_OUTSIDE = """[...document.querySelectorAll('body *')].filter(part => !part.closest('.wide') && !part.closest('svg')
  && part.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).map(part => part.outerHTML)"""
_COLOURS = """[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
  getComputedStyle(document.querySelector('#throughput svg g[style*="--ink"]')).fill]"""


def _complaints(browser: Browser) -> list[dict[str, Any]]:
    """Return what the console says, and whatever else than the page itself was asked for."""
    said = [event for event in browser.events if event["method"] in {"Runtime.consoleAPICalled", "Log.entryAdded"}]
    thrown = [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
    asked = [event for event in browser.events if event["method"] == "Network.requestWillBeSent"]
    return said + thrown + asked[1:]


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("width", [360, 1440])
def test_a_browser_shows_every_plot_within_its_width(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    """On a phone and on a desktop: no word on the console, each plot to be seen, nothing beyond the right edge."""
    browser.open(pages[name], width=width)
    assert _complaints(browser) == []
    assert browser.evaluate(_WIDTHS) == [width, width]
    assert browser.evaluate(_OUTSIDE) == []
    boxes = browser.evaluate(_BOXES)
    assert [box["key"] for box in boxes] == _plots(pages[name].read_text())
    for box in boxes:
        assert box["visible"], box
        assert box["shapes"] > 20, box
        assert box["width"] > 250, box
        assert box["height"] > 60, box
        assert 0 <= box["left"] < box["right"] <= width, box


@pytest.mark.long
def test_the_page_follows_the_scheme(browser: Browser, pages: dict[str, Path]) -> None:
    """Light and dark have paper and ink turned about, and the text of plots is ink."""
    brightness = {}
    for dark in (False, True):
        browser.open(pages["one"], width=1440, dark=dark)
        paper, ink, text = (
            sum(map(int, re.findall(r"\d+", colour)[:3])) / 765 for colour in browser.evaluate(_COLOURS)
        )
        assert abs(paper - ink) > 0.6
        assert ink == text
        brightness[dark] = paper
    assert brightness[False] > 0.9
    assert brightness[True] < 0.2


def test_the_browser_tests_can_fail(browser: Browser, tmp_path: Path) -> None:
    """A page that is too wide, asks for a file and complains is found out."""
    bad = tmp_path / "bad.html"
    bad.write_text('<body><div style="width: 900px">x</div><img src="none.png"><script>console.error(1)</script>')
    browser.open(bad, width=360)
    kinds = {event["method"] for event in _complaints(browser)}
    assert {"Runtime.consoleAPICalled", "Log.entryAdded", "Network.requestWillBeSent"} <= kinds
    assert browser.evaluate(_WIDTHS)[0] > 360
    assert len(browser.evaluate(_OUTSIDE)) == 1
