"""GET and DELETE /v1/responses/{id}, and the items of its request."""

from typing import Annotated, Any

from fastapi import Query

from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.openai.response_events import Response
from hearthd.server.api.stored.state import CurrentPage, CurrentState, Deleted, ItemList
from hearthd.server.api.surface import surface
from hearthd.text.errors import InvalidRequest

router = surface("OpenAI", ERRORS)

_PATH = "/v1/responses/{response_id}"


@router.get(_PATH, summary="Return a stored response", response_model=Response)
async def get_response(
    response_id: str,
    state: CurrentState,
    stream: Annotated[bool, Query(description="Only false: the response is complete.")] = False,
) -> dict[str, Any]:
    """Return a response that was stored, as it was answered."""
    if stream:
        raise InvalidRequest(field="stream", got=True, expected="false: the response is complete")
    return state.record(response_id, "response")


@router.delete(_PATH, summary="Delete a stored response")
async def delete_response(response_id: str, state: CurrentState) -> Deleted:
    """Delete a response. Responses after it can no longer be continued."""
    state.record(response_id, "response")
    state.store.delete(state.owner, response_id)
    return Deleted(id=response_id, object="response")


@router.post(f"{_PATH}/cancel", summary="Cancel a response", response_model=Response)
async def cancel_response(response_id: str, state: CurrentState) -> dict[str, Any]:
    """Always an error: a stored response is complete. To cancel one, close its connection."""
    status = state.record(response_id, "response")["status"]
    raise InvalidRequest(
        field="response_id",
        got=response_id,
        expected=f"a response that runs in the background: it is {status}",
    )


@router.get(f"{_PATH}/input_items", summary="List a stored response's input")
async def input_items(response_id: str, state: CurrentState, page: CurrentPage) -> ItemList:
    """Return the items of the request that a stored response answers."""
    state.record(response_id, "response")
    return page.of(state.items(response_id, outputs=False))
