"""/v1/conversations: OpenAI's stored conversations, which /v1/responses reads and continues."""

import time
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, Field

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.fields import Fields, Metadata
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.response_items import AnyItem
from hearthd.server.api.stored.state import (
    CurrentPage,
    CurrentState,
    Deleted,
    ItemList,
    Page,
    stored_item,
)
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotStored

router = surface("OpenAI", ERRORS, JsonRoute)

_ROOT = "/v1/conversations"
_PATH = f"{_ROOT}/{{conversation_id}}"
_ITEM = f"{_PATH}/items/{{item_id}}"
NewItems = Annotated[list[AnyItem], Field(max_length=1000)]


class NewConversation(Fields):
    """A conversation to store."""

    items: NewItems = Field(default_factory=list, description="Its first items.")
    metadata: Metadata = Field(default_factory=dict, description="Returned with the conversation.")


class ConversationUpdate(Fields):
    """What changes in a conversation."""

    metadata: Metadata = Field(description="Replaces the earlier metadata.")


class AddedItems(Fields):
    """Items at the end of a conversation."""

    items: NewItems = Field(description="The items.")


class StoredConversation(BaseModel):
    """A conversation."""

    id: str = Field(description="Its id, for `conversation` in /v1/responses.")
    object: Literal["conversation"] = "conversation"
    created_at: int = Field(description="Unix time of its creation, in seconds.")
    metadata: dict[str, str] = Field(description="As in the request.")


@router.post(_ROOT, summary="Store a conversation")
async def create_conversation(
    body: NewConversation, request: Request, state: CurrentState
) -> StoredConversation:
    """Store a conversation, which requests to /v1/responses can continue."""
    conversation = StoredConversation(
        id=new_id("conv_"), created_at=int(time.time()), metadata=body.metadata
    )
    state.put(conversation.id, conversation.model_dump(), inputs=await _items(request))
    return conversation


@router.get(_PATH, summary="Return a conversation", response_model=StoredConversation)
async def get_conversation(conversation_id: str, state: CurrentState) -> dict[str, Any]:
    """Return a conversation, without its items."""
    return state.record(conversation_id, "conversation")


@router.post(_PATH, summary="Update a conversation", response_model=StoredConversation)
async def update_conversation(
    conversation_id: str, body: ConversationUpdate, state: CurrentState
) -> dict[str, Any]:
    """Replace the metadata of a conversation."""
    updated = {**state.record(conversation_id, "conversation"), "metadata": body.metadata}
    state.put(conversation_id, updated)
    return updated


@router.delete(_PATH, summary="Delete a conversation")
async def delete_conversation(conversation_id: str, state: CurrentState) -> Deleted:
    """Delete a conversation with its items."""
    state.record(conversation_id, "conversation")
    state.store.delete(state.owner, conversation_id)
    return Deleted(id=conversation_id, object="conversation.deleted")


@router.post(f"{_PATH}/items", summary="Extend a conversation")
async def add_items(
    conversation_id: str, body: AddedItems, request: Request, state: CurrentState
) -> ItemList:
    """Add items at the end of a conversation; return them as they are stored."""
    items = await _items(request)
    state.put(conversation_id, state.record(conversation_id, "conversation"), inputs=items)
    return Page(limit=len(body.items) or 1, order="asc").of(items)


@router.get(f"{_PATH}/items", summary="List a conversation's items")
async def list_items(conversation_id: str, state: CurrentState, page: CurrentPage) -> ItemList:
    """Return the items of a conversation."""
    state.record(conversation_id, "conversation")
    return page.of(state.items(conversation_id))


@router.get(_ITEM, summary="Return a conversation's item")
async def get_item(conversation_id: str, item_id: str, state: CurrentState) -> dict[str, Any]:
    """Return an item of a conversation."""
    state.record(conversation_id, "conversation")
    for item in state.items(conversation_id):
        if item["id"] == item_id:
            return item
    raise NotStored(item_id)


@router.delete(_ITEM, summary="Delete a conversation's item", response_model=StoredConversation)
async def delete_item(conversation_id: str, item_id: str, state: CurrentState) -> dict[str, Any]:
    """Delete an item; return the conversation."""
    record = state.record(conversation_id, "conversation")
    if not state.store.delete_item(state.owner, conversation_id, item_id):
        raise NotStored(item_id)
    return record


async def _items(request: Request) -> list[dict[str, Any]]:
    """The items of a request as the client wrote them, so that unknown ones stay as they are."""
    return [stored_item(item) for item in (await request.json()).get("items") or ()]
