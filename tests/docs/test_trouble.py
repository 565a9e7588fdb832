"""docs/guides/trouble.md: messages that it quotes are those that are raised, and links of all guides lead somewhere."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.settled import settle
from voxload import Cache, DataLoader, ProcessGrid, VolumeDataset
from voxload.convert import convert
from voxload.errors import VoxloadError
from voxload.launch.processes import refuse_processes

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGES = ("choose.md", "clusters.md", "moving.md", "trouble.md")


def masked(text: str) -> str:
    """Return a text on one line, with what differs from run to run taken out: numbers, names of folders, types."""
    text = re.sub(r"\S*/", "", text)
    text = re.sub(r"int16|float32", "TYPE", text)
    text = re.sub(r"0x[0-9a-f]+", "N", text)
    text = re.sub(r"\d[\d.]*", "N", text)
    return " ".join(re.sub(r"N [KMGT]?i?B\b", "N", text).split())


PAGE = masked("".join((GUIDES / name).read_text(encoding="utf-8") for name in ("trouble.md", "clusters.md")))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two samples in chunks, with a catalogue."""
    folder = tmp_path_factory.mktemp("trouble")
    (folder / "raw").mkdir()
    for index in range(2):
        np.save(folder / "raw" / f"{index}.npy", np.full((16, 16, 16), index, np.int16))
    convert(folder / "raw", folder / "samples")
    settle(folder)
    return folder / "samples"


def _first(samples: Path, **words: object) -> None:
    loader = DataLoader(VolumeDataset(samples), batch_size=2, **words)  # type: ignore[arg-type] # options by name
    try:
        next(iter(loader))
    finally:
        loader.close()


def _sampler_over_ranks(samples: Path) -> None:
    data = VolumeDataset(samples, grid=ProcessGrid((2, 1, 1), world_size=2, rank=1))
    sampler: torch.utils.data.Sampler[int] = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=1)
    DataLoader(data, sampler=sampler)


CASES: dict[str, Callable[[Path], object]] = {
    "staging": lambda samples: _first(samples, staging=1024),
    "device": lambda samples: _first(samples, device="cpu", keep=4, staging=2 * 2 * 8192),
    "memory": lambda samples: _first(samples, cache=Cache(memory="1PiB")),
    "disk": lambda samples: _first(samples, cache=Cache(disk=samples.parent / "kept", disk_size="1PiB")),
    "sampler": _sampler_over_ranks,
    "world": lambda _: ProcessGrid((2, 2, 1), world_size=2, rank=0),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_are_as_quoted(samples: Path, name: str) -> None:
    """But for numbers and names."""
    with pytest.raises(VoxloadError) as caught:
        CASES[name](samples)
    assert masked(str(caught.value)) in PAGE


def test_a_second_launcher_is_refused_as_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``--nproc`` is given under a launcher."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(VoxloadError) as caught:
        refuse_processes(2)
    assert masked(str(caught.value)) in PAGE


def test_an_absent_launcher_is_told_of_as_quoted() -> None:
    """By a warning."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ProcessGrid.from_env((2, 2, 1), environ={})
    assert masked(str(told[0].message)) in PAGE


def test_other_messages_are_not_on_the_page() -> None:
    """What is taken out leaves enough to tell messages apart."""
    with pytest.raises(VoxloadError) as caught:
        ProcessGrid((1, 1, 1), world_size=2, rank=5)
    assert masked(str(caught.value)) not in PAGE


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    """Files, and headings of pages."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = link.partition("#")
        found = (GUIDES / path).resolve() if path else GUIDES / page
        assert found.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}
            assert heading in anchors, link
