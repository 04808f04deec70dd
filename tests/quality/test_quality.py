"""The requests of `python -m tools.quality`, their answers, and when servers are equal."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema_rs
import pytest
from typing_extensions import override

from tools.quality.__main__ import (
    TASKS,
    WITH_SCHEMA,
    WITH_TOOLS,
    Case,
    Form,
    Leaderboard,
    main,
    mcnemar,
    schema_request,
    solve,
    tool_request,
)
from tools.quality.instructions import Instructions

if TYPE_CHECKING:
    from pathlib import Path

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


class Board(Leaderboard):
    """A leaderboard on which one call is right, two if a task has several, or none."""

    def __init__(self, task: str, form: Form) -> None:
        self.task = TASKS[task]
        self._form = form
        right = [{"g": {"a": 1}}] * (2 if self.task.several else 1)
        self._check = partial(lambda _functions, calls, _right: {"valid": calls == right})

    @override
    def tools(self, _case: Case) -> list[Any]:
        return TOOLS


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
        case = replace(CASE, right=[]) if TASKS[task].may_refuse else CASE
        assert solve(client, Board(task, form), case) is right


def test_prompts_that_cannot_be_checked_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(text: str, names: list[str], *_: Any) -> Any:
        if names == ["of NLTK"]:
            raise LookupError
        return [], types.SimpleNamespace(binary_strict=float(text == "the fox"))

    prompts = [
        json.dumps({"prompt": name, "instruction_id_list": [name], "kwargs": [{}]})
        for name in ("of NLTK", "a", "b")
    ]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "IFBench_test.jsonl").write_text("\n".join(prompts))
    modules: dict[str, dict[str, Any]] = {
        "if_verifiable.ifbench.instructions_registry": {"INSTRUCTION_DICT": {}},
        "if_verifiable.common": {"evaluate_instructions": evaluate},
        "ifbench": {"__path__": [str(tmp_path)]},
    }
    for name, values in modules.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**values))
    monkeypatch.setitem(sys.modules, "datasets", None)
    board = Instructions()
    assert [case.prompt for case in board.cases(None)] == ["a", "b"]
    (case,) = board.cases(1)
    assert board.request(case)["messages"] == [{"role": "user", "content": "a"}]
    assert board.is_right(case, {"content": "the fox"})
    assert not board.is_right(case, {"content": None})


class Server(httpx.BaseTransport):
    """A server that rejects a request."""

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, json={"error": "no\ntools"}, request=request)


def complaint(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the command says on its last line when it cannot run."""
    monkeypatch.setattr(sys, "argv", ["quality", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    said = complaint(["http://127.0.0.1:1", "--task", "multiple"], monkeypatch, capsys)
    assert "bfcl_eval: not installed: install the packages that --help names" in said


def test_a_server_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.quality.__main__.Leaderboard", Board)
    monkeypatch.setattr(Board, "cases", lambda _self, _limit: [CASE], raising=False)
    monkeypatch.setattr(Board, "request", lambda _self, _case: {}, raising=False)
    said = complaint(["http://127.0.0.1:1", "--task", "multiple"], monkeypatch, capsys)
    assert "http://127.0.0.1:1: a server does not answer: " in said
    opened = partial(httpx.Client, transport=Server())
    monkeypatch.setattr("tools.quality.__main__.httpx.Client", opened)
    said = complaint(["http://127.0.0.1:1", "--task", "multiple"], monkeypatch, capsys)
    assert 'http://127.0.0.1:1/v1/chat/completions: got 400: {"error":"no\\ntools"}' in said
