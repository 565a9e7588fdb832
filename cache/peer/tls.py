"""Tls: the files that encrypt what peers send each other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from voxload.errors import NotFoundError, StorageError


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates in PEM form, by path. TLS 1.3 is spoken, and nothing older."""

    certificate: Path
    """Shown to whoever connects, with those that vouch for it behind it."""
    key: Path
    """The certificate's private key."""
    roots: Path
    """Certificates that are trusted; a self-signed certificate is its own."""
    name: str = ""
    """Name that the job's one certificate bears; empty where every rank's bears the rank's address."""
    mutual: bool = False
    """Whether clients show the certificate too, and servers turn away whoever has none that the roots vouch for."""

    def server_context(self) -> ssl.SSLContext:
        """Return what a server encrypts by; raises NotFoundError or StorageError, naming the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # connections are kept: none is taken up again
        self._show(context)
        if self.mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            self._trust(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return what a client encrypts by; raises NotFoundError or StorageError, naming the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._trust(context)
        if self.mutual:
            self._show(context)
        return context

    def _show(self, context: ssl.SSLContext) -> None:
        for path in (self.certificate, self.key):
            _check(path)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as error:
            raise _broken(f"{self.certificate} and {self.key}", error, "a certificate and its key") from error

    def _trust(self, context: ssl.SSLContext) -> None:
        _check(self.roots)
        try:
            context.load_verify_locations(self.roots)
        except (ssl.SSLError, OSError) as error:
            raise _broken(f"{self.roots}", error, "certificates") from error


def _check(path: Path) -> None:
    try:
        path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFoundError("TLS", found=f"no file {path}", expected="certificates and a key in PEM form") from error
    except OSError as error:
        raise StorageError("TLS", found=f"{path}: {error.strerror}", remedy="make it readable") from error


def _broken(files: str, error: Exception, expected: str) -> StorageError:
    return StorageError("TLS", found=f"{files}: {error}", expected=f"{expected} in PEM form", remedy="check the files")
