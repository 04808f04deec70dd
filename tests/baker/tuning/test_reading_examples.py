"""Reading examples: which token ids they have, and which of them are learned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from examples.train_tiny_gemma import END, tokenizer
from hearthd.baker.tuning.examples import BadExample, Example, ExampleReader
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.baker.tuning.tiny_model import TEMPLATE, write_lines

if TYPE_CHECKING:
    from pathlib import Path

FORGETFUL = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last or m.role == 'user' }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def reader(template: str | None = TEMPLATE, **options: Any) -> ExampleReader:
    bytes_ = Tokenizer(tokenizer(), bos=None)
    chat = None if template is None else ChatTemplate(template, bytes_, eos=END)
    return ExampleReader(bytes_, chat, (END,), **{"max_length": 100, "truncate": False, **options})


def text(example: Example) -> str:
    """The text of an example, with what is learned in capitals and the end as `.`."""
    shown = ["." if id_ == END else chr(id_) for id_ in example.ids]
    for index in example.learned:
        shown[index] = shown[index].upper()
    return "".join(shown)


def read(tmp_path: Path, *lines: object, **options: Any) -> list[str]:
    path = write_lines(tmp_path / "data.jsonl", lines)
    return [text(one) for one in reader(**options).read(path)]


def said(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [
            {"role": roles[i % 2], "content": content} for i, content in enumerate(contents)
        ]
    }


def test_a_completion_and_the_token_that_ends_it_are_learned(tmp_path: Path) -> None:
    assert read(tmp_path, {"prompt": "a b", "completion": " c"}) == ["a b C."]


def test_all_answers_of_a_conversation_are_learned_and_nothing_else(tmp_path: Path) -> None:
    conversation = said("hi", "hello", "bye", "so long")
    assert read(tmp_path, conversation) == ["[user]hi[assistant]HELLO.[user]bye[assistant]SO LONG."]
    unanswered = said("hi", "hello", "bye")
    assert read(tmp_path, unanswered) == ["[user]hi[assistant]HELLO."]


def test_a_template_that_rewrites_earlier_answers_makes_an_example_of_each(tmp_path: Path) -> None:
    lines = read(tmp_path, said("hi", "hello", "bye", "so long"), template=FORGETFUL)
    assert lines == ["[user]hi[assistant]HELLO.", "[user]hi[assistant][user]bye[assistant]SO LONG."]


def test_names_of_special_tokens_in_questions_are_plain_text(tmp_path: Path) -> None:
    assert read(tmp_path, said("<eos>", "x")) == ["[user]<eos>[assistant]X."]


def test_a_long_example_is_rejected_or_cut(tmp_path: Path) -> None:
    line = {"prompt": "abc", "completion": "defg"}
    with pytest.raises(BadExample, match=r"line 2: got 7 tokens, expected at most 5; raise --max"):
        read(tmp_path, {"prompt": "a", "completion": "b"}, line, max_length=5)
    assert read(tmp_path, line, max_length=5, truncate=True) == ["abcDEF"]
    with pytest.raises(BadExample, match="nothing is left to learn"):
        read(tmp_path, line, max_length=2, truncate=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "expected an object with `messages`"),
        ({"prompt": "x"}, "expected an object with `messages`"),
        ({"prompt": "x", "completion": 3}, "expected texts"),
        ({"prompt": "", "completion": "x"}, "`prompt` is empty"),
        ({"messages": {}}, "expected a list"),
        ({"messages": ["x"]}, "message 1 has no role"),
        ({"messages": [{"role": "user"}]}, "message 1: expected a text"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no message of the role assistant"),
    ],
)
def test_a_bad_line_is_named(line: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadExample, match=f"data.jsonl, line 1: .*{message}"):
        read(tmp_path, line)


def test_lines_that_are_not_json_and_files_without_lines_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('\n{"prompt": "a", "completion": "b"}\n{"prompt"\n')
    with pytest.raises(BadExample, match="line 3: "):
        reader().read(path)
    path.write_text("\n")
    with pytest.raises(BadExample, match="has no examples"):
        reader().read(path)
    path.write_text(json.dumps(said("a", "b")))
    with pytest.raises(BadExample, match="has no chat template; use `prompt` and `completion`"):
        reader(None).read(path)
