"""DiskTier: the laws, damage, refusals of the system, and what the next job finds."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cache.disk.disk_folder import CAPACITY, check_account, files_of, ledger_of
from voxload.cache.disk.blockfile import HEADER_BYTES, OWNER_AT, BlockFiles, path_of
from voxload.cache.disk.ledger import LEDGER_BYTES
from voxload.cache.disk.tier import DiskTier
from voxload.cache.protocol import Answer
from voxload.errors import StorageError, UsageError

CODECS = ("none", "bitshuffle-lz4")

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(params=CODECS)
def tier(request: pytest.FixtureRequest, folder: Path) -> Iterator[DiskTier]:
    """Return a tier of each codec."""
    with closing(DiskTier(folder, CAPACITY, codec=request.param)) as made:
        yield made


@pytest.mark.parametrize("codec", CODECS)
def test_the_laws(tier_laws: ModuleType, tmp_path_factory: pytest.TempPathFactory, codec: str) -> None:
    """The conformance kit."""
    tier_laws.check_tier(lambda capacity: DiskTier(tmp_path_factory.mktemp("tier"), capacity, codec=codec))


def test_blocks_outlive_the_job(tier_laws: ModuleType, folder: Path) -> None:
    """The next tier, of whatever codec, finds what was stored, counts it, and tells what is there."""
    blocks = {tier_laws.key_of(str(n)): tier_laws.block_of(n) for n in range(6)}
    keys = list(blocks)
    with closing(DiskTier(folder, CAPACITY, codec="bitshuffle-lz4")) as tier:
        assert all(tier.put(key, block) for key, block in blocks.items())
        used = tier.used
        tier.drop(keys[0])
    with closing(DiskTier(folder, CAPACITY)) as tier:
        assert tier.inventory([*keys, tier_laws.key_of("other"), tier_laws.key_of("1", data="other")]) == (
            [False, *[True] * 5, False, False]
        )
        assert LEDGER_BYTES < tier.used < used
        for key, block in list(blocks.items())[1:]:
            assert tier_laws.same_bits(tier_laws.get(tier, key, block), block)
            assert tier_laws.same_bits(tier_laws.get(BlockFiles(tier.path), key, block), block)
    check_account(folder)


def test_nobody_else_may_look(tier: DiskTier, tier_laws: ModuleType, folder: Path) -> None:
    """Folders are 0700 and files 0600, whatever the umask; a folder that others may write into is refused."""
    before = os.umask(0)
    try:
        tier.put(tier_laws.key_of("a"), tier_laws.block_of(0))
    finally:
        os.umask(before)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    folder.chmod(0o777)
    with pytest.raises(UsageError, match=r"777.*chmod go-w"):
        DiskTier(folder, CAPACITY)


@settings(max_examples=30)
@given(data=st.data())
def test_flipped_bits_never_pass(
    tier_laws: ModuleType, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any bit of a file, any truncation and any growth: no, one warning, the file gone, and stored anew."""
    key, block = tier_laws.key_of("a"), tier_laws.block_of(data.draw(st.integers(0, 1)), (1, 8, 8, 8))
    folder = tmp_path_factory.mktemp("tier")
    with closing(DiskTier(folder, CAPACITY, codec=data.draw(st.sampled_from(CODECS)))) as tier:
        assert tier.put(key, block)
        path, used = path_of(folder, key), tier.used
        size = path.stat().st_size
        content = bytearray(path.read_bytes())
        change = data.draw(st.sampled_from(("flip", "flip", "cut", "grow")))
        if change == "flip":
            summed = st.one_of(st.integers(0, 151), st.integers(HEADER_BYTES, size - 1))
            content[data.draw(summed)] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "cut":
            content = content[: data.draw(st.integers(0, size - 1))]
        else:
            content += bytes(data.draw(st.integers(1, 3000)))
        path.write_bytes(content)
        with pytest.warns(RuntimeWarning, match=r"\.block is damaged.*the run goes on"):
            assert tier_laws.get(tier, key, block) is None
        assert not tier.holds(key)
        assert tier.put(key, block)
        assert tier_laws.same_bits(tier_laws.get(tier, key, block), block)
        assert tier.used >= used
    with closing(DiskTier(folder, CAPACITY)) as tier:
        assert tier.used == used


@pytest.mark.long
def test_bytes_of_damaged_files_come_back(tier_laws: ModuleType, folder: Path) -> None:
    """However their sizes were changed, files that were removed as damaged leave their room to others."""
    blocks = [tier_laws.block_of(2 * n + 1, (1, 16, 16, 16)) for n in range(40)]
    keys = [tier_laws.key_of(str(n)) for n in range(40)]
    with closing(DiskTier(folder, CAPACITY)) as tier:
        kept = sum(tier.put(key, block) for key, block in zip(keys, blocks, strict=True))
        for key in keys[:4]:
            os.truncate(path_of(folder, key), 1000)
        with pytest.warns(RuntimeWarning, match="damaged") as warnings:
            assert not any(tier.get_into(key, blocks[0].copy()) for key in keys[:4])
        assert len(warnings) == 1
        assert sum(tier.put(key, blocks[0]) for key in keys[kept:]) == 4
        assert tier.used == sum(size for name, size in files_of(folder).items())


def test_a_block_under_another_name_is_wrong(tier: DiskTier, tier_laws: ModuleType, folder: Path) -> None:
    """A whole file that belongs to another key is damage; so are a folder and a link in a block's place."""
    block = tier_laws.block_of(0)
    paths = [path_of(folder, tier_laws.key_of(name)) for name in "abcd"]
    tier.put(tier_laws.key_of("a"), block)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(paths[0], paths[1])
    paths[2].mkdir()
    paths[3].symlink_to(paths[0])
    for name, words in (("b", "damaged"), ("c", "directory"), ("d", "symbolic links")):
        with pytest.warns(RuntimeWarning, match=words):
            assert not tier.get_into(tier_laws.key_of(name), tier_laws.fresh(block))
    assert BlockFiles(folder).fetch(tier_laws.key_of("c"), block.copy()) is Answer.LOST


def test_a_folder_deleted_under_way(tier: DiskTier, tier_laws: ModuleType, folder: Path) -> None:
    """Every call answers no from then on, with one warning, and nothing appears in its place."""
    block = tier_laws.block_of(0)
    tier.put(tier_laws.key_of("a"), block)
    shutil.rmtree(folder)
    keys = [tier_laws.key_of(name) for name in "ab"]

    def answers() -> Iterator[bool]:
        for key in keys:
            yield tier.get_into(key, tier_laws.fresh(block))
            yield tier.put(key, block)
            yield tier.holds(key)
            tier.drop(key)
        yield from tier.inventory(keys)

    with pytest.warns(RuntimeWarning, match=r"the folder is gone.*leave the folder alone") as warnings:
        assert not any(list(answers()))
    assert len(warnings) == 1
    assert not folder.exists()


def test_a_folder_made_anew(tier: DiskTier, tier_laws: ModuleType, folder: Path) -> None:
    """Where another job has made the folder again, the tier whose folder it was stores nothing there uncounted."""
    shutil.rmtree(folder)
    with closing(DiskTier(folder, CAPACITY)) as other:
        assert other.put(tier_laws.key_of("a"), tier_laws.block_of(0))
        with pytest.warns(RuntimeWarning, match="the folder is gone"):
            assert not tier.put(tier_laws.key_of("b"), tier_laws.block_of(0))
        assert other.used == sum(files_of(folder).values())


LIMITED = """
import resource, warnings
import tier as laws
from voxload.cache.disk.tier import DiskTier
warnings.simplefilter("always", RuntimeWarning)
warnings.showwarning = lambda message, *rest: print(message, flush=True)
made = DiskTier(sys.argv[1], 2**22)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
big, small = laws.block_of(0, (1, 64, 64, 64)), laws.block_of(2)
for name, block in (("a", big), ("b", big), ("c", small)):
    print(made.put(laws.key_of(name), block), flush=True)
print(made.used, laws.same_bits(laws.get(made, laws.key_of("c"), small), small), flush=True)
"""


@pytest.mark.long
def test_a_system_that_does_not_take_the_bytes(run_child: Callable[..., Any], folder: Path) -> None:
    """What the system refuses is a no and one warning, and leaves no file; a limit stands in for the full disk."""
    with run_child(LIMITED, str(folder)) as child:
        warning = child.hear()
        assert os.strerror(errno.EFBIG) in warning
        assert "ulimit -f" in warning
        assert [child.hear() for _ in range(3)] == ["False", "False", "True"]
        used, is_right = child.hear().split()
        assert is_right == "True"
    assert int(used) == sum(files_of(folder).values())
    assert not list((folder / ".partial").iterdir())


def test_a_stopped_job_stops_nobody(
    tier_laws: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, tier: DiskTier
) -> None:
    """Who keeps the folder's lock costs the others their patience, a no and a warning."""
    monkeypatch.setattr("voxload.cache.disk.ledger.TIMEOUT", 0.05)
    ledger = ledger_of(folder)
    with ledger.locked(), pytest.warns(RuntimeWarning, match="lslocks"):
        assert not tier.put(tier_laws.key_of("a"), tier_laws.block_of(0))
    ledger.close()
    assert tier.put(tier_laws.key_of("a"), tier_laws.block_of(0))


def test_owner_bytes_harm_nothing(tier_laws: ModuleType, folder: Path) -> None:
    """A flip in the owner's mark leaves a good block that nobody owns."""
    key, block = tier_laws.key_of("a"), tier_laws.block_of(0)
    with closing(DiskTier(folder, CAPACITY)) as tier:
        tier.put(key, block)
        content = bytearray(path_of(folder, key).read_bytes())
        content[OWNER_AT + 3] ^= 4
        path_of(folder, key).write_bytes(content)
        assert tier_laws.same_bits(tier_laws.get(tier, key, block), block)
        tier.drop(key)
        assert not tier.holds(key)


@pytest.mark.parametrize(
    ("capacity", "words"), [(0, "more than 8"), (2**62, f"{2**62} bytes projected.*bytes allowed.*lower")]
)
def test_refused_capacities(folder: Path, capacity: int, words: str) -> None:
    """A capacity that the disk does not have is refused with both numbers."""
    with pytest.raises(UsageError, match=words):
        DiskTier(folder, capacity)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file in the folder's place is an error at once, with the remedy."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="name another folder"):
        DiskTier(tmp_path / "file", CAPACITY)


def test_types_without_a_header(tier: DiskTier, tier_laws: ModuleType) -> None:
    """Objects, and more axes than a header has, are misuse."""
    for block in (tier_laws.block_of(0).astype(object), tier_laws.block_of(0, (1,) * 9)):
        with pytest.raises(UsageError, match="block"):
            tier.put(tier_laws.key_of("a"), block)
    assert tier.used == LEDGER_BYTES
