"""Drop the merges of a BPE vocabulary that can never happen, to save memory and time.

A vocabulary from SentencePiece has a merge for every split of a token into two tokens: Gemma's has
515 thousand merges for 236 thousand tokens.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    gives text that is not part of it. So the merges inside a token are those of the token as a text
    of its own, in the same order, and the last merge is always the same one.

    Tokens that represent a byte, or `unknown` text, cannot be split into characters: with a merge
    of these, all are kept.
    """
    opaque = {f"<0x{byte:02X}>" for byte in range(256)} | {unknown}
    if any(left in opaque or right in opaque for left, right in merges):
        return list(merges)
    rank = {merge: index for index, merge in enumerate(merges)}  # the last of equal merges counts
    splits = defaultdict(list)
    for left, right in rank:
        splits[left + right].append((left, right))
    used = {
        pairs[0] if len(pairs) == 1 else _last_merge(token, rank) for token, pairs in splits.items()
    }
    return sorted(rank.keys() & used, key=rank.__getitem__)


def _last_merge(token: str, rank: Mapping[Merge, int]) -> tuple[str, ...]:
    """The two parts of the last merge of a token; other parts if the token is never made."""
    parts = list(token)
    while len(parts) > 2:
        ranks = [rank.get(pair, math.inf) for pair in itertools.pairwise(parts)]
        best = min(ranks)
        if best == math.inf:
            break
        at = ranks.index(best)  # the leftmost of equal ranks
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return tuple(parts)
