"""Why a bundle cannot be used."""

from __future__ import annotations

__all__ = [
    "BundleError",
    "Corrupt",
    "NotABundle",
    "WrongFormat",
    "WrongKind",
]


class BundleError(Exception):
    """A bundle cannot be used. The message says what is wrong with it and what to do.

    BundleError
     +- NotABundle        no readable manifest there
     +- WrongFormat       written by another version of Hearth
     +- WrongKind         a bundle of the other kind than what was wanted
     +- Corrupt           a file is missing, or its size or digest is not the manifest's
    """


class NotABundle(BundleError):
    """The path holds no readable manifest."""


class WrongFormat(BundleError):
    """The manifest is of a format that this version does not read."""


class WrongKind(BundleError):
    """The bundle holds another kind of program than was wanted."""


class Corrupt(BundleError):
    """A file of the bundle is missing or differs from what the manifest says."""
