"""Programs that were compiled on this machine, kept so that they are not compiled again.

A program has the shapes of the weights, not the weights: another model with the same shapes, such
as a fine-tuned one, has the same program. The compiler takes most of the time of a bake.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Protocol

from threadpoolctl import threadpool_limits

from hearthd.baker.compiler import kernel_objects
from hearthd.baker.compiler.compilation import Compilation, compiler_for
from hearthd.baker.compiler.targets import HOST
from hearthd.baker.digest_cache import DigestCache
from hearthd.bundle import KernelBuild, NotABundle, bundle_home
from hearthd.models.dsl.kernel_sources import KERNELS
from hearthd.runtime.system.cpu_features import cpu_description

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hearthd.bundle import Compiler, Target

FOLDER = ".programs"
# About a hundred programs of language models.
_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class ProgramSource:
    """All that decides the bytes of a program, beside the versions of the tools.

    text     StableHLO, UTF-8
    kernels  names of the C kernels that it calls
    chains   texts of the C files of its chains, by their names
    target   the machine that it is for
    streamed  whether kernels read experts ahead from their file
    """

    text: bytes
    kernels: tuple[str, ...]
    chains: Mapping[str, str]
    target: Target
    streamed: bool = False

    def digest(self) -> str:
        """The sha256 of the source, of Hearth's C files, and of the compilers with their flags.

        With the target `host` also of this CPU, whose model the compilers look up themselves.
        """
        compiler = compiler_for(self.target)
        described = json.dumps(
            {
                "text": hashlib.sha256(self.text).hexdigest(),
                "kernels": {name: asdict(KERNELS[name]) for name in self.kernels},
                "chains": dict(self.chains),
                "target": asdict(self.target),
                "cpu": cpu_description() if self.target.cpu == HOST else "",
                "compiler": asdict(compiler),
                "streamed": self.streamed,
                "clang": [version(kernel_objects.PACKAGE), *kernel_objects.FLAGS],
                "files": _c_files() if self.kernels or self.chains else "",
            },
            sort_keys=True,
        )
        return hashlib.sha256(described.encode()).hexdigest()


class Compiling(Protocol):
    """A program that is being compiled: see Compilation."""

    @property
    def compiler(self) -> Compiler:
        """The compiler and its flags."""

    @property
    def kernels(self) -> KernelBuild:
        """The C kernels in the program; waits for them."""

    def wait(self) -> None:
        """Wait until the output is written; raises KernelError or CompileError."""


@dataclass(frozen=True)
class _Copied:
    """A program that was compiled before."""

    compiler: Compiler
    kernels: KernelBuild

    def wait(self) -> None:
        """Its output is written already."""


@dataclass(frozen=True)
class ProgramCache:
    """A folder of programs by the digest of their source, each with a record of its kernels."""

    folder: Path
    limit_bytes: int = _LIMIT_BYTES

    @property
    def _files(self) -> DigestCache[KernelBuild]:
        return DigestCache(
            folder=self.folder, suffix=".vmfb", record=KernelBuild, limit_bytes=self.limit_bytes
        )

    @classmethod
    def at_home(cls) -> ProgramCache | None:
        """The one in $HEARTH_HOME; None if there is no home folder."""
        try:
            return cls(bundle_home.home() / FOLDER)
        except NotABundle:
            return None

    def copy(self, digest: str, output: Path) -> KernelBuild | None:
        """Write the program of a source, if it is kept and whole; returns its kernels."""
        if (kept := self._files.find(digest)) is None:
            return None
        output.write_bytes(kept.data)
        return kept.record

    def keep(self, digest: str, output: Path, kernels: KernelBuild) -> None:
        """Keep a program, if the folder can be written; the ones used longest ago make room."""
        self._files.keep(digest, output.read_bytes(), kernels)


@contextmanager
def compiling(
    source: ProgramSource, text: Path, output: Path, cache: ProgramCache | None
) -> Iterator[Compiling]:
    """Compile the file `text`, which has the source's text, unless the cache has the program.

    The program is complete after `wait`. Products of NumPy have one thread in the block: compilers
    are started meanwhile (`ending_with_this`), and the last bits of a sum depend on the number of
    threads. Raises KernelError or CompileError.
    """
    digest = "" if cache is None else source.digest()
    with threadpool_limits(1):
        if cache is not None and (kernels := cache.copy(digest, output)) is not None:
            yield _Copied(compiler_for(source.target), kernels)
            return
        with Compilation(
            text,
            output,
            source.target,
            kernels=source.kernels,
            chains=source.chains,
            streamed=source.streamed,
        ) as compilation:
            yield compilation
            compilation.wait()
    if cache is not None:
        cache.keep(digest, output, compilation.kernels)


def _c_files() -> str:
    """The sha256 of all C files: which of them a kernel includes is not known here."""
    digest = hashlib.sha256()
    with as_file(files("hearthd.models.dsl") / "kernels") as folder:
        for path in sorted(folder.rglob("*.[ch]")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
