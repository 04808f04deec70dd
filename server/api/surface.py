"""The routes of a surface: an API with forms of its own, such as OpenAI's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

if TYPE_CHECKING:
    from collections.abc import Mapping


def surface(
    tag: str,
    errors: Mapping[int | str, dict[str, Any]],
    route_class: type[APIRoute] = APIRoute,
) -> APIRouter:
    """A router whose routes are listed under `tag` in the OpenAPI document.

    `errors` describes the bodies of errors by status, as FastAPI's `responses` do.
    """
    return APIRouter(
        route_class=route_class,
        responses=dict(errors),
        tags=[tag],
        generate_unique_id_function=lambda route: route.name,
    )
