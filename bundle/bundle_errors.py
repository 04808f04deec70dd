"""Errors of bundles that cannot be used."""

from __future__ import annotations

__all__ = [
    "BundleError",
    "Corrupt",
    "NotABundle",
    "WrongFormat",
    "WrongKind",
]


class BundleError(Exception):
    """A bundle cannot be used. The message gives the reason and the remedy.

    BundleError
     +- NotABundle        there is no valid manifest
     +- WrongFormat       another version of Hearth wrote it
     +- WrongKind         it holds array functions instead of a language model, or vice versa
     +- Corrupt           a file is missing, or its size or sha256 differs from the manifest
    """


class NotABundle(BundleError):
    """The path has no valid manifest."""


class WrongFormat(BundleError):
    """This version of Hearth does not read the manifest's format."""


class WrongKind(BundleError):
    """The bundle holds array functions instead of a language model, or vice versa."""


class Corrupt(BundleError):
    """A file of the bundle is missing or differs from its record in the manifest."""
