"""What an operator asks of every server: GET /health, /health/ready, /metrics and /v1/bundle.

Does it live, take requests, and compute what was baked? /health is 200 for as long as the process
answers; /health/ready, with the same body, is 503 whenever a request would be refused: before the
self-test has passed, while draining, after the end.
"""

import json
import math
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from models.bundle import ArraysManifest, LanguageManifest, Manifest
from server.api.current_service import CurrentService, Deployed
from server.api.http_errors import ERRORS
from server.api.operator.reload import Reloaded, shown
from server.metrics import CONTENT_TYPE
from server.services.deployment import Deployment
from server.services.service import Level, Service
from server.version import version

router = APIRouter(responses=ERRORS, tags=["operation"])


class Model(BaseModel):
    """The model that is served."""

    architecture: str
    precision: str
    target: str


class LanguageModel(Model):
    """A language model. `context` is in tokens."""

    vocab_size: int
    context: int


class ArraysModel(Model):
    """A program of functions on arrays, by their names."""

    functions: list[str]


class SelfTest(BaseModel):
    """The verdict of the self-test: the files' digests and the golden values in the bundle.

    One that fails leaves the process running, so that the reason can be read here.
    """

    level: Level
    passed: bool | None = Field(description="null if the self-test is off.")
    files: list[str] = Field(description="Those whose digests were compared.")
    largest_difference: float | None = Field(
        description="Of a value from its golden value; null if one was not a number."
    )
    tolerance: float
    where: str = Field(description="The place of the largest difference.")
    steps: int = Field(description="Positions, or outputs of functions, that were compared.")
    seconds: float = Field(description="What the comparison of values took.")
    message: str


class Health(BaseModel):
    """`status` is ok, starting, self_test_failed, draining or engine_stopped."""

    status: str
    message: str
    version: str
    model: LanguageModel | ArraysModel
    self_test: SelfTest | None = Field(description="null while it runs.")
    bundle: str = Field(description="What is served, as system_fingerprint of the answers says it.")
    last_reload: Reloaded | None = Field(description="null until there was one.")


@router.get("/health")
async def health(service: CurrentService, deployment: Deployed) -> Health:
    """200 while the process lives; `status` says whether requests are accepted."""
    return _health(service, deployment)


@router.get("/health/ready", responses={503: {"model": Health}})
async def ready(service: CurrentService, deployment: Deployed, response: Response) -> Health:
    """200 when requests are accepted, else 503 with the reason."""
    if service.unavailable():
        response.status_code = 503
    return _health(service, deployment)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: CurrentService) -> Response:
    """Figures in Prometheus' text format."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/v1/bundle")
async def bundle(service: CurrentService) -> dict[str, Any]:
    """The manifest of the bundle: what was baked, from what, by which compiler, for which CPU.

    And the verdict of its self-test on this machine, null while it runs.
    """
    self_test = _self_test(service)
    manifest: dict[str, Any] = json.loads(service.manifest.to_json())
    return {**manifest, "self_test": self_test.model_dump() if self_test else None}


def _health(service: Service, deployment: Deployment) -> Health:
    problem = service.unavailable()
    return Health(
        status=problem.status if problem else "ok",
        message=str(problem or deployment.damage or "requests are accepted"),
        version=version(),
        model=_model(service.manifest),
        self_test=_self_test(service),
        bundle=service.fingerprint,
        last_reload=shown(latest) if (latest := deployment.last_reload) else None,
    )


def _model(manifest: Manifest) -> LanguageModel | ArraysModel:
    shared = {
        "architecture": manifest.architecture,
        "precision": manifest.precision,
        "target": manifest.target.name,
    }
    if isinstance(manifest, ArraysManifest):
        return ArraysModel(**shared, functions=[function.name for function in manifest.functions])
    assert isinstance(manifest, LanguageManifest), "a manifest of either kind"
    return LanguageModel(**shared, vocab_size=manifest.vocab_size, context=manifest.context)


def _self_test(service: Service) -> SelfTest | None:
    verdict = service.verdict
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
