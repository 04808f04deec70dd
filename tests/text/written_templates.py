"""What Hearth writes with a family's chat template, and what transformers wrote.

Recorded by tests/golden/record_chat_templates.py.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from hearthd.text.errors import InvalidRequest
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes
from tests.text.family_templates import FAMILIES
from tests.text.template_cases import CASES, DATE

_FILE = Path(__file__).parents[1] / "golden" / "chat_templates.json"


@functools.cache
def recorded() -> dict[str, dict[str, str | None]]:
    """By family and case, what transformers wrote; None if the template rejects the messages."""
    prompts: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))["prompts"]
    return prompts


@functools.cache
def _template(family: str) -> ChatTemplate:
    tokenizer = Tokenizer(fakes.gemma_like(), bos=fakes.BOS)
    return ChatTemplate(FAMILIES[family], tokenizer, eos=fakes.EOS)


def written(family: str, case: str) -> str | None:
    """What Hearth writes for a family; None if the template rejects the messages."""
    return prompt_of(_template(family), case)


def prompt_of(template: ChatTemplate, case: str) -> str | None:
    """What Hearth writes; None if the template rejects the messages."""
    messages, options = CASES[case]
    options = dict(options)
    tools = options.pop("tools", [])
    add_generation_prompt = options.pop("add_generation_prompt", False)
    try:
        if options.pop("continue_final_message", False):
            return template.prompt(messages, variables=DATE, continue_final=True).text
        return template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            variables={**DATE, **options},
        )
    except InvalidRequest:
        return None
