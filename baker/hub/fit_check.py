"""Whether a model is supported and fits into memory, before its tensors are downloaded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.hub.file_choice import choose, gguf_models, quant_of
from hearthd.baker.hub.header_copy import copy_headers
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError
from hearthd.baker.hub.reference import Reference
from hearthd.baker.hub.repository import RangesUnsupported
from hearthd.baker.hub.verdict import examine
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.baker.hub.file_choice import RepositoryFile
    from hearthd.baker.hub.repository import Repository
    from hearthd.baker.hub.verdict import Verdict
    from hearthd.baker.progress import Progress

# What weights are that cannot be baked, as opposed to a disk that cannot be written.
_UNSUPPORTED = tuple(error for error in BAKE_ERRORS if error is not OSError)
# Other quantizations that are examined when the chosen one does not fit.
_MAX_OTHERS = 8


@dataclass(frozen=True, kw_only=True)
class FitCheck:
    """Checks models of a repository against `limit` bytes of memory."""

    repository: Repository
    reference: Reference
    limit: int
    progress: Progress

    def require(self, files: Sequence[RepositoryFile]) -> bool:
        """Note what a model is and takes; returns whether it has a tower, if that is known.

        Raises DoesNotFit, or another HubError.
        """
        try:
            verdict = self._examine(files)
        except RangesUnsupported:
            self.progress.note("no verdict before the download: the server sends whole files only")
            return True
        for line in verdict.lines(self.limit):
            self.progress.note(line)
        if not verdict.fits(self.limit):
            raise DoesNotFit(
                f"{self.reference}: needs {megabytes(verdict.memory.needed(1))} MB of memory, and "
                f"there are {megabytes(self.limit)} MB; {self._what_fits(files)}"
            )
        return verdict.has_tower

    def _examine(self, files: Sequence[RepositoryFile]) -> Verdict:
        names = files[0].name if len(files) == 1 else "the files"
        with (
            self.progress.stage(f"read the header of {names}"),
            temporary_folder("hearth-") as folder,
        ):
            try:
                return examine(copy_headers(self.repository, files, folder, self.progress))
            except _UNSUPPORTED as error:
                reason = str(error).replace(f"{folder}/", "")
                reason = reason.replace(str(folder), self.reference.repository)
                raise DoesNotFit(f"{self.reference}: not supported: {reason}") from error

    def _what_fits(self, files: Sequence[RepositoryFile]) -> str:
        """The smaller GGUF file of the repository that fits, the largest first."""
        smaller = [model for model in self._models() if _size(model) < _size(files)]
        for model in sorted(smaller, key=_size, reverse=True)[:_MAX_OTHERS]:
            with suppress(DoesNotFit):
                if self._examine(model).fits(self.limit):
                    return f"what fits: {self._named(model)}"
        return "no smaller file of the repository fits"

    def _models(self) -> Iterator[tuple[RepositoryFile, ...]]:
        """The files of each GGUF model of the repository."""
        for file in gguf_models(self.repository.files):
            with suppress(HubError):  # a shard is missing
                yield choose(self.repository.files, self._reference(file=file.path))

    def _named(self, model: tuple[RepositoryFile, ...]) -> Reference:
        """A short reference to a GGUF model."""
        by_quant = self._reference(quant=quant_of(model[0]))
        with suppress(HubError):
            if by_quant.quant and choose(self.repository.files, by_quant) == model:
                return by_quant
        return self._reference(file=model[0].path)

    def _reference(self, **names: str | None) -> Reference:
        return Reference(
            repository=self.reference.repository, revision=self.reference.revision, **names
        )


def _size(files: Sequence[RepositoryFile]) -> int:
    """The bytes of the files of a model."""
    return sum(file.bytes for file in files)
