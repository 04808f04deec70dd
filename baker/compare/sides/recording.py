"""Recordings: the answers of an engine to some prompts, as a JSON file and as dataclasses.

    {"meta": {"model": .., "engine": .., ...},
     "cases": {NAME: {"prompt": text, "prompt_ids": [id, ..], "greedy_ids": [id, ..],
                      "text": text, "top5": [[[id, natural-log probability], .. best first], ..]}}}

`top5` has one row for each of `greedy_ids`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.weights.source import read_text
from hearthd.models import strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Digits kept of a log-probability: far below any difference caused by rounding in f32.
_DIGITS = 5


class RecordingError(Exception):
    """A file is not a recording. The message names the file, the field and what it must be."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The most probable tokens at one position, best first, with natural-log probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A prompt and its greedy continuation: `best[k]` predicts `greedy_ids[k]`."""

    name: str
    prompt: str
    prompt_ids: tuple[int, ...]
    greedy_ids: tuple[int, ...]
    text: str
    best: tuple[Best, ...]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The cases; `meta` describes the engine in free text."""

    meta: Mapping[str, str]
    cases: tuple[Case, ...]


def read_recording(path: Path) -> Recording:
    """Read a recording; raises RecordingError."""
    try:
        data = strict_json.parse(read_text(path))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} cannot be read as JSON: {error}") from error
    _require(
        isinstance(data, dict) and data.keys() == {"meta", "cases"}, str(path), "meta and cases"
    )
    for key in ("meta", "cases"):
        _require(isinstance(data[key], dict), f"{path}: {key}", "an object")
    _require(len(data["cases"]) > 0, f"{path}: cases", "at least one")
    return Recording(
        meta={key: str(value) for key, value in data["meta"].items()},
        cases=tuple(_case(name, item, f"{path}: {name}") for name, item in data["cases"].items()),
    )


def write_recording(path: Path, recording: Recording) -> None:
    """Write a recording, atomically, in the format of this module's docstring."""
    cases = {case.name: _case_json(case) for case in recording.cases}
    text = json.dumps({"meta": dict(recording.meta), "cases": cases}, ensure_ascii=False)
    write_atomically(path.parent, {path.name: text + "\n"})


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "prompt": case.prompt,
        "prompt_ids": list(case.prompt_ids),
        "greedy_ids": list(case.greedy_ids),
        "text": case.text,
        "top5": [
            [
                [token, round(logprob, _DIGITS)]
                for token, logprob in zip(best.token_ids, best.logprobs, strict=True)
            ]
            for best in case.best
        ],
    }


def _case(name: str, data: Any, where: str) -> Case:
    fields = {"prompt", "prompt_ids", "greedy_ids", "text", "top5"}
    _require(isinstance(data, dict) and data.keys() == fields, where, ", ".join(sorted(fields)))
    for key in ("prompt", "text"):
        _require(isinstance(data[key], str), f"{where}.{key}", "a text")
    for key in ("prompt_ids", "greedy_ids"):
        _require(_is_ids(data[key]) and len(data[key]) > 0, f"{where}.{key}", "token ids")
    rows = data["top5"]
    steps = len(data["greedy_ids"])
    _require(isinstance(rows, list) and len(rows) == steps, f"{where}.top5", f"{steps} rows")
    best = tuple(_best(row, f"{where}.top5[{index}]") for index, row in enumerate(rows))
    for index, (row, token) in enumerate(zip(best, data["greedy_ids"], strict=True)):
        _require(row.token_ids[0] == token, f"{where}.top5[{index}]", f"token {token} first")
    return Case(
        name=name,
        prompt=data["prompt"],
        prompt_ids=tuple(data["prompt_ids"]),
        greedy_ids=tuple(data["greedy_ids"]),
        text=data["text"],
        best=best,
    )


def _best(row: Any, where: str) -> Best:
    pairs = isinstance(row, list) and all(isinstance(p, list) and len(p) == 2 for p in row)
    _require(pairs and len(row) >= 2, where, "at least two pairs of token id and log-probability")
    ids, logprobs = zip(*row, strict=True)
    _require(_is_ids(list(ids)), where, "token ids, first in each pair")
    _require(all(type(p) in (int, float) and p <= 0 for p in logprobs), where, "log-probabilities")
    _require(list(logprobs) == sorted(logprobs, reverse=True), where, "the best first")
    return Best(token_ids=ids, logprobs=tuple(float(p) for p in logprobs))


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _require(condition: bool, where: str, expected: str) -> None:
    if not condition:
        raise RecordingError(f"{where}: expected {expected}")
