"""Earlier calls that wait for their results, for clients that may leave out the ids of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.text.conversation import EarlierCall

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class OpenCalls:
    """The calls of a conversation, read from its start, that have no result so far."""

    def __init__(self) -> None:
        self._calls: list[EarlierCall] = []
        self._count = 0

    def add(self, name: str, arguments: Mapping[str, Any], id_: str = "") -> EarlierCall:
        """A call, with a new id unless it has one."""
        call = EarlierCall(id=id_ or f"call_{self._count}", name=name, arguments=arguments)
        self._count += 1
        self._calls.append(call)
        return call

    def take(self, name: str = "", id_: str = "") -> EarlierCall | None:
        """The call of a result, which is no longer open; None if there is none.

        It is the call with the id, or else the oldest one of this name, or without a name of all.
        """
        call = next((call for call in self._calls if call.id == id_), None) or next(
            (call for call in self._calls if name in ("", call.name)), None
        )
        if call is not None:
            self._calls.remove(call)
        return call
