"""What can go wrong between a download and the hub, each as one sentence for the user."""

from __future__ import annotations

import errno
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers

from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.baker.hub.reference import Reference

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY_REQUESTS = 401, 403, 429


class HubError(Exception):
    """A model cannot be downloaded; the message says why and what to do.

    HubError
     +- Unreachable  no answer from the hub: no connection, a timeout, or offline mode
     +- DoesNotFit   the model is not supported, or needs more memory than there is
    """


class Unreachable(HubError):
    """The hub did not answer, or must not be asked."""


class DoesNotFit(HubError):
    """This machine cannot serve the model."""


def offline() -> bool:
    """Whether the hub must not be asked: HF_HUB_OFFLINE is set."""
    return constants.is_offline_mode()


def cache_folder() -> Path:
    """The cache that all tools of the hub share."""
    return Path(constants.HF_HUB_CACHE)


@contextmanager
def reworded(reference: Reference) -> Iterator[None]:
    """Raise errors of the hub's client and of the disk as a HubError."""
    try:
        yield
    except LocalEntryNotFoundError as error:  # the client's word for any failed HEAD request
        with reworded(reference):
            raise error.__cause__ or error from None
    except HfHubHTTPError as error:
        raise HubError(f"{reference}: {_refusal(error, reference)}") from error
    except httpx2.TransportError as error:
        raise Unreachable(
            f"{reference}: cannot reach {constants.ENDPOINT} ({error or type(error).__name__}); "
            "check the connection, or set HF_ENDPOINT to a mirror"
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, FileMetadataError, ValueError) as error:
        raise HubError(f"{reference}: {constants.ENDPOINT} is not a hub: {error}") from error
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise HubError(f"{reference}: {no_space(cache_folder())}") from error


def no_space(folder: Path) -> str:
    """The end of a message: the disk of a folder is full."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return (
        f"the disk of {folder} is full, with {megabytes(shutil.disk_usage(existing).free)} MB "
        "free; free disk space or set HF_HOME to another disk, then pull again to continue"
    )


def _refusal(error: HfHubHTTPError, reference: Reference) -> str:
    """Why the hub refused a request, and what to do."""
    status = error.response.status_code
    page = f"{constants.ENDPOINT}/{reference.repository}"
    match error:
        case GatedRepoError():
            return f"access is restricted; accept its terms at {page}, and set HF_TOKEN"
        case RevisionNotFoundError():
            return f"the repository has no revision {reference.revision!r}"
        case EntryNotFoundError():
            return "the repository has no such file"
        case RepositoryNotFoundError():
            return f"there is no such model at {page}, or it is private; check the name or HF_TOKEN"
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        return f"{page} refuses access ({status}); set HF_TOKEN to a valid token that may read it"
    if status == _TOO_MANY_REQUESTS:
        return (
            f"too many requests (429); try again {_wait(error)}, or set HF_TOKEN for a higher limit"
        )
    return f"{constants.ENDPOINT} answers with status {status}; try again later"


def _wait(error: HfHubHTTPError) -> str:
    """How long to wait, by the headers of a response with status 429."""
    headers = error.response.headers
    limits = parse_ratelimit_headers(headers)
    seconds = headers.get("Retry-After") if limits is None else str(limits.reset_in_seconds)
    return f"in {seconds} s" if seconds and seconds.isdecimal() else "later"
