"""The address of a server, as a user types it for `--url`."""

from __future__ import annotations


def server_url(text: str) -> str:
    """The address that paths are appended to.

    http:// may be missing, and /v1 at the end, as in the base URL of OpenAI's clients.
    """
    return (text if "://" in text else f"http://{text}").rstrip("/").removesuffix("/v1")
