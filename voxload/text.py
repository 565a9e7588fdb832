"""Text that came out of data, made fit to be printed: no control character reaches a terminal, a log or a page.

A name in a file may hold escape sequences that rewrite a terminal's lines or its title, marks that turn the direction
of writing, and bytes that are no text at all. Source: The Unicode Standard, section 4.5 (general category); ECMA-48.
"""

from __future__ import annotations

from collections.abc import Iterable

_LISTED = 10
"""Names that a message lists at most."""


def shown(text: str, *, keep: str = "") -> str:
    r"""Return text on one line in which everything that is not printable is written as Python writes it.

    Printable text comes back as it is, and so does what this returned before. Pure; safe in any thread.

    Parameters
    ----------
    text
        Any string, surrogates of undecodable bytes included.
    keep
        Characters that stay all the same, such as line ends of the program's own.

    >>> shown("density"), shown("\x1b[2Ja"), shown("a\u202eb"), shown("a\udcff")
    ('density', '\\x1b[2Ja', 'a\\u202eb', 'a\\udcff')
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first ten; pure.

    >>> listed(["b", "a"])
    "['b', 'a']"
    """
    found = list(names)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"{found[:_LISTED]}{more}"


def is_text(text: str) -> bool:
    r"""Tell whether a string can be written as UTF-8: names of files and of datasets may be any bytes.

    >>> is_text("é"), is_text("a\udcff")
    (True, False)
    """
    return not any("\ud800" <= one <= "\udfff" for one in text)


def drawn(text: str) -> str:
    r"""Return the same for a picture of matplotlib's, where no dollar of the data begins a formula.

    >>> drawn("a$b$")
    'a\\$b\\$'
    """
    return shown(text, keep="\n").replace("$", r"\$")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
