"""Members: samples of a volume that voxload itself converted, which is no source where several share it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxload.errors import UsageError


def only_member(path: Path, manifest: object) -> Mapping[str, Any]:
    """Return what a manifest says of its sample; empty where it is no manifest.

    Raises UsageError when several samples share the volume, which would be converted as one.
    """
    members = manifest.get("members", ()) if isinstance(manifest, Mapping) else ()
    if len(members) > 1:
        raise UsageError(
            f"{path}",
            found=f"a converted volume that {len(members)} samples share",
            expected="one sample",
            remedy="convert the original files again, with the layout that is wanted",
        )
    return members[0] if members else {}
