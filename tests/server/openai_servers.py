"""A fake server that can chat, and the real `openai` client of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import openai

from hearthd.text.tokenizer import Tokenizer
from tests.patience import PATIENCE
from tests.server import fakes, templates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import tokenizers

    from hearthd.server.services.language_service import LanguageService
    from hearthd.text.overflow import Overflow

LIBRARY = fakes.gemma_like(special=(*templates.GEMMA_SPECIAL, *templates.CHATML_SPECIAL))
TOKENIZER = Tokenizer(LIBRARY, bos=fakes.BOS)


def chatty(
    *,
    template: str = templates.GEMMA,
    context: int = 256,
    slots: int = 8,
    overflow: Overflow = "error",
) -> LanguageService:
    """A service with a chat template whose answers are noise."""
    return fakes.fake_service(
        LIBRARY, template=template, context=context, slots=slots, batch=slots, overflow=overflow
    )


def scripted(
    answer: str | Sequence[int],
    *,
    template: str = templates.CHATML,
    library: tokenizers.Tokenizer = LIBRARY,
    cue: str = "<|im_start|>assistant\n",
    end: str = "<|im_end|>",
) -> LanguageService:
    """A service whose model says `answer` and `end` wherever it has read `cue`."""
    tokenizer = Tokenizer(library, bos=fakes.BOS)
    script = fakes.Script(
        cue=tokenizer.read(cue),
        answer=tokenizer.read(answer) if isinstance(answer, str) else tuple(answer),
        end=tokenizer.read(end)[0],
    )
    return fakes.fake_service(library, template=template, context=2048, script=script)


@contextlib.contextmanager
def client_of(service: LanguageService) -> Iterator[openai.OpenAI]:
    """The client of a service that runs as long as the block.

    A connection serves one request: the server closes one that was idle for five seconds, which on
    a busy machine can be just when the client uses it again.
    """
    with (
        fakes.running(service) as plain,
        openai.OpenAI(
            base_url=f"{plain.base_url}/v1",
            api_key="none",
            max_retries=0,
            timeout=PATIENCE,
            default_headers={"Connection": "close"},
            # Reading the system's certificates takes longer than most requests.
            http_client=openai.DefaultHttpxClient(verify=False),
        ) as client,
    ):
        yield client
