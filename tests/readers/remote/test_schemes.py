"""URLs of a stranger: which kinds are opened, and that no library looks at the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

from voxload.errors import UsageError
from voxload.readers import Location, open_reader
from voxload.readers.remote.store import FSSPEC, OBSTORE, SCHEMES_VARIABLE, check_scheme


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where fsspec is asked for anything."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("fsspec was asked")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize(
    "url",
    [
        "reference://::http://127.0.0.1:9/refs.json",
        "reference://x.zarr",
        "simplecache::memory://x",
        "file://::reference://x",
        "memory://a::http://127.0.0.1:9/x",
        "zip://a::file:///x.zip",
        "dask::file://x",
        "github://a:b@c/x",
        "jupyter://127.0.0.1:9/x",
        "FILE://x",
        "://x",
    ],
)
def test_a_chain_or_another_scheme_is_refused_before_fsspec_sees_it(url: str) -> None:
    """The remedy names the variable by which a user who means it says so."""
    with pytest.raises(UsageError, match=SCHEMES_VARIABLE):
        open_reader(Location(url))


def test_a_reference_file_runs_no_template(tmp_path: Path) -> None:
    """The template of a reference file is not rendered, whatever the installed fsspec does about templates."""
    mark = tmp_path / "ran"
    code = f"{{{{ ''.__class__.__mro__[1].__subclasses__() }}}} {{{{ f.open('{mark}', 'w') }}}}"
    refs = {"version": 1, "templates": {"u": code}, "refs": {"zarr.json": ["{{u}}", 0, 1]}}
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    with pytest.raises(UsageError, match="chain of URLs"):
        open_reader(Location(f"reference://::file://{tmp_path}/refs.json"))
    assert not mark.exists()


def test_plain_storages_are_opened() -> None:
    """Also where a name in the URL looks like a chain to a library that is not asked."""
    for scheme in FSSPEC | OBSTORE:
        check_scheme(f"{scheme}://name/path")
    check_scheme("http://[::1]:80/x")


def test_the_environment_names_further_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link of a chain has to be named but the last, which may be a plain storage."""
    monkeypatch.setenv(SCHEMES_VARIABLE, "simplecache, github")
    check_scheme("github://a:b@c/x")
    check_scheme("simplecache::s3://bucket/x")
    with pytest.raises(UsageError, match="'reference'"):
        check_scheme("simplecache::reference://x")
    with pytest.raises(UsageError, match="'reference'"):
        check_scheme("reference::simplecache::s3://x")
