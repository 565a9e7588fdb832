"""Documents of targets: JSON and YAML mappings from sample to targets, and cosmoMeta.yaml."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voxload.convert.sources.libraries import library
from voxload.convert.targets.cells import finite_number, table_of_mapping
from voxload.convert.targets.table import FolderTargets, TargetTable
from voxload.documents import parse_json, read_text
from voxload.errors import DataError
from voxload.readers.faults import translated

_NAMES = "namePar"
_VALUES = ("unitPar", "physPar")
"""Keys of the values: those scaled to [-1, 1], which raw universes hold too, else the physical ones."""


def read_json(path: Path) -> TargetTable:
    """Return the targets in a JSON file."""
    with translated(f"{path}"):
        text = read_text(path)
        try:
            return _table(path, parse_json(text, object_pairs_hook=lambda pairs: _once(path, pairs)))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}", found=str(error), expected="JSON") from error


def read_yaml(path: Path) -> TargetTable:
    """Return the targets in a YAML file."""
    yaml = library("yaml", f"{path}")
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor(
        yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
        lambda own, node: _once(path, own.construct_pairs(node, deep=True)),
    )
    with translated(f"{path}"):
        text = read_text(path)
        try:
            return _table(path, yaml.load(text, Loader=loader))
        except yaml.YAMLError as error:
            raise DataError(f"{path}", found=str(error).replace("\n", " "), expected="YAML") from error


def _once(path: Path, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return pairs as a mapping; a key that comes again would hide the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f"{path}", found=f"{twice!r} more than once", expected="each name once")
    return found


def _table(path: Path, document: object) -> TargetTable:
    if not isinstance(document, Mapping):
        raise DataError(
            f"{path}", found=f"a {type(document).__name__}", expected="a mapping from sample to targets, or cosmoMeta"
        )
    if _NAMES not in document:
        return table_of_mapping(f"{path}", document)
    return _folder_targets(path, document)


def _folder_targets(path: Path, document: Mapping[str, Any]) -> FolderTargets:
    """Return the parameters of one simulation. Source: cosmoMeta.yaml as NERSC/cosmoflow-sims writes it."""
    key = next((key for key in _VALUES if key in document), _VALUES[0])
    names, values = document[_NAMES], document.get(key)
    if not isinstance(names, list) or not isinstance(values, list) or not 0 < len(names) == len(values):
        raise DataError(f"{path}", found=f"{_NAMES} {names!r}, {key} {values!r}", expected="a value for each name")
    pairs = [(str(name), finite_number(f"{path}, {name}", value)) for name, value in zip(names, values, strict=True)]
    return FolderTargets(_once(path, pairs))
