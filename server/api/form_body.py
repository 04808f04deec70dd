"""Request bodies as forms with files (multipart/form-data)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

from fastapi import UploadFile
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from typing_extensions import override

from hearthd.server.api import inert_fields
from hearthd.server.errors import not_on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import Request, Response


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
            with inert_fields.ignoring(strict=request.app.state.strict_fields) as ignored:
                try:
                    response = await handle(request)
                except HTTPException as error:  # FastAPI wraps errors of parsing a form
                    if isinstance(error.__cause__, OSError):
                        raise not_on_disk("file", error.__cause__) from error
                    raise
            if ignored:
                response.headers["Warning"] = inert_fields.warning({}, ignored)
            return response

        return handle_form


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
