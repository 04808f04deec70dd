"""The requests of `python -m tools.quality`, their answers, and when servers are equal."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tools.quality.__main__ import (
    TASKS,
    WITH_SCHEMA,
    WITH_TOOLS,
    Case,
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
    """A leaderboard on which the calls of CASE are right, or none."""

    def __init__(self, task: str) -> None:
        self.task = TASKS[task]
        self._right = [] if self.task.may_refuse else [{"g": {"a": 1}}]
        self._right *= 2 if self.task.several else 1

    def tools(self, _case: Case) -> list[Any]:
        return TOOLS

    def is_right(self, _case: Case, calls: list[Any]) -> bool:
        return calls == self._right


# The two-sided binomial tests of scipy.stats.binomtest(k, n).
@pytest.mark.parametrize(
    ("only", "p"), [((0, 0), 1.0), ((4, 4), 1.0), ((0, 5), 0.0625), ((3, 12), 0.03515625)]
)
def test_servers_differ_if_coins_would_not_fall_so(only: tuple[int, int], p: float) -> None:
    assert mcnemar(*only) == pytest.approx(p)
    assert mcnemar(*reversed(only)) == pytest.approx(p)


def allowed(task: str) -> Any:
    schema = schema_request(TASKS[task], CASE, TOOLS)["response_format"]["json_schema"]["schema"]
    return jsonschema_rs.Draft202012Validator(schema)


def test_the_schema_allows_the_calls_alone() -> None:
    request = schema_request(TASKS["multiple"], CASE, TOOLS)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert all(json.dumps(t["function"]) in request["messages"][0]["content"] for t in TOOLS)
    call, text = {"name": "g", "arguments": {"a": 1}}, {"text": "no"}
    valid: dict[str, list[Any]] = {
        "multiple": [call],
        "parallel": [[call], [call, call]],
        "irrelevance": [call, text],
    }
    for task, answers in valid.items():
        for answer in (call, text, [call], [call, call], []):
            assert allowed(task).is_valid(answer) is (answer in answers)
    for wrong in (
        {"name": "h", "arguments": {"a": 1}},
        {"name": "g", "arguments": {"a": "1"}},
        {"name": "g", "arguments": {"a": 1, "b": 2}},
        {"name": "g"},
    ):
        assert not allowed("multiple").is_valid(wrong)


def test_a_call_is_required_where_one_is_right() -> None:
    for task, choice in (("parallel", "required"), ("irrelevance", "auto")):
        assert tool_request(TASKS[task], CASE, TOOLS)["tool_choice"] == choice


CALL = {"function": {"name": "g", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("task", "message", "right"),
    [
        ("multiple", {"content": '{"name": "g", "arguments": {"a": 1}}'}, True),
        ("multiple", {"content": '{"name": "f", "arguments": {"a": 1}}'}, False),
        ("multiple", {"content": '{"name": "g", "argum'}, False),
        ("multiple", {"content": None, "tool_calls": [CALL]}, True),
        ("multiple", {"content": None, "tool_calls": [CALL, CALL]}, False),
        ("parallel", {"content": json.dumps([{"name": "g", "arguments": {"a": 1}}] * 2)}, True),
        ("parallel", {"content": None, "tool_calls": [CALL, CALL]}, True),
        ("parallel", {"content": None, "tool_calls": [CALL]}, False),
        ("irrelevance", {"content": '{"text": "no"}'}, True),
        ("irrelevance", {"content": "no", "tool_calls": None}, True),
        ("irrelevance", {"content": None, "tool_calls": [CALL]}, False),
    ],
)
def test_an_answer_is_right_if_its_calls_are(
    task: str, message: dict[str, Any], right: bool
) -> None:
    form = WITH_TOOLS if "tool_calls" in message else WITH_SCHEMA

    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["temperature"] == 0
        return httpx.Response(200, json={"choices": [{"message": message}]})

    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, base_url="http://any") as client:
        board: Any = Board(task)
        assert solve(client, board, form, CASE) is right
