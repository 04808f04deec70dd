"""The stored records of the client that sends a request, and the routes' parts of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.middleware.api_keys import owner_of
from hearthd.server.errors import NotStored
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hearthd.server.api.stored.store import Item, Store

_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
}


@dataclass(frozen=True)
class State:
    """The records that one API key finds."""

    store: Store
    owner: str

    def record(self, id_: str, object_: str) -> Item:
        """The body of a record with this `object`; raises NotStored."""
        body = self._find(id_, object_)
        if body is None:
            raise NotStored(id_)
        return body

    def records(self, prefix: str) -> list[Item]:
        """The bodies of the records whose id begins with a prefix, newest first."""
        return [body for owner, body in self.store.records(prefix) if owner == self.owner]

    def items(self, id_: str, *, outputs: bool = True) -> list[Item]:
        """The items of a record, oldest first; without `outputs` the request's only."""
        return self.store.items(self.owner, id_, outputs=outputs)

    def item(self, id_: str, field: str) -> Item:
        """An item that a request refers to at `field`; raises InvalidRequest."""
        item = self.store.item(self.owner, id_)
        if item is None or "type" not in item:  # a request of a batch has none
            raise InvalidRequest(
                field=field, got=id_, expected="the id of a stored item; send the item itself"
            )
        return item

    def before(self, response: str) -> list[Item]:
        """The items of a response and of those before it, oldest first; raises InvalidRequest."""
        turns: list[list[Item]] = []
        following: str | None = response
        while following is not None:
            body = self._find(following, "response")
            if body is None:
                raise InvalidRequest(
                    field="previous_response_id",
                    got=following,
                    expected="the id of a stored response; send the whole conversation in input",
                )
            turns.append(self.items(following))
            following = body.get("previous_response_id")
        return [item for turn in reversed(turns) for item in turn]

    def in_conversation(self, id_: str) -> list[Item]:
        """The items of a conversation; raises InvalidRequest."""
        if self._find(id_, "conversation") is None:
            raise InvalidRequest(
                field="conversation", got=id_, expected="the id of a stored conversation"
            )
        return self.items(id_)

    def put(
        self, id_: str, body: Item, *, inputs: Iterable[Item] = (), outputs: Iterable[Item] = ()
    ) -> None:
        """Add a record, or replace its body and add items to it; raises as Store.put."""
        self.store.put(self.owner, id_, body, inputs=inputs, outputs=outputs)

    def _find(self, id_: str, object_: str) -> Item | None:
        body = self.store.get(self.owner, id_)
        return body if body is not None and body.get("object") == object_ else None


async def _state(request: Request) -> State:
    return State(request.app.state.store, owner_of(request))


CurrentState = Annotated[State, Depends(_state)]


def stored_item(item: Item) -> Item:
    """An item of a request as it is stored and returned: with an id, and its content in parts."""
    kind = str(item.get("type") or "message")
    kept = {name: value for name, value in item.items() if value is not None}
    stored = {"type": kind, "id": new_id(_PREFIXES.get(kind, "item_")), **kept}
    if kind != "message":
        return stored
    content = stored.get("content")
    if isinstance(content, str):
        is_answer = stored.get("role") == "assistant"
        part: dict[str, Any] = {
            "type": "output_text" if is_answer else "input_text",
            "text": content,
        }
        stored["content"] = [{**part, "annotations": []} if is_answer else part]
    return {"status": "completed", **stored}


class ItemList(BaseModel):
    """A page of items."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]] = Field(description="The items, in the form of /v1/responses.")
    first_id: str | None = Field(description="Id of the first item; null if there is none.")
    last_id: str | None = Field(description="Id of the last item; null if there is none.")
    has_more: bool = Field(description="Whether there are items after the last one.")


@dataclass(frozen=True)
class Page:
    """Which items of a list a request asks for."""

    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")] = 20
    order: Annotated[
        Literal["asc", "desc"], Query(description="asc: oldest first. desc: newest first.")
    ] = "desc"
    after: Annotated[str, Query(description="Id of the item before the page.")] = ""

    def of(self, items: Sequence[Item]) -> ItemList:
        """The page of items, which are oldest first; raises NotStored."""
        ordered = list(items if self.order == "asc" else reversed(items))
        if self.after:
            ids = [item["id"] for item in ordered]
            if self.after not in ids:
                raise NotStored(self.after)
            ordered = ordered[ids.index(self.after) + 1 :]
        data = ordered[: self.limit]
        return ItemList(
            data=data,
            first_id=data[0]["id"] if data else None,
            last_id=data[-1]["id"] if data else None,
            has_more=len(ordered) > len(data),
        )


CurrentPage = Annotated[Page, Depends()]


class Deleted(BaseModel):
    """A record that was deleted."""

    id: str = Field(description="Its id.")
    object: str = Field(description="Its type, with .deleted for a conversation.")
    deleted: Literal[True] = True
