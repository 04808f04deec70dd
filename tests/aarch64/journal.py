"""Keep the results of the parts of a long run in a file, so that an interrupted run can resume."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The parts that are done, by name, each with its result."""

    file: Path

    def once(self, part: str, work: Callable[[], Any]) -> Any:
        """The result of a part, in JSON's types: of this run's work, or of an earlier run's."""
        done = self._done()
        if part not in done:
            done[part] = work()
            whole = self.file.with_suffix(".new")
            whole.write_text(json.dumps(done, indent=1), encoding="utf-8")
            whole.replace(self.file)
        return done[part]

    def _done(self) -> dict[str, Any]:
        if not self.file.exists():
            return {}
        state: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return state
