"""The merges of a BPE vocabulary that ever happen: those that never do only take memory and time.

A vocabulary that comes from SentencePiece has a merge for every split of a token into two tokens:
Gemma's has 515 thousand for 236 thousand tokens. It knows vocabularies, not where they come from.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Merge = tuple[str, str]


def drop_unused_merges(text: str) -> str:
    """A tokenizer.json that `tokenizers` reads, without the merges that never happen."""
    whole = json.loads(text)
    model = whole["model"]
    if model.get("type") != "BPE" or not model["merges"]:
        return text
    merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
    if not _of_characters(model, merges):
        return text
    model["merges"] = used_merges(merges)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def used_merges(merges: Sequence[Merge]) -> list[Merge]:
    """Those of the merges, the first to be applied first, that ever make their token.

    A token's two parts have only ever been merged with what lies within the token, for whatever
    takes more than that is no part of it. So the merges within it are those, in their order, of the
    token as a text by itself; and the last one is always the same.
    """
    rank = {merge: place for place, merge in enumerate(merges)}  # of equal ones the last counts
    splits = defaultdict(list)
    for left, right in rank:
        splits[left + right].append((left, right))
    used = {
        found[0] if len(found) == 1 else _last_merge(token, rank) for token, found in splits.items()
    }
    return sorted(rank.keys() & used, key=rank.__getitem__)


def _last_merge(token: str, rank: Mapping[Merge, int]) -> tuple[str, ...]:
    """The two parts from which a token is made; something else if it never is."""
    parts = list(token)
    while len(parts) > 2:
        ranks = [rank.get(pair, math.inf) for pair in itertools.pairwise(parts)]
        best = min(ranks)
        if best == math.inf:
            break
        at = ranks.index(best)  # of equal ones the leftmost
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return tuple(parts)


def _of_characters(model: Mapping[str, Any], merges: Iterable[Merge]) -> bool:
    """Whether merges begin with characters, put tokens together as they are, and always happen."""
    if any(
        model.get(option)
        for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    ):
        return False
    # What stands for a byte, or for anything, is no text that could be taken apart.
    opaque = {f"<0x{byte:02X}>" for byte in range(256)} | {model.get("unk_token")}
    return not any(part in opaque for merge in merges for part in merge)
