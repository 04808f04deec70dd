"""Request bodies as forms with files (multipart/form-data)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

from fastapi import UploadFile
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from typing_extensions import override

from hearthd.server.api import inert_fields
from hearthd.server.errors import not_on_disk
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import Request, Response

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_ENCODINGS = ("utf-8", "utf8")


def _file(value: object) -> object:
    """The value of a field; raises ValueError for a text."""
    if isinstance(value, str):
        raise ValueError("a file with a file name: curl sends it with -F file=@NAME")
    return value


Upload: TypeAlias = Annotated[UploadFile, BeforeValidator(_file)]


class FormRoute(APIRoute):
    """A route that reads a form; ignored fields are listed in the header `Warning`."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Called by FastAPI."""
        handle = super().get_route_handler()

        async def handle_form(request: Request) -> Response:
            _check_type(request.headers.get("Content-Type", ""))
            with inert_fields.ignoring(strict=request.app.state.strict_fields) as ignored:
                try:
                    response = await handle(request)
                except HTTPException as error:  # FastAPI wraps errors of parsing a form
                    if isinstance(error.__cause__, OSError):
                        raise not_on_disk("file", error.__cause__) from error
                    if error.status_code == 400:
                        reason = f"body: the form cannot be read: {error.detail}"
                        raise HTTPException(400, reason) from error.__cause__
                    raise
            if ignored:
                response.headers["Warning"] = inert_fields.warning({}, ignored)
            return response

        return handle_form


def _check_type(content_type: str) -> None:
    """Raise InvalidRequest unless it is a form in UTF-8.

    Python takes a minute to decode a field of 1 MB in some encodings, such as punycode.
    """
    media_type, options = parse_options_header(content_type)
    if media_type.decode("latin-1") not in _FORMS:
        raise InvalidRequest(
            field="Content-Type", got=content_type, expected=f"{_FORMS[0]}, as curl -F sends"
        )
    encoding = options.get(b"charset", b"utf-8").decode("latin-1").lower()
    if encoding not in _ENCODINGS:
        raise InvalidRequest(field="Content-Type", got=encoding, expected="charset utf-8")


def opened(upload: UploadFile) -> BinaryIO:
    """The file of an upload, which stays open when FastAPI closes the form's files.

    The caller closes it. Its bytes are in a temporary file. Raises StorageFull, or NotSupported if
    there is no folder for it.
    """
    try:
        descriptor = os.dup(upload.file.fileno())
    except OSError as error:
        raise not_on_disk("file", error) from error
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.fdopen(descriptor, "rb")
