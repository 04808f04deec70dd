"""A model that does what its prompt says, for agents whose prompts small models cannot read.

The lines of a user message that begin with `say: ` are a script: the model reasons, and answers
with one line after the other. A line in JSON, with `name` and `arguments`, calls a tool. After the
last line the model repeats what its latest call returned. Without a script it says "Done.".
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes, templates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_CONTEXT = 1 << 18  # tokens, which are bytes: an agent's first request has 30,000 to 60,000
_CHUNK = 1024  # tokens of a prefill
_TURN, _END = templates.CHATML_SPECIAL
_LINE = re.compile(r"^say: (.*)$", re.MULTILINE)


def answer(conversation: str) -> str:
    """What the model says after a conversation, in the form of scripted_model.jinja."""
    script: list[str] = []
    result = "Done."
    for turn in conversation.split(_TURN)[1:]:
        role, _, text = turn.removesuffix("\n").removesuffix(_END).partition("\n")
        if role == "assistant":
            script = script[1:]
        elif role == "tool":
            result = text
        elif role == "user":
            script = _LINE.findall(text) or script
    line = script[0] if script else result
    call = f"<tool_call>\n{line}\n</tool_call>" if line.startswith('{"name"') else line
    return f"<think>\nThe next line.\n</think>\n\n{call}"


@functools.lru_cache(maxsize=2)  # of each slot
def _answer_ids(tokenizer: Tokenizer, conversation: tuple[int, ...]) -> tuple[int, ...]:
    return tokenizer.read(answer(tokenizer.decode(conversation, special=True)) + _END)


@dataclass(kw_only=True)
class ScriptedRuntime(FakeRuntime):
    """A runtime whose likeliest tokens are the text of `answer`."""

    tokenizer: Tokenizer

    @override
    def _logits(self, read: Sequence[int]) -> NDArray[np.float32]:
        start = self.tokenizer.read(f"{_TURN}assistant\n")
        begin = len(read) - read[::-1].index(start[0]) - 1 if start[0] in read else len(read)
        written = len(read) - begin - len(start)
        if tuple(read[begin : len(read) - written]) != start:
            return super()._logits(read)
        ids = _answer_ids(self.tokenizer, tuple(read[:begin]))
        logits = np.zeros(self.vocab_size, np.float32)
        logits[ids[min(written, len(ids) - 1)]] = 1e3
        return logits


def service() -> LocalLanguageService:
    """The model, whose tokens are bytes and some English words."""
    library = fakes.byte_level(special=templates.CHATML_SPECIAL)
    tokenizer = Tokenizer(library, bos=fakes.BOS, context=_CONTEXT)
    runtime = ScriptedRuntime(
        tokenizer=tokenizer,
        vocab_size=library.get_vocab_size(),
        context=_CONTEXT,
        chunk=_CHUNK,
        slots=2,
    )
    template = Path(__file__).with_suffix(".jinja").read_text(encoding="utf-8")
    return LocalLanguageService(
        runtime,
        tokenizer,
        fakes.manifest_of(runtime, eos=tokenizer.read(_END)),
        name="scripted",
        template=ChatTemplate(template, tokenizer, eos=fakes.EOS),
    )
