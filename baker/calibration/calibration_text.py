"""The text whose tokens the model reads while its layers are rounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.atomic_folder import BakeError
from hearthd.bundle.parsing.text_files import read_text, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

# Prose, chat, code and tables in several languages: written for this, and lines of old books.
_SHIPPED = Path(__file__).with_name("calibration.txt")
# Tokens of a sequence, and the most sequences that are read.
LENGTH = 512
MAX_SEQUENCES = 32
_MIN_TOKENS = 256


def calibration_text(path: Path | None) -> str:
    """The text of a file, or the shipped text; raises BakeError if it is not UTF-8 text."""
    try:
        return read_text(path or _SHIPPED)
    except (OSError, ValueError) as error:
        raise BakeError(f"--calibration: {path} cannot be read: {reason(error)}") from error


def sequences(text: str, tokenizer: Tokenizer, bos: int | None, context: int) -> NDArray[np.int32]:
    """Sequences of one length that begin as texts do: token ids i32 (sequences, length).

    The length is at most LENGTH and `context`; tokens beyond MAX_SEQUENCES are left out, and those
    of an incomplete sequence. Raises BakeError for a text that is too short.
    """
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) < _MIN_TOKENS:
        raise BakeError(
            f"--calibration: the text has {len(ids)} tokens, expected at least {_MIN_TOKENS}"
        )
    start = [] if bos is None else [bos]
    length = min(LENGTH, context, len(ids))
    step = length - len(start)
    rows = [start + ids[at : at + step] for at in range(0, len(ids) - step + 1, step)]
    return np.array(rows[:MAX_SEQUENCES], np.int32)
