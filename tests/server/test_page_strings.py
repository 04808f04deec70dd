"""The texts of the chat page: the same keys and values in every language, all of them used."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server import web

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((web.FOLDER / "strings").glob("*.json"))
}
ENGLISH = LANGUAGES["en"]
TRANSLATED = sorted(LANGUAGES.keys() - {"en"})
INDEX = web.FILES["/"].read_text("utf-8")
ATTRIBUTES = "text|label|title|tip|placeholder"
# These are for a server of tools, the model, or readers of the code.
NOT_FOR_USERS = {
    "Error: the arguments are not a JSON object.",
    "Error: the server of this tool is not connected.",
    "Error: an image of the result cannot be read.",
    "Method not found",
    "Name: value",
    "The user did not allow this call.",
}
# Keys of texts that are the same as in English: names, loanwords, keys of keyboards.
SAMPLERS = {"settings.top_k", "settings.top_p", "settings.min_p"}
SAME = {
    "de": {"file.failed", "keys.escape", "notice.countdown"},
    "es": {"file.failed", "keys.control", "keys.escape", "meter.rate"},
    "fr": {
        "chat.placeholder", "keys.control", "list.actions", "list.file", "list.title",
        "message.log", "message.versions", "meter.rate", "settings.page",
    },
    "zh-Hans": {"keys.control", "keys.enter", "keys.escape", "keys.shift"},
}  # fmt: skip


def forms(text: str | dict[str, str]) -> Iterator[str]:
    """The forms of a text: several if it has a plural."""
    yield from [text] if isinstance(text, str) else text.values()


def values(text: str | dict[str, str]) -> set[str]:
    """The names of the values in a text."""
    return {name for form in forms(text) for name in re.findall(r"\{(\w+)\}", form)}


def test_the_page_names_every_language() -> None:
    named = re.search(r'data-languages="([^"]+)"', INDEX)
    assert named is not None
    assert named[1].split() == sorted(LANGUAGES)


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_language_has_every_text_with_the_same_values(language: str) -> None:
    texts = LANGUAGES[language]
    assert list(texts) == list(ENGLISH)
    for key, text in texts.items():
        assert values(text) == values(ENGLISH[key]), key
        assert isinstance(text, dict) == isinstance(ENGLISH[key], dict), key
        assert all(form.strip() == form != "" for form in forms(text)), key


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_text_is_not_left_in_english(language: str) -> None:
    same = {key for key, text in LANGUAGES[language].items() if text == ENGLISH[key]}
    assert same == SAMPLERS | SAME[language]


def test_every_text_is_used_and_every_key_has_a_text() -> None:
    used = set(re.findall(rf'data-(?:{ATTRIBUTES})="([^"]+)"', INDEX))
    for path in web.FILES.values():
        if path.suffix == ".js" and "vendor" not in path.parts:
            code = re.sub(r"^.*function phrase\(.*$", "", path.read_text("utf-8"), flags=re.M)
            keys = re.findall(r'\bphrase\("([^"]+)"', code)
            if path.name != "page.js":  # index.html has its keys
                assert len(keys) == len(re.findall(r"\bphrase\(", code)), path.name
            used |= set(keys)
    assert used == set(ENGLISH)


def test_the_page_has_no_words_outside_of_the_files() -> None:
    """What the page shows before its scripts run is in no language."""
    body = INDEX[INDEX.index("<body>") : INDEX.index("<noscript>")]
    assert set(re.findall(r"\w+", re.sub(r"<!--.*?-->|<[^>]*>", "", body))) == {"Hearth", "O"}
    assert not re.search(r"\s(title|aria-label)=", body)
    for path in web.FILES.values():
        if path.suffix == ".js" and "vendor" not in path.parts:
            sentences = re.findall(
                r"""["`]([A-Z“][^"`\n]* [a-z][^"`\n]*)["`]""", path.read_text("utf-8")
            )
            assert set(sentences) <= NOT_FOR_USERS, path.name


def test_punctuation_is_that_of_the_language() -> None:
    def found(language: str, pattern: str) -> list[Any]:
        texts = [form for text in LANGUAGES[language].values() for form in forms(text)]
        return [text for text in texts if re.search(pattern, text)]

    assert found("fr", r" [:;?!»]|« |\w[;?!]|'") == []
    assert found("es", r"^[^¿]*\?|^[^¡]*!") == []
    assert found("de", r"[“\"][^“]*[”\"]") == []
    assert found("zh-Hans", r"[\u4e00-\u9fff][,.;:?!()]|[,;?!][\u4e00-\u9fff]") == []
