"""Record what transformers' apply_chat_template writes: chat_templates.json.

    python -m tests.golden.record_chat_templates

Needs `transformers` and `jinja2`. A template that rejects a conversation is recorded as null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from tests.text.family_templates import FAMILIES
from tests.text.template_cases import CASES, DATE


def rendered(template: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> str | None:
    """The prompt, or None if the template rejects the conversation."""
    try:
        prompts, _ = render_jinja_template(
            [messages],
            chat_template=template,
            bos_token="<bos>",
            eos_token="<eos>",
            **DATE,
            **options,
        )
    except Exception:
        return None
    return str(prompts[0])


def main() -> None:
    """Write the file."""
    texts = {
        family: {name: rendered(template, *case) for name, case in CASES.items()}
        for family, template in FAMILIES.items()
    }
    record = {"transformers": transformers.__version__, "prompts": texts}
    path = Path(__file__).with_name("chat_templates.json")
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
