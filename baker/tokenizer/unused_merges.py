"""Drop the merges of a BPE vocabulary that can never happen, to save memory and time.

A vocabulary from SentencePiece has a merge for every split of a token into two tokens: Gemma's has
515 thousand merges for 236 thousand tokens.
"""

from __future__ import annotations

import itertools
import json
import operator
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Merge = tuple[str, str]


def drop_unused_merges(text: str) -> str:
    """The text of a tokenizer.json without the merges that can never happen."""
    fields = json.loads(text)
    model = fields["model"]
    options = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    if model.get("type") != "BPE" or any(model.get(option) for option in options):
        return text
    merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
    used = used_merges(merges, model.get("unk_token"))
    if len(used) == len(merges):
        return text
    model["merges"] = used
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def used_merges(merges: Sequence[Merge], unknown: str | None) -> list[Merge]:
    """The merges that can happen, in the order of application.

    The parts of a token were only merged with characters inside the token, since any other merge
    gives text that is not part of it. So the merges inside a token are the merges of the token as a
    text of its own, in the same order, and the last merge is always the same one.

    Tokens that represent a byte, or `unknown` text, cannot be split into characters: with a merge
    of these, all are kept.
    """
    opaque = {f"<0x{byte:02X}>" for byte in range(256)} | {unknown}
    if not merges or any(left in opaque or right in opaque for left, right in merges):
        return list(merges)
    ranks = _Ranks.of(merges)
    tokens, counts = np.unique(ranks.merged, return_counts=True)
    used = [ranks.ranks[:-1][np.isin(ranks.merged, tokens[counts == 1])]]
    by_length = defaultdict(list)
    for token in tokens[counts > 1].tolist():
        by_length[len(ranks.names[token])].append(ranks.names[token])
    used += map(ranks.last_merges, by_length.values())
    return [merges[rank] for rank in np.sort(np.concatenate(used)).tolist()]


@dataclass(frozen=True)
class _Ranks:
    """The ranks of merges, by the numbers of their parts.

    names   the text of each number
    number  of each character, by its code point, i64; -1 if it has none
    keys    left * len(names) + right of each merge, i64, ascending
    ranks   of each key, i64, then one for no merge, which is larger
    merged  the number of what each key makes, i64
    """

    names: Sequence[str]
    number: NDArray[np.int64]
    keys: NDArray[np.int64]
    ranks: NDArray[np.int64]
    merged: NDArray[np.int64]

    @classmethod
    def of(cls, merges: Sequence[Merge]) -> _Ranks:
        """The ranks of merges; of equal ones the last counts."""
        lefts, rights = zip(*merges, strict=True)
        texts = (lefts, rights, [*map(operator.concat, lefts, rights)])
        names = list(dict.fromkeys(itertools.chain(*texts)))
        numbers = {name: number for number, name in enumerate(names)}
        left, right, merged = (
            np.fromiter(map(numbers.__getitem__, some), np.int64, len(merges)) for some in texts
        )
        of_character = np.full(sys.maxunicode + 1, -1)
        for name, number in numbers.items():
            if len(name) == 1:
                of_character[ord(name)] = number
        keys, backwards = np.unique((left * len(names) + right)[::-1], return_index=True)
        ranks = len(merges) - 1 - backwards
        return cls(names, of_character, keys, np.append(ranks, len(merges)), merged[ranks])

    def last_merges(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """The ranks of the last merges of tokens of one length, if merges make them."""
        points = "".join(tokens).encode("utf-32-le", "surrogatepass")
        parts = self.number[np.frombuffer(points, "<u4")].reshape(len(tokens), -1)
        found = self._find(parts[:, :-1], parts[:, 1:])
        while parts.shape[1] > 2:
            best = self.ranks[found].argmin(axis=1)[:, np.newaxis]  # the leftmost of equal ranks
            merge = np.take_along_axis(found, best, 1)
            known = merge[:, 0] < len(self.keys)
            parts, found, best, merge = parts[known], found[known], best[known], merge[known]
            np.put_along_axis(parts, best, self.merged[merge], 1)
            parts, found = _without(parts, best + 1), _without(found, best)
            for at in (np.maximum(best - 1, 0), np.minimum(best, found.shape[1] - 1)):
                pair = (np.take_along_axis(parts, at + side, 1) for side in (0, 1))
                np.put_along_axis(found, at, self._find(*pair), 1)
        return self.ranks[found[found < len(self.keys)]]

    def _find(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of pairs in `keys`; len(keys) for a pair that has no merge."""
        pair = left * len(self.names) + right
        found = np.searchsorted(self.keys, pair)
        known = (left >= 0) & (right >= 0) & (self.keys[found % len(self.keys)] == pair)
        return np.where(known, found, len(self.keys))


def _without(rows: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows (N, K) without one element each, whose column is in (N, 1)."""
    columns = np.arange(rows.shape[1] - 1)
    return np.take_along_axis(rows, columns + (columns >= column), 1)
