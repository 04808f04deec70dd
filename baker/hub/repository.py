"""One repository of the hub at one commit: its files, ranges of them, and copies in the cache.

The cache is the hub's client's, so other tools find the files. The client (2.4) begins a
download anew after its process has ended, and does not compare digests. So files are received
here, into `blobs/DIGEST.incomplete` beside the complete ones and under the client's lock; the
client then links them into its snapshots.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import httpx2
from filelock import Timeout
from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import get_hf_file_metadata, repo_folder_name
from huggingface_hub.utils import (
    WeakFileLock,
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.hub.bounded_answers import FILE, MIN_SPEED
from hearthd.baker.hub.file_choice import RepositoryFile
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError, cache_folder, no_space, reworded
from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from huggingface_hub.hf_api import RepoSibling

    from hearthd.baker.hub.reference import Reference
    from hearthd.baker.progress import Progress

_LIBRARY = "hearthd"
_COMMIT = re.compile("[0-9a-f]{40}")
_ETAG = re.compile(r"[\w-]{1,200}", re.ASCII)  # which is the name of a file in the cache
# What the client raises if an answer is not the JSON that a hub sends.
_NOT_A_LIST = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_CHUNK = 1 << 20
_MAX_RANGE = 1 << 27  # bytes that are read into memory; the largest vocabularies take 1 << 24
# Failures in a row without a new byte, and seconds between them.
_ATTEMPTS, _PAUSE = 5, 1.0
_MOMENT = 0.1  # seconds
_PARTIAL, _BEYOND_THE_END, _SERVER_ERRORS = 206, 416, 500


class RangesUnsupported(Exception):
    """A server sends whole files only."""


class Repository:
    """The files of a reference's repository at the commit that its revision names now."""

    def __init__(self, reference: Reference) -> None:
        """Ask the hub; raises HubError."""
        self._reference = reference
        # The client logs each failure that is retried or reported here.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        with reworded(reference):
            try:
                info = HfApi(library_name=_LIBRARY).model_info(
                    reference.repository,
                    revision=reference.revision,
                    files_metadata=True,
                    timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
                )
                self.files = tuple(map(_file, info.siblings or ()))
            except HfHubHTTPError:
                raise
            except _NOT_A_LIST as error:
                raise HubError(
                    f"{reference}: {constants.ENDPOINT} is not a hub: {error}"
                ) from error
        if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
            raise HubError(f"{reference}: {constants.ENDPOINT} says no commit of the repository")
        self.commit = info.sha
        for file in self.files:
            if not file.path.isprintable():  # a NUL, or an escape sequence of terminals
                raise HubError(f"{reference}: the path {file.path!r} has invisible characters")
            if not _is_inside(file.path):
                raise HubError(f"{reference}: the path {file.path!r} leaves the repository")

    @property
    def snapshot(self) -> Path:
        """The folder with links to the files that were fetched."""
        return _snapshot(self._reference, self.commit)

    def cached(self, file: RepositoryFile) -> Path | None:
        """The path of a file in the cache, if it is there."""
        path = try_to_load_from_cache(self._reference.repository, file.path, revision=self.commit)
        return Path(path) if isinstance(path, str) else None

    def read(self, file: RepositoryFile, bytes_: range) -> tuple[bytes, int]:
        """A range of a file, which ends where the file does, and the size of the file.

        Raises HubError, or RangesUnsupported.
        """
        if len(bytes_) > _MAX_RANGE:
            raise DoesNotFit(
                f"{self._reference}: the header of {file.name} takes more than "
                f"{megabytes(_MAX_RANGE)} MB"
            )
        header = f"bytes={bytes_.start}-{bytes_.stop - 1}"
        with reworded(self._reference), self._response(file, header) as response:
            size = response.headers.get("Content-Range", "").rpartition("/")[2]
            if response.status_code != _PARTIAL or not size.isdecimal():
                raise RangesUnsupported(file.path)
            data = bytearray()
            for chunk in response.iter_raw():
                data += chunk[: len(bytes_) - len(data)]
                if len(data) == len(bytes_):  # a hub may send more, without an end
                    break
            return bytes(data), int(size)

    def fetch(self, file: RepositoryFile, progress: Progress) -> Path:
        """The path of a file in the cache, downloaded or continued if it is not there.

        Raises HubError; what was received stays for the next attempt, unless it is wrong.
        """
        if (cached := self.cached(file)) is not None:
            return cached
        with reworded(self._reference):
            metadata = get_hf_file_metadata(self._url(file), library_name=_LIBRARY)
            etag = metadata.etag or ""
            if metadata.commit_hash != self.commit:
                raise HubError(
                    f"{self._reference}: {constants.ENDPOINT} sends {file.path} of the commit "
                    f"{metadata.commit_hash!r}, expected {self.commit}; pull again"
                )
            if not _ETAG.fullmatch(etag) or metadata.size is None:
                raise HubError(
                    f"{self._reference}: {constants.ENDPOINT} has neither digest nor size of "
                    f"{file.path}; set HF_ENDPOINT to a mirror of the hub"
                )
            blob = self._folder / "blobs" / etag
            if not blob.exists():
                with self._locked(file, etag, progress):
                    if not blob.exists():
                        self._receive(file, blob, metadata.size, progress)
            path = hf_hub_download(
                self._reference.repository,
                file.path,
                revision=self.commit,
                library_name=_LIBRARY,
            )
        return Path(path)

    def record_revision(self) -> None:
        """Record the commit of the revision, for when the hub cannot be asked.

        Call this when every file is in the cache. Raises HubError.
        """
        path = self._folder / "refs" / self._reference.revision
        recorded = path.read_text("utf-8") if path.exists() else self._reference.revision
        if recorded != self.commit:
            with reworded(self._reference):
                write_atomically(path.parent, {path.name: self.commit})

    @property
    def _folder(self) -> Path:
        """The folder of the repository in the cache."""
        return _repository_folder(self._reference)

    def _url(self, file: RepositoryFile) -> str:
        return hf_hub_url(self._reference.repository, file.path, revision=self.commit)

    @contextmanager
    def _response(self, file: RepositoryFile, range_: str | None) -> Iterator[httpx2.Response]:
        """The response to a GET of a file, or of a range. The token is not sent to other hosts."""
        headers = {
            **build_hf_headers(library_name=_LIBRARY),
            "Accept-Encoding": "identity",  # else the length counts compressed bytes
            **({} if range_ is None else {"Range": range_}),
        }
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream(
            "GET", self._url(file), headers=headers, timeout=timeout, extensions={FILE: True}
        ) as response:
            hf_raise_for_status(response)
            yield response

    @contextmanager
    def _locked(self, file: RepositoryFile, etag: str, progress: Progress) -> Iterator[None]:
        """Hold the client's lock of a file; wait for another process that downloads it."""
        lock = cache_folder() / ".locks" / self._folder.name / f"{etag}.lock"
        for folder in (lock.parent, self._folder / "blobs"):
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(WeakFileLock(lock, timeout=_MOMENT))
            except Timeout:
                with progress.stage(f"wait for another download of {file.name}"):
                    stack.enter_context(WeakFileLock(lock))
            yield

    def _receive(self, file: RepositoryFile, blob: Path, size: int, progress: Progress) -> None:
        """Write a file to the cache: complete and with the right digest, or not at all."""
        partial = blob.with_name(f"{blob.name}.incomplete")
        with partial.open("r+b" if partial.exists() else "w+b") as opened:
            received = opened.seek(0, os.SEEK_END)
            missing = size - received
            if shutil.disk_usage(partial.parent).free < missing:
                raise HubError(
                    f"{self._reference}: {file.name} needs {megabytes(missing)} MB, and "
                    f"{no_space(cache_folder())}"
                )
            with progress.stage(f"download {file.name}, {megabytes(size)} MB", size) as advance:
                download = _Download(opened, blob.name, size, advance)
                self._receive_all(file, download)
            opened.flush()
            os.fsync(opened.fileno())
        if not download.is_right():
            partial.unlink()
            raise HubError(
                f"{self._reference}: what was received of {file.path} does not have the digest "
                f"{blob.name} that the hub says, and was removed; pull again"
            )
        partial.replace(blob)

    def _receive_all(self, file: RepositoryFile, download: _Download) -> None:
        """Receive what is missing, in as many requests as connections break."""
        failures, start = 0, time.monotonic()
        while download.received < download.size:
            before = download.received
            try:
                with self._response(file, download.range) as response:
                    download.take(response)
                if download.received < download.size:
                    raise httpx2.RemoteProtocolError("the response ended early")
            except (httpx2.TransportError, HfHubHTTPError) as error:
                if isinstance(error, HfHubHTTPError):
                    if error.response.status_code == _BEYOND_THE_END:
                        return  # the file is shorter than the hub says
                    if error.response.status_code < _SERVER_ERRORS:
                        raise
                needed = MIN_SPEED * (time.monotonic() - start)  # a byte per request takes years
                failures, start = failures + 1, time.monotonic()
                if download.received - before > needed:
                    failures = 1
                if failures == _ATTEMPTS:
                    raise HubError(
                        f"{self._reference}: the connection broke {failures} times at "
                        f"{megabytes(download.received)} of {megabytes(download.size)} MB of "
                        f"{file.name} ({error}); pull again to continue"
                    ) from error
                time.sleep(_PAUSE)


class _Download:
    """A file that is received, with the digest of what is there."""

    def __init__(
        self, file: BinaryIO, etag: str, size: int, advance: Callable[[int], None]
    ) -> None:
        """Read what was received before."""
        self.size, self.received = size, 0
        self._file, self._etag, self._advance = file, etag, advance
        self._digest = _digest(etag, size)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            self._count(chunk)

    @property
    def range(self) -> str | None:
        """The range that is missing; None for everything."""
        return f"bytes={self.received}-" if self.received else None

    def take(self, response: httpx2.Response) -> None:
        """Write the body of a response for `range`."""
        if self.received and response.status_code != _PARTIAL:
            self._file.seek(0)
            self._file.truncate()
            self._advance(-self.received)
            self.received, self._digest = 0, _digest(self._etag, self.size)
        elif self.received and not _starts_at(response, self.received):
            raise httpx2.RemoteProtocolError("the response has another range than the request")
        for chunk in response.iter_raw():  # as it comes: what a break leaves is kept
            self._file.write(chunk)
            self._count(chunk)
            if self.received > self.size:  # which is wrong, and may have no end
                return

    def is_right(self) -> bool:
        """Whether size and digest are those that the hub says."""
        digest = self._digest
        return self.received == self.size and (digest is None or digest.hexdigest() == self._etag)

    def _count(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self._digest is not None:
            self._digest.update(chunk)
        self._advance(len(chunk))


def _file(listed: RepoSibling) -> RepositoryFile:
    """A file as the hub lists it; raises ValueError for a path or size of the wrong type."""
    path, size = listed.rfilename, listed.size or 0
    if not isinstance(path, str) or not isinstance(size, int) or size < 0:
        raise ValueError(f"got a file with the path {path!r} and the size {size!r}")
    return RepositoryFile(path=path, bytes=size)


def _starts_at(response: httpx2.Response, offset: int) -> bool:
    """Whether a partial response says that it starts at an offset."""
    return response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")


def _is_inside(path: str) -> bool:
    """Whether a path of a hub, which may be anyone's, stays in a folder that it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not {"/", ".."} & {*parts} and not {"\\", ":"} & {*path}


def _digest(etag: str, size: int) -> hashlib._Hash | None:
    """An empty digest of the kind that an ETag has: SHA-256, or git's of a small file."""
    if re.fullmatch("[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if _COMMIT.fullmatch(etag):
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return None  # of a mirror


def _repository_folder(reference: Reference) -> Path:
    """The folder of a repository in the cache."""
    return cache_folder() / repo_folder_name(repo_id=reference.repository, repo_type="model")


def _snapshot(reference: Reference, commit: str) -> Path:
    """The folder with links to the files of a commit."""
    return _repository_folder(reference) / "snapshots" / commit


def cached_snapshot(reference: Reference) -> Path | None:
    """The folder of the commit that a revision named when the hub was last asked."""
    commit, revision = reference.revision, _repository_folder(reference) / "refs"
    with suppress(OSError):
        commit = (revision / reference.revision).read_text("utf-8").strip()
    snapshot = _snapshot(reference, commit)
    return snapshot if snapshot.is_dir() else None
