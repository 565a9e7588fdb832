"""Tls: the files that encrypt what peers send each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from voxload.errors import NotFoundError, StorageError


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates in PEM form, by path."""

    certificate: Path
    """Shown to whoever connects, with those that vouch for it behind it."""
    key: Path
    """The certificate's private key."""
    roots: Path
    """Certificates that are trusted; a self-signed certificate is its own."""
    name: str = ""
    """Name that the job's one certificate bears; empty where every rank's bears the rank's address."""

    def read(self, path: Path) -> bytes:
        """Return what is in one of the files; raises NotFoundError or StorageError, naming it."""
        try:
            return path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NotFoundError(
                "TLS", found=f"no file {path}", expected="certificates and a key in PEM form"
            ) from error
        except OSError as error:
            raise StorageError("TLS", found=f"{path}: {error.strerror}", remedy="make it readable") from error
