"""Compare the prompts of published chat templates with transformers' prompts.

    pip install -e ".[families]"
    python -m tests.golden.compare_templates LLAMA_CPP/models/templates

The folder has files `*.jinja`. Each gets the conversations of tests/text/template_cases.py. Prints
the templates that give other prompts, and ends with an error if there are any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.golden.record_chat_templates import rendered
from tests.server import fakes
from tests.text.template_cases import CASES
from tests.text.written_templates import prompt_of


def main(folder: str) -> None:
    """Print the templates that differ, and how many do not."""
    tokenizer = Tokenizer(fakes.gemma_like(), bos=fakes.BOS)
    files, equal = sorted(Path(folder).glob("*.jinja")), 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        template = ChatTemplate(source, tokenizer, eos=fakes.EOS)
        differing = [
            case for case in CASES if prompt_of(template, case) != rendered(source, *CASES[case])
        ]
        equal += not differing
        if differing:
            sys.stdout.write(f"{file.name}: {', '.join(differing)}\n")
    sys.stdout.write(f"{equal} of {len(files)} templates give the prompts of transformers\n")
    sys.exit(equal < len(files))


if __name__ == "__main__":
    main(sys.argv[1])
