"""Download a model from the Hugging Face Hub, unless this machine cannot serve it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hearthd.baker.hub.bounded_answers import bounded_answers
from hearthd.baker.hub.file_choice import (
    RepositoryFile,
    choose,
    projector_of,
    weights_in,
)
from hearthd.baker.hub.hub_errors import DoesNotFit, Unreachable, offline
from hearthd.baker.hub.reference import parse_reference
from hearthd.baker.hub.repository import Repository, cached_snapshot
from hearthd.bundle import megabytes
from hearthd.bundle.projector_files import is_projector_name
from hearthd.runtime.system.interrupts import at_interrupt
from hearthd.runtime.system.operating_system import physical_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.hub.reference import Reference
    from hearthd.baker.progress import Progress


@bounded_answers()
def download(
    reference: str,
    progress: Progress,
    *,
    max_memory: int | None = None,
    force: bool = False,
    images: bool = True,
    drafts: bool = False,
) -> Path:
    """The path of a model's weights in the hub's cache: a GGUF file, or a Hugging Face folder.

    Of a split GGUF file it is the path of the first shard. What is missing is downloaded. Before
    that, notes say the family, the memory that serving takes and the expected speed. `max_memory`
    is the limit for that memory in bytes, by default the memory of this machine; `force` downloads
    what does not fit, too. Beside a GGUF file of a model that reads images, its projector is
    downloaded, unless `images` is False. With `drafts` it is a drafter of another model, and alone
    it is not served: the notes and the check are left out.

    Raises BadReference, HubError or OSError.
    """
    named = parse_reference(reference)
    try:
        repository = _repository(named)
    except Unreachable as error:
        return _cached(named, error, progress)
    files = choose(repository.files, named)
    is_model = not drafts and not is_projector_name(files[0].name)  # which is served alone
    if is_model and not all(repository.cached(file) for file in files):
        projector = projector_of(repository.files, files[0]) if images else None
        files = files if projector is None else (*files, projector)
        try:
            has_tower = _check(repository, named, files, progress, max_memory)
            if projector is not None and not has_tower:
                progress.note(f"{projector.path} is not downloaded: Hearth reads no images with it")
                files = files[:-1]
        except DoesNotFit as error:
            if not force:
                less = "" if projector is None else "; without images (--no-mmproj) it needs less"
                raise DoesNotFit(f"{error}{less}") from error
            progress.note(str(error))
    # The projector first: a later call sees that the model is there, and asks for nothing else.
    with at_interrupt(lambda: "the same command continues the download"):
        for file in sorted(files, key=lambda file: not is_projector_name(file.name)):
            repository.fetch(file, progress)
    repository.record_revision()
    return weights_in(repository.snapshot, files)


@bounded_answers()
def require_files(reference: str) -> None:
    """Raise BadReference or HubError if the hub has no files that a reference names.

    Without a connection, `download` says what is missing in the cache.
    """
    named = parse_reference(reference)
    with suppress(Unreachable):
        choose(_repository(named).files, named)


def _repository(reference: Reference) -> Repository:
    """The repository of a reference, as the hub has it now; raises HubError."""
    if offline():
        raise Unreachable(f"{reference}: not in the cache, and HF_HUB_OFFLINE is set")
    return Repository(reference)


def _check(
    repository: Repository,
    reference: Reference,
    files: Sequence[RepositoryFile],
    progress: Progress,
    max_memory: int | None,
) -> bool:
    """Say what the files are and take; arguments and errors as in FitCheck.require."""
    from hearthd.baker.hub.fit_check import FitCheck  # imports every model

    name = files[0].path if len(files) == 1 else f"{len(files)} files"
    progress.note(f"{reference}: {name}, {megabytes(sum(file.bytes for file in files))} MB")
    limit = physical_memory() if max_memory is None else max_memory
    check = FitCheck(repository=repository, reference=reference, limit=limit, progress=progress)
    return check.require(files)


def _cached(reference: Reference, error: Unreachable, progress: Progress) -> Path:
    """What an earlier download left in the cache; raises HubError."""
    snapshot = cached_snapshot(reference)
    if snapshot is None:
        raise error
    files = [
        RepositoryFile(path=path.relative_to(snapshot).as_posix(), bytes=path.stat().st_size)
        for path in sorted(snapshot.rglob("*"))
        if path.is_file()
    ]
    weights = weights_in(snapshot, choose(files, reference))
    if not offline():
        progress.note(f"{error}; using the cache")
    return weights
