"""Check seed after seed for some minutes, and keep the findings and the last seed."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearthd.baker.atomic_file import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class FindingFile:
    """One finding.

    cause   in short: findings with the same text here probably have one cause
    name    of its file, without the suffix
    record  the content of its file
    text    what is printed
    """

    cause: str
    name: str
    record: dict[str, Any]
    text: str


@dataclass
class State:
    """What all runs from one first seed have done, which the next run continues.

    seeds     checked; the next one is the first seed and this number
    compared  compiled functions that were compared
    causes    number of findings by cause
    """

    seeds: int = 0
    compared: int = 0
    causes: dict[str, int] = field(default_factory=dict)


def run(
    name: str,
    seed: int,
    minutes: float,
    keep: Path,
    say: Callable[[str], None],
    check: Callable[[int, State], tuple[int, int, list[FindingFile]]],
) -> int:
    """Check from a seed on; the exit code, 1 if anything was found.

    The findings and the state are files of `keep`. A run with the same name, seed and `keep`
    continues where the last one ended.

    check  (next seed, state) -> seeds that were checked, functions that were compared, findings
    """
    path = keep / f"{name}_{seed}_state.json"
    state = State(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else State()
    start, before = time.monotonic(), state.compared
    while time.monotonic() < start + 60 * minutes:
        seeds, compared, findings = check(seed + state.seeds, state)
        for finding in findings:
            state.causes[finding.cause] = state.causes.get(finding.cause, 0) + 1
            text = json.dumps(finding.record, indent=1) + "\n"
            write_atomically(keep, {f"{finding.name}.json": text})
            say(finding.text)
        state.seeds += seeds
        state.compared += compared
        write_atomically(keep, {path.name: json.dumps(dataclasses.asdict(state), indent=1)})
        rate = (state.compared - before) / (time.monotonic() - start)
        say(
            f"{state.seeds} {name}, {state.compared} functions compared, {rate:.2f} a second, "
            f"{sum(state.causes.values())} findings"
        )
    return int(bool(state.causes))
