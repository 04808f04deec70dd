"""Unload a model for a request without a prompt and with a `keep_alive` of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from fastapi import Request

    from hearthd.server.api.ollama.request_fields import OllamaFields
    from hearthd.server.services.model_pool import ModelPool


async def unloaded_name(body: OllamaFields, request: Request) -> str:
    """Unload the model of a request when its other requests are answered, and return its name.

    Raises ModelNotFound, and InvalidRequest if the model is pinned.
    """
    pool = cast("ModelPool", request.app.state.pool)
    deployment, _ = pool.find_adapted(body.model)
    await pool.unload(deployment)
    return deployment.name
