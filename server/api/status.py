"""GET /health: can this server answer, what does it serve, and does it compute what was baked?"""

import math

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from server.api.service import Serving
from server.runtime.selftest import Verdict
from server.service import version

router = APIRouter()


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


@router.get("/health", responses={503: {"model": Health}})
async def health(service: Serving, response: Response) -> Health:
    """200 when requests are accepted, else 503 with the reason."""
    problem = service.unavailable()
    if problem:
        response.status_code = 503
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
