"""The chat template for folders with a tekken.json alone writes what mistral_common writes.

The texts are of mistral_common 1.13.1, with one [AUDIO] for a sound.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.tokenizer.folder_template import folder_template
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from hearthd.text.tool_calls.json_calls import MISTRAL
from hearthd.text.tool_calls.tools import Tool, ToolChoice
from tests.baker.small_smolvlm import tokenizer

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
    "[AUDIO]", "[BEGIN_AUDIO]",
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "f", "description": "Find é.", "parameters": SCHEMA}
TOOLS = f"[AVAILABLE_TOOLS][{json.dumps({'type': 'function', 'function': FUNCTION})}]"
CALL = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
CALLED = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "a1b2c3d4e"}]</s>'
SOUND = {"type": "audio"}


def says(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "sounds": (
        [
            says("user", [SOUND, text("What?")]),
            says("assistant", "A dog."),
            says("user", [text("And this?"), SOUND]),
        ],
        "<s>[INST][BEGIN_AUDIO][AUDIO]What?[/INST]A dog.</s>"
        "[INST]And this?[BEGIN_AUDIO][AUDIO][/INST]",
    ),
    "system": (
        [
            says("system", "Be brief."),
            says("user", "Hi é"),
            says("assistant", "Hello."),
            says("user", "Bye"),
        ],
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi é[/INST]Hello.</s>[INST]Bye[/INST]",
    ),
    "tools": (
        [
            says("system", "S"),
            says("user", "one"),
            says("assistant", "two"),
            says("user", "three"),
            says("assistant", "", tool_calls=[CALL]),
            says("tool", '{"x": 2}', name="f", tool_call_id="a1b2c3d4e"),
        ],
        f"<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]one[/INST]two</s>{TOOLS}[/AVAILABLE_TOOLS]"
        f"[INST]three[/INST]{CALLED}"
        '[TOOL_RESULTS]a1b2c3d4e[TOOL_CONTENT]{"x": 2}[/TOOL_RESULTS]',
    ),
    "tools before": (
        [
            says("user", "three"),
            says("assistant", "", tool_calls=[CALL]),
            says("tool", "5", name="f", tool_call_id="a1b2c3d4e"),
            says("assistant", "Five."),
            says("user", "Ok"),
        ],
        f"<s>[INST]three[/INST]{CALLED}[TOOL_RESULTS]a1b2c3d4e[TOOL_CONTENT]5[/TOOL_RESULTS]"
        f"Five.</s>{TOOLS}[/AVAILABLE_TOOLS][INST]Ok[/INST]",
    ),
}


def write(folder: Path, **fields: Any) -> None:
    data = {"config": {"version": "v7"}, "audio": {}, **fields}
    (folder / "tekken.json").write_text(json.dumps(data))


def template(folder: Path) -> ChatTemplate:
    write(folder)
    source = folder_template(folder)
    assert source is not None
    names = Tokenizer(tokenizer(SPECIAL), bos=256)
    return ChatTemplate(source, names, eos=257)


@pytest.mark.parametrize("case", CASES)
def test_the_prompt_is_that_of_mistral_common(case: str, tmp_path: Path) -> None:
    messages, expected = CASES[case]
    tools = [{"type": "function", "function": FUNCTION}] if "tools" in case else []
    prompt = template(tmp_path).prompt(messages, tools=tools)
    assert prompt.text == expected.replace("\\u00e9", "é")
    assert prompt.ids[:2].count(256) == 1


def test_calls_are_read_as_mistral_s(tmp_path: Path) -> None:
    tool = Tool(name="f", parameters=json.dumps(SCHEMA))
    use = template(tmp_path).tool_use([tool], ToolChoice())
    assert use is not None
    assert use.format == MISTRAL


def test_it_writes_sounds(tmp_path: Path) -> None:
    assert template(tmp_path).writes("audio", "[BEGIN_AUDIO][AUDIO]")


def test_other_files_go_first_and_models_without_sound_have_none(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("own")
    assert folder_template(tmp_path) == "own"
    (tmp_path / "chat_template.jinja").unlink()
    for fields in ({"config": {"version": "v13"}}, {"config": 1}):
        write(tmp_path, **fields)
        assert folder_template(tmp_path) is None
    (tmp_path / "tekken.json").write_text(json.dumps({"config": {"version": "v7"}}))
    assert folder_template(tmp_path) is None
