"""The origin of a bundle: everything that is needed to bake the same bytes again.

It has the records only; baker/pipeline/origin.py collects them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hearthd.bundle.file_records import FileRecord

__all__ = [
    "Activations",
    "Compiler",
    "Hearth",
    "KernelBuild",
    "Provenance",
    "SourceRecord",
    "TriedPrecision",
]

# Marks a field that manifest.json lacks if it has its default.
OMITTED = {"omitted if default": True}
# What products with matrices of integers round activations to, with a scale for 32 columns.
Activations: TypeAlias = Literal["int16", "int8"]


@dataclass(frozen=True, kw_only=True)
class SourceRecord(FileRecord):
    """A file that the bundle was made from, and the package that installed it, if any."""

    package: str | None
    version: str | None


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """The compiler of model.vmfb."""

    name: str
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KernelBuild:
    """Hearth's C kernels in model.vmfb; the compiler generated all other code.

    `instructions` is the instruction set of their integer products: amx, avx512vnni, avxvnni, avx2,
    dotprod, or portable for a target with none of these. None if no kernel has such products.
    """

    names: tuple[str, ...]
    instructions: str | None

    @property
    def text(self) -> str:
        """The kernels as text."""
        if not self.names:
            return "none: the compiler generated all code"
        names = ", ".join(self.names)
        if self.instructions == "portable":
            return f"{names} (portable, slow: the target has no instructions for them)"
        return f"{names} ({self.instructions})" if self.instructions else names


@dataclass(frozen=True, kw_only=True)
class Hearth:
    """The version of Hearth that baked.

    `revision` is its git commit, None outside a checkout; `modified` says whether files differed
    from the commit.
    """

    version: str
    revision: str | None
    modified: bool

    @property
    def text(self) -> str:
        """Version and revision as text."""
        revision = f"git {self.revision[:12]}" if self.revision else "no git revision"
        return f"{self.version}, {revision}{', modified' if self.modified else ''}"


@dataclass(frozen=True, kw_only=True)
class TriedPrecision:
    """A precision that `bake --precision auto` tried.

    kl           mean KL divergence from F32 in nats; None if it was not measured
    positions    number of positions in that mean; 0 for F32 itself
    refused      why it was rejected; None for the chosen one
    activations  as in LanguageManifest
    """

    precision: str
    kl: float | None
    positions: int
    refused: str | None
    activations: Activations = field(default="int16", metadata=OMITTED)

    @property
    def text(self) -> str:
        """The result as text."""
        verdict = "chosen" if self.refused is None else self.refused
        name = self.precision
        if self.activations == "int8":
            name += " with activations of int8"
        if self.kl is None:
            return f"{name}: {verdict}"
        measured = f"mean KL divergence from F32 {self.kl:.2g} over {self.positions} positions"
        return f"{name}: {measured if self.positions else 'F32 itself'}, {verdict}"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a bundle.

    model     the MODEL argument of `bake`
    options   its other options by the names of their flags, with defaults
    tried     for --precision auto: the precisions that were tried, in order; the last was chosen
    sources   the files of weights, configuration and vocabulary
    graph     sha256 of the text of the program's StableHLO
    compiler  the compiler that compiled it
    kernels   the C kernels that were linked into the program
    tools     versions, by name, of other software that affects the bytes
    """

    model: str
    options: dict[str, Any]
    tried: tuple[TriedPrecision, ...]
    hearth: Hearth
    sources: tuple[SourceRecord, ...]
    graph: str
    compiler: Compiler
    kernels: KernelBuild
    tools: dict[str, str]
