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

from pydantic import NonNegativeInt  # noqa: TC002  pydantic reads annotations

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.weights.source import read_text
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.text_files import reason
from hearthd.bundle.parsing.typed_json import typed

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


@dataclass(frozen=True, kw_only=True)
class _WrittenCase:
    """A case as the file has it."""

    prompt: str
    prompt_ids: tuple[NonNegativeInt, ...]
    greedy_ids: tuple[NonNegativeInt, ...]
    text: str
    top5: tuple[tuple[tuple[NonNegativeInt, float], ...], ...]


@dataclass(frozen=True, kw_only=True)
class _Written:
    """A recording as the file has it."""

    meta: dict[str, Any]
    cases: dict[str, _WrittenCase]


def read_recording(path: Path) -> Recording:
    """Read a recording; raises RecordingError."""
    try:
        data = strict_json.parse(read_text(path))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} cannot be read as JSON: {reason(error)}") from error
    try:
        written = typed(_Written, data)
        _require(len(written.cases) > 0, "cases", "at least one")
        return Recording(
            meta={key: str(value) for key, value in written.meta.items()},
            cases=tuple(_case(name, case) for name, case in written.cases.items()),
        )
    except ValueError as error:
        raise RecordingError(f"{path}: {error}") from error


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


def _case(name: str, case: _WrittenCase) -> Case:
    where, steps = f"cases.{name}", len(case.greedy_ids)
    _require(steps > 0 and len(case.prompt_ids) > 0, where, "token ids")
    _require(len(case.top5) == steps, f"{where}.top5", f"{steps} rows")
    best = tuple(_best(row, f"{where}.top5[{index}]") for index, row in enumerate(case.top5))
    for index, (row, token) in enumerate(zip(best, case.greedy_ids, strict=True)):
        _require(row.token_ids[0] == token, f"{where}.top5[{index}]", f"token {token} first")
    return Case(
        name=name,
        prompt=case.prompt,
        prompt_ids=case.prompt_ids,
        greedy_ids=case.greedy_ids,
        text=case.text,
        best=best,
    )


def _best(row: tuple[tuple[int, float], ...], where: str) -> Best:
    _require(len(row) >= 2, where, "at least two pairs of token id and log-probability")
    ids, logprobs = zip(*row, strict=True)
    _require(all(p <= 0 for p in logprobs), where, "log-probabilities")
    _require(list(logprobs) == sorted(logprobs, reverse=True), where, "the best first")
    return Best(token_ids=ids, logprobs=logprobs)


def _require(condition: bool, where: str, expected: str) -> None:
    if not condition:
        raise ValueError(f"{where}: expected {expected}")
