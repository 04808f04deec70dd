"""GET /health and /health/ready: does it live, take requests, and compute what was baked?

Both have the same body. The first is 200 for as long as the process answers; the second is 503
whenever a request would be refused: before the self-test has passed, while draining, after the end.
"""

import math

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from server.api.errors import ERRORS
from server.api.service import Serving
from server.runtime.selftest import Verdict
from server.service import Service, version

router = APIRouter(responses=ERRORS, tags=["operation"])


class Model(BaseModel):
    """The model that is served. `context` is in tokens."""

    architecture: str
    precision: str
    vocab_size: int
    context: int
    target: str


class SelfTest(BaseModel):
    """The verdict of the comparison with the golden logits in the bundle."""

    passed: bool
    largest_difference: float | None = Field(
        description="Of a logit from its golden value; null if one was not a number."
    )
    tolerance: float
    steps: int
    seconds: float
    message: str


class Health(BaseModel):
    """`status` is ok, starting, self_test_failed, draining or engine_stopped."""

    status: str
    message: str
    version: str
    model: Model
    self_test: SelfTest | None = Field(description="null while it runs.")


@router.get("/health")
async def health(service: Serving) -> Health:
    """200 while the process lives; `status` says whether requests are accepted."""
    return _health(service)


@router.get("/health/ready", responses={503: {"model": Health}})
async def ready(service: Serving, response: Response) -> Health:
    """200 when requests are accepted, else 503 with the reason."""
    if service.unavailable():
        response.status_code = 503
    return _health(service)


def _health(service: Service) -> Health:
    problem = service.unavailable()
    manifest, verdict = service.manifest, service.verdict
    return Health(
        status=problem.status if problem else "ok",
        message=str(problem) if problem else "requests are accepted",
        version=version(),
        model=Model(
            architecture=manifest.architecture,
            precision=manifest.precision,
            vocab_size=manifest.vocab_size,
            context=manifest.context,
            target=manifest.target.name,
        ),
        self_test=_self_test(verdict) if verdict else None,
    )


def _self_test(verdict: Verdict) -> SelfTest:
    difference = verdict.largest_difference
    return SelfTest(
        passed=verdict.passed,
        largest_difference=difference if math.isfinite(difference) else None,
        tolerance=verdict.tolerance,
        steps=verdict.steps,
        seconds=verdict.seconds,
        message=verdict.message,
    )
