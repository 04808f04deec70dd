"""GET /health, /health/ready, /metrics and /v1/bundle: the state of every server.

/health answers 200 as long as the process runs. /health/ready has the same body and answers 503
whenever a request would be rejected: before the self-test has passed, while the server drains, and
after the engine has stopped.
"""

import json
import math
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from hearthd.bundle import ArraysManifest, LanguageManifest, Manifest
from hearthd.server.api.current_service import NamedModel, Pool, served_context
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.operator.reload import Reloaded, shown
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotLoaded
from hearthd.server.metrics import CONTENT_TYPE
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.service import Level
from hearthd.server.version import version

router = surface("Server", ERRORS)


class ServedModel(BaseModel):
    """The model of this server."""

    architecture: str = Field(description="Name of the architecture, such as gemma3.")
    precision: str = Field(description="Precision of the weights, such as int8-g32.")
    target: str = Field(description="Name of the target of the program that runs on this CPU.")


class LanguageModel(ServedModel):
    """A language model."""

    vocab_size: int = Field(description="Number of tokens in the vocabulary.")
    context: int = Field(description="Size of the context in tokens.")


class ArraysModel(ServedModel):
    """An array program."""

    functions: list[str] = Field(description="Names of the functions.")


class SelfTest(BaseModel):
    """Result of the self-test: digests of files, and values compared with golden values."""

    level: Level = Field(description="How much was tested: quick, full or off.")
    passed: bool | None = Field(description="null if the self-test is off.")
    files: list[str] = Field(description="Files whose digests were compared.")
    largest_difference: float | None = Field(
        description="Largest difference from a golden value. null if a value was not a number."
    )
    tolerance: float = Field(description="Largest difference that passes.")
    where: str = Field(description="Position of the largest difference.")
    steps: int = Field(description="Number of positions, or outputs of functions, compared.")
    seconds: float = Field(description="Duration of the comparison of values, in seconds.")
    message: str = Field(description="The result, in a sentence.")


class Health(BaseModel):
    """State of the server."""

    status: str = Field(
        description="ok, starting, self_test_failed, not_loaded, draining or engine_stopped. "
        "Requests are accepted while it is ok."
    )
    message: str = Field(description="The state, in a sentence.")
    version: str = Field(description="Version of the server.")
    model: LanguageModel | ArraysModel | None = Field(
        description="The model. null if its manifest cannot be read."
    )
    self_test: SelfTest | None = Field(
        description="null while the self-test is running, and for an unloaded model."
    )
    bundle: str = Field(description="The system_fingerprint of answers.")
    last_reload: Reloaded | None = Field(description="The last reload. null if there was none.")


@router.get("/health", summary="Get the state of the server")
async def health(deployment: NamedModel, pool: Pool) -> Health:
    """Answer 200 while the process runs. `status` says whether it accepts requests."""
    return _health(deployment, pool)


@router.get(
    "/health/ready",
    summary="Test whether requests are accepted",
    responses={503: {"model": Health, "description": "Requests are rejected."}},
)
async def ready(deployment: NamedModel, pool: Pool, response: Response, request: Request) -> Health:
    """Answer 200 if the server accepts requests, otherwise 503 with the reason.

    With `model`, the question is whether that model does. A server with several models is ready
    as long as one of them is.
    """
    if pool.problem(deployment) if "model" in request.query_params else pool.unavailable():
        response.status_code = 503
    return _health(deployment, pool)


@router.get(
    "/metrics",
    summary="Get metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def metrics(pool: Pool) -> Response:
    """Return the metrics of the server and of all its models in the text format of Prometheus.

    The header Process-Start-Time-Unix is llama-server's.
    """
    headers = {"Process-Start-Time-Unix": str(pool.metrics.started)}
    return Response(pool.metrics.text(), media_type=CONTENT_TYPE, headers=headers)


@router.get("/v1/bundle", summary="Get the manifest of the bundle")
async def bundle(deployment: NamedModel) -> dict[str, Any]:
    """Return the bundle's manifest: the model, its origin, the compiler, the target CPU.

    `self_test` is the result of the self-test on this machine, null while it is running and for an
    unloaded model.
    """
    if deployment.manifest is None:
        raise NotLoaded(deployment.failure)
    self_test = _self_test(deployment)
    manifest: dict[str, Any] = json.loads(deployment.manifest.to_json())
    return {**manifest, "self_test": self_test.model_dump() if self_test else None}


def _health(deployment: Deployment, pool: ModelPool) -> Health:
    problem, manifest = pool.problem(deployment), deployment.manifest
    return Health(
        status=problem.status if problem else "ok",
        message=str(problem or deployment.damage or "requests are accepted"),
        version=version(),
        model=None if manifest is None else _model(deployment, manifest),
        self_test=_self_test(deployment),
        bundle=deployment.fingerprint,
        last_reload=shown(latest) if (latest := deployment.last_reload) else None,
    )


def _model(deployment: Deployment, manifest: Manifest) -> LanguageModel | ArraysModel:
    shared = {
        "architecture": manifest.architecture,
        "precision": manifest.precision,
        "target": (deployment.program or manifest).target.name,
    }
    if isinstance(manifest, ArraysManifest):
        return ArraysModel(**shared, functions=[function.name for function in manifest.functions])
    assert isinstance(manifest, LanguageManifest), "the only other type of manifest"
    context = served_context(deployment, manifest)
    return LanguageModel(**shared, vocab_size=manifest.vocab_size, context=context)


def _self_test(deployment: Deployment) -> SelfTest | None:
    verdict = deployment.verdict
    if verdict is None:
        return None
    difference = verdict.largest_difference
    return SelfTest(
        level=verdict.level,
        passed=verdict.passed if verdict.level != "off" else None,
        files=list(verdict.files),
        largest_difference=difference if math.isfinite(difference) else None,
        tolerance=verdict.tolerance,
        where=verdict.where,
        steps=verdict.steps,
        seconds=verdict.seconds,
        message=verdict.message,
    )
