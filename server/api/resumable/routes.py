"""/v1/stream and /v1/streams/lookup: read a stream whose client was lost, as with llama-server."""

from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from hearthd.server.api.fields import Fields, Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.middleware.api_keys import owner_of
from hearthd.server.api.resumable.middleware import reading
from hearthd.server.api.resumable.streams import OffsetLost, Streams
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotStored, Unavailable
from hearthd.text.errors import InvalidRequest

router = surface("llama-server", ERRORS, JsonRoute)

ConversationId = Annotated[
    str, Query(min_length=1, description="The X-Conversation-Id of the request.")
]


class LookupRequest(Fields):
    """Conversations whose streams are looked up."""

    conversation_ids: list[Text] = Field(
        max_length=1000,
        description="Ids. `ID` also finds the streams of ids that begin with `ID::`.",
    )


class StreamState(BaseModel):
    """A stream that can be read."""

    conversation_id: str = Field(description="The X-Conversation-Id of its request.")
    is_done: bool = Field(description="Whether it is complete.")
    total_bytes: int = Field(description="Number of its bytes so far.")
    started_at: int = Field(description="Unix time of its request, in seconds.")
    completed_at: int = Field(description="Unix time of its end, in seconds; 0 before.")


async def _streams(request: Request) -> Streams:
    streams: Streams = request.app.state.streams
    return streams


CurrentStreams = Annotated[Streams, Depends(_streams)]


@router.get(
    "/v1/stream",
    summary="Read a stream again",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def read_stream(
    conv_id: ConversationId,
    request: Request,
    streams: CurrentStreams,
    from_: Annotated[
        int, Query(alias="from", ge=0, description="Number of bytes to skip: those already read.")
    ] = 0,
) -> Response:
    """Return the bytes of a stream from an offset on, and then those that arrive.

    The request of the stream had the header X-Conversation-Id. The status is 503 until the answer
    has begun.
    """
    stream = streams.find(owner_of(request), conv_id)
    if stream is None:
        raise NotStored(conv_id)
    if stream.headers is None:
        raise Unavailable("the answer has not begun; try again")
    try:
        stream.require(from_)
    except OffsetLost as error:
        raise InvalidRequest(field="from", got=from_, expected=str(error)) from error
    return reading(stream, from_)


@router.delete("/v1/stream", summary="Stop a stream", status_code=204)
async def stop_stream(conv_id: ConversationId, request: Request, streams: CurrentStreams) -> None:
    """Cancel the answer of a stream and forget it; do nothing if there is none."""
    streams.stop(owner_of(request), conv_id)


@router.post("/v1/streams/lookup", summary="Find the streams of conversations")
async def lookup_streams(
    body: LookupRequest, request: Request, streams: CurrentStreams
) -> list[StreamState]:
    """Return the state of the streams of conversations whose ids the client knows."""
    return [
        StreamState(
            conversation_id=stream.id,
            is_done=stream.is_done,
            total_bytes=stream.total_bytes,
            started_at=stream.started_at,
            completed_at=stream.completed_at,
        )
        for stream in streams.lookup(owner_of(request), body.conversation_ids)
    ]
