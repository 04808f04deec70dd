"""The requests of `python -m tools.quality`, their answers, and when servers are equal."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tools.quality.__main__ import (
    Case,
    calls_in,
    mcnemar,
    schema_request,
    solve,
    tool_request,
)

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
            },
        },
    }
    for name in ("f", "g")
]
CASE = Case([{"role": "user", "content": "the dog"}], [], [{"g": {"a": [1]}}])


class Board:
    """A leaderboard on which the call g(1) is right."""

    def tools(self, _case: Case) -> list[Any]:
        return TOOLS

    def is_right(self, _case: Case, calls: list[Any]) -> bool:
        return calls == [{"g": {"a": 1}}]


# The two-sided binomial tests of scipy.stats.binomtest(k, n).
@pytest.mark.parametrize(
    ("only", "p"), [((0, 0), 1.0), ((4, 4), 1.0), ((0, 5), 0.0625), ((3, 12), 0.03515625)]
)
def test_servers_differ_if_coins_would_not_fall_so(only: tuple[int, int], p: float) -> None:
    assert mcnemar(*only) == pytest.approx(p)
    assert mcnemar(*reversed(only)) == pytest.approx(p)


def test_the_schema_allows_the_calls_alone() -> None:
    request = schema_request(CASE, TOOLS)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert all(json.dumps(t["function"]) in request["messages"][0]["content"] for t in TOOLS)
    allowed = jsonschema_rs.Draft202012Validator(
        request["response_format"]["json_schema"]["schema"]
    )
    assert allowed.is_valid({"name": "g", "arguments": {"a": 1}})
    for wrong in (
        {"name": "h", "arguments": {"a": 1}},
        {"name": "g", "arguments": {"a": "1"}},
        {"name": "g", "arguments": {"a": 1, "b": 2}},
        {"name": "g"},
    ):
        assert not allowed.is_valid(wrong)


@pytest.mark.parametrize(
    ("message", "right"),
    [
        ({"content": '{"name": "g", "arguments": {"a": 1}}'}, True),
        ({"content": '{"name": "f", "arguments": {"a": 1}}'}, False),
        ({"content": '{"name": "g", "argum'}, False),
        ({"tool_calls": [{"function": {"name": "g", "arguments": '{"a": 1}'}}]}, True),
    ],
)  # fmt: skip
def test_an_answer_is_right_if_its_call_is(message: dict[str, Any], right: bool) -> None:
    form = tool_request if "tool_calls" in message else schema_request

    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["temperature"] == 0
        return httpx.Response(200, json={"choices": [{"message": message}]})

    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, base_url="http://any") as client:
        board: Any = Board()
        assert solve(client, board, form, CASE) is right
    if right:
        assert calls_in(message) == [{"g": {"a": 1}}]
