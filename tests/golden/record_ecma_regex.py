"""Record what Node.js says about random patterns, for tests/text/test_ecma_regex.py.

    python -m tests.golden.record_ecma_regex [SEED [COUNT]]

Recorded with Node.js 20 in ecma_regex.json: [pattern, texts that match, other texts]. A pattern is
read with the flag `u`, as JSON Schema says; if it is not valid then, without a flag, as browsers
read it. Without the flag, patterns with characters above U+FFFF and `\\p` mean something else and
are left out.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FILE = Path(__file__).with_name("ecma_regex.json")
_SCRIPT = """
const read = pattern => {
  for (const flag of ["u", ""])
    try { return [flag, new RegExp(pattern, flag)] } catch { }
  return null
}
console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).map(([pattern, texts]) => {
  const found = read(pattern)
  return found && [found[0], texts.map(text => found[1].test(text))]
})))
"""
_LITERALS = [
    *'abc1-_ é]{}&~#/"\u2028٣\N{GRINNING FACE}',
    *[r"\\", r"\.", r"\-", r"\@", r"\[", r"\]", r"\n", r"\t", r"\/", r"\cJ", r"\0"],
    *[r"\x61", r"\u0062", r"\u{63}", r"\uD83D\uDE00"],
]
_SETS = [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\p{L}", r"\P{Lu}", "."]
_IN_CLASS = ["a-c", "0-9", "-b", r"\x61-\u0063", "&&", "--", "~~", "[", "[a", "^", "$", "|", r"\b"]
_QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}?", "*?", "{1,}"]
_CHARACTERS = 'abc1-_ é]{}&~[#/"\\.@\n\t\u2028\u00a0٣\N{GRINNING FACE}\0A^$|(*\b'
_TEXTS = ["", "a", "b", "1", "]", "a]", "[]", "\n", "é", "\u00a0", "-", "٣", "aa"]
_CHANGED = ("\\p", "\\P", "\\u", "\N{GRINNING FACE}")


class _Generator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pattern(self, depth: int = 2, anchored: float = 0.6) -> str:
        """Alternatives of terms, some of them with anchors."""
        choose, chance = self._random.choice, self._random.random
        alternatives = []
        for _ in range(choose([1, 1, 1, 2, 3])):
            terms = [self._atom(depth) + choose(_QUANTIFIERS) for _ in range(choose([0, 1, 2, 3]))]
            start, end = ("^" if chance() < anchored else ""), ("$" if chance() < anchored else "")
            alternatives.append(start + "".join(terms) + end)
        return "|".join(alternatives)

    def text(self) -> str:
        """A short text of characters in which dialects differ."""
        return "".join(self._random.choices(_CHARACTERS, k=self._random.randint(1, 4)))

    def _atom(self, depth: int) -> str:
        choose: Callable[[Sequence[str]], str] = self._random.choice
        kind = self._random.random()
        if kind < 0.4:
            return choose(_LITERALS)
        if kind < 0.6:
            return choose(_SETS)
        if kind < 0.85 or not depth:
            items = [
                choose(self._random.choice([_IN_CLASS, _SETS, _LITERALS]))
                for _ in range(self._random.randrange(5))
            ]
            return f"[{choose(['', '', '^'])}{''.join(items)}]"
        return f"{choose(['(', '(?:'])}{self.pattern(depth - 1, 0.05)})"


def main(seed: int = 0, count: int = 80) -> None:
    """Write the file."""
    generator = _Generator(seed)
    cases = [
        (generator.pattern(), [*_TEXTS, *(generator.text() for _ in range(5))])
        for _ in range(count)
    ]
    node = subprocess.run(
        ["node", "-e", _SCRIPT], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    rows = []
    for (pattern, texts), result in zip(cases, json.loads(node.stdout), strict=True):
        if result and (result[0] or not any(text in pattern for text in _CHANGED)):
            matches = dict(zip(texts, result[1], strict=True))
            yes = [text for text, matched in matches.items() if matched]
            rows.append([pattern, yes, [text for text in matches if text not in yes]])
    lines = ",\n".join(json.dumps(row) for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
