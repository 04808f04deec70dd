"""Where a bundle came from: what it takes to bake the same bytes again.

It knows what is recorded, and not how it is found out: baker/pipeline/origin.py does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.bundle.file_records import FileRecord

__all__ = [
    "Compiler",
    "Hearth",
    "Kernels",
    "Provenance",
    "SourceRecord",
    "TriedPrecision",
]


@dataclass(frozen=True, kw_only=True)
class SourceRecord(FileRecord):
    """A file that the bundle was made from, and the package that it was installed by, if any."""

    package: str | None
    version: str | None


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """What made model.vmfb."""

    name: str
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The C functions of ours in model.vmfb; the compiler made everything else.

    `instructions` is the instruction set of their integer products: avx512vnni, avx2, dotprod, or
    portable where the target has none of these. None if no function has such products.
    """

    names: tuple[str, ...]
    instructions: str | None

    @property
    def text(self) -> str:
        """For people."""
        if not self.names:
            return "none of our own: all code is the compiler's"
        names = ", ".join(self.names)
        if self.instructions == "portable":
            return f"{names} (portable: the target has no instructions for them, they are slow)"
        return f"{names} ({self.instructions})" if self.instructions else names


@dataclass(frozen=True, kw_only=True)
class Hearth:
    """The Hearth that baked.

    `revision` is its git commit, None where there was no checkout; `modified` says that the files
    were not those of the commit.
    """

    version: str
    revision: str | None
    modified: bool

    @property
    def text(self) -> str:
        """Version and revision, for people."""
        revision = f"git {self.revision[:12]}" if self.revision else "no git revision"
        return f"{self.version}, {revision}{', modified' if self.modified else ''}"


@dataclass(frozen=True, kw_only=True)
class TriedPrecision:
    """A precision that `bake --precision auto` tried.

    kl         the mean of its divergence from F32, in nats; None where it was not measured
    positions  how many positions that is the mean of; 0 for F32 itself
    refused    why it was not taken; None of the one that was
    """

    precision: str
    kl: float | None
    positions: int
    refused: str | None

    @property
    def text(self) -> str:
        """For people."""
        verdict = "taken" if self.refused is None else self.refused
        if self.kl is None:
            return f"{self.precision}: {verdict}"
        measured = f"mean KL from F32 {self.kl:.2g} over {self.positions} positions"
        return f"{self.precision}: {measured if self.positions else 'F32 itself'}, {verdict}"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a bundle came from.

    model     what `bake` was told to bake
    options   its other options by their flags' names, defaults filled in
    tried     for --precision auto, the precisions that were tried in order; the last one was taken
    sources   the files of weights, configuration and vocabulary
    graph     sha256 of the program's StableHLO, as text
    compiler  what made the program of it
    kernels   what of the program it did not make
    tools     versions, by name, of what else has a say in the bytes
    """

    model: str
    options: dict[str, Any]
    tried: tuple[TriedPrecision, ...]
    hearth: Hearth
    sources: tuple[SourceRecord, ...]
    graph: str
    compiler: Compiler
    kernels: Kernels
    tools: dict[str, str]
