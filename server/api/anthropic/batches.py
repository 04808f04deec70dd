"""/v1/messages/batches: Anthropic's message batches, which the server answers in the background."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.anthropic.batch_runner import (
    EXPIRY,
    KIND,
    PREFIX,
    BatchRunner,
    StoredBatch,
    timestamp,
)
from hearthd.server.api.anthropic.error_bodies import ERRORS
from hearthd.server.api.fields import Fields, JsonObject
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.stored.state import CurrentState
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotStored
from hearthd.text.errors import InvalidRequest

router = surface("Anthropic", ERRORS, JsonRoute)

_ROOT = "/v1/messages/batches"
_PATH = f"{_ROOT}/{{batch_id}}"


class BatchedRequest(Fields):
    """A request of a batch."""

    custom_id: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Id of its result, unique in the batch."
    )
    params: JsonObject = Field(description="The body of a request to /v1/messages.")


class NewBatch(Fields):
    """Requests that are answered in the background."""

    requests: list[BatchedRequest] = Field(
        min_length=1, max_length=100_000, description="The requests."
    )


class RequestCounts(BaseModel):
    """How many requests of a batch are in each state. All are `processing` until it ends."""

    processing: int = Field(description="Requests of a batch that has not ended.")
    succeeded: int = Field(default=0, description="Requests with a message.")
    errored: int = Field(default=0, description="Requests that were invalid, or failed.")
    canceled: int = Field(default=0, description="Requests without a result when it was canceled.")
    expired: int = Field(default=0, description="Requests without a result after 24 hours.")


class MessageBatch(BaseModel):
    """A batch."""

    id: str = Field(description="Its id.")
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"] = Field(
        description="ended: all requests have a result."
    )
    request_counts: RequestCounts
    created_at: str = Field(description="Time of its creation (RFC 3339).")
    expires_at: str = Field(description="Time at which requests without a result expire.")
    ended_at: str | None = Field(default=None, description="Time of its end; null before.")
    cancel_initiated_at: str | None = Field(default=None, description="Time of its cancellation.")
    archived_at: None = Field(default=None, description="Always null.")
    results_url: str | None = Field(
        default=None, description="Address of the results; null before the end."
    )


class BatchList(BaseModel):
    """A page of batches, newest first."""

    data: list[MessageBatch] = Field(description="The batches.")
    has_more: bool = Field(description="Whether there are more in the direction of the page.")
    first_id: str | None = Field(description="Id of the first batch; null if there is none.")
    last_id: str | None = Field(description="Id of the last batch; null if there is none.")


class DeletedBatch(BaseModel):
    """A batch that was deleted."""

    id: str = Field(description="Its id.")
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


async def _runner(request: Request) -> BatchRunner:
    runner: BatchRunner = request.app.state.batches
    return runner


CurrentRunner = Annotated[BatchRunner, Depends(_runner)]


@router.post(_ROOT, summary="Answer a batch of conversations")
async def create_batch(body: NewBatch, state: CurrentState, runner: CurrentRunner) -> MessageBatch:
    """Store requests and answer them in the background, two at a time.

    The results are stored like responses: within --state-size, and with --state-dir in a file.
    """
    _check(body.requests)
    now = datetime.now(UTC)
    batch = MessageBatch(
        id=new_id(PREFIX),
        processing_status="in_progress",
        request_counts=RequestCounts(processing=len(body.requests)),
        created_at=timestamp(now),
        expires_at=timestamp(now + EXPIRY),
    )
    inputs = [
        {"id": f"{batch.id}/{each.custom_id}", "custom_id": each.custom_id, "params": each.params}
        for each in body.requests
    ]
    state.put(batch.id, {"object": KIND, **batch.model_dump()}, inputs=inputs)
    runner.start(state, batch.id)
    return batch


@router.get(_ROOT, summary="List the batches")
async def list_batches(
    request: Request,
    state: CurrentState,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of batches.")] = 20,
    after_id: Annotated[str, Query(description="Id of the batch before the page.")] = "",
    before_id: Annotated[str, Query(description="Id of the batch after the page.")] = "",
) -> BatchList:
    """Return the batches that are stored, newest first."""
    if after_id and before_id:
        raise InvalidRequest(field="after_id", got=after_id, expected="none beside before_id")
    records = state.records(PREFIX)
    ids = [record["id"] for record in records]
    cursor = after_id or before_id
    if cursor and cursor not in ids:
        raise NotStored(cursor)
    if before_id:
        records = records[: ids.index(before_id)]
        page = records[-limit:]
    else:
        records = records[ids.index(after_id) + 1 :] if after_id else records
        page = records[:limit]
    return BatchList(
        data=[_shown(record, request) for record in page],
        has_more=len(records) > len(page),
        first_id=page[0]["id"] if page else None,
        last_id=page[-1]["id"] if page else None,
    )


@router.get(_PATH, summary="Return a batch")
async def get_batch(batch_id: str, request: Request, state: CurrentState) -> MessageBatch:
    """Return the state of a batch."""
    return _shown(state.record(batch_id, KIND), request)


@router.get(
    f"{_PATH}/results",
    summary="Return the results of a batch",
    response_class=Response,
    responses={200: {"content": {"application/x-jsonl": {}}}},
)
async def get_results(batch_id: str, state: CurrentState) -> Response:
    """Return the results, one JSON object per line, in the order of the requests."""
    _require_end(state.record(batch_id, KIND), "try again later")
    lines = StoredBatch(state, batch_id).result_lines()
    return StreamingResponse(lines, media_type="application/x-jsonl")


@router.post(f"{_PATH}/cancel", summary="Cancel a batch")
async def cancel_batch(
    batch_id: str, request: Request, state: CurrentState, runner: CurrentRunner
) -> MessageBatch:
    """Cancel the requests of a batch that have no result. A batch that has ended stays as it is."""
    if state.record(batch_id, KIND)["processing_status"] == "in_progress":
        runner.cancel(state, batch_id)
    return _shown(state.record(batch_id, KIND), request)


@router.delete(_PATH, summary="Delete a batch")
async def delete_batch(batch_id: str, state: CurrentState) -> DeletedBatch:
    """Delete a batch that has ended, with its results."""
    _require_end(state.record(batch_id, KIND), "cancel it first")
    state.store.delete(state.owner, batch_id)
    return DeletedBatch(id=batch_id)


def _check(requests: list[BatchedRequest]) -> None:
    """Raise InvalidRequest for an id that occurs twice, and for a stream."""
    ids: set[str] = set()
    for index, request in enumerate(requests):
        if request.custom_id in ids:
            raise InvalidRequest(
                field=f"requests[{index}].custom_id",
                got=request.custom_id,
                expected="each custom_id once",
            )
        ids.add(request.custom_id)
        if request.params.get("stream"):
            raise InvalidRequest(
                field=f"requests[{index}].params.stream",
                got=True,
                expected="false: a result is a whole message",
            )


def _require_end(record: dict[str, Any], advice: str) -> None:
    if record["processing_status"] != "ended":
        raise InvalidRequest(
            field="batch_id", got=record["id"], expected=f"a batch that has ended; {advice}"
        )


def _shown(record: dict[str, Any], request: Request) -> MessageBatch:
    batch = MessageBatch(**{name: record[name] for name in record if name != "object"})
    if batch.processing_status == "ended":
        root = str(request.base_url).rstrip("/") + request.app.state.prefix
        batch.results_url = f"{root}{_ROOT}/{batch.id}/results"
    return batch
