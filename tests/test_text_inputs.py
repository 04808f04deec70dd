"""Every text file that a user gives: a byte order mark, line ends of Windows, UTF-16, no text."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.calibration.calibration_text import calibration_text
from hearthd.baker.compare.measurement.passages import read_texts
from hearthd.baker.tuning.examples import ExampleReader
from hearthd.baker.weights import safetensors
from hearthd.baker.weights.source import read_text
from hearthd.bundle.lora.adapter_settings import parse_settings
from hearthd.server.batch.files import Requests
from hearthd.server.setting_files import read_keys, read_template
from hearthd.server.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Bytes:
    """A tokenizer of bytes."""

    def encode(self, text: str, *, position: str = "start") -> tuple[int, ...]:  # noqa: ARG002
        return tuple(text.encode())

    read = encode


def examples(path: Path) -> object:
    reader = ExampleReader(Bytes(), None, (0,), max_length=99, truncate=False)  # type: ignore[arg-type]
    return reader.read(path)


def requests(path: Path) -> object:
    return [(one.custom_id, one.url, one.body) for one in Requests(path).remaining(set())]


JSON = '{\r\n"r": 4, "lora_alpha": 8}\r\n'
REQUEST = '{"custom_id": "%s", "url": "/v1/completions", "body": {"prompt": "x"}}\r\n'
EXAMPLE = '{"prompt": "é", "completion": "b"}\r\n'
TEXT = "first line, é\r\nsecond line\r\n"

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "settings": (
        'tags = ["é"]\r\nport = 81\r\n',
        lambda path: load({"config": str(path)}).settings.port,
    ),
    "keys": (
        "first-key\r\nsecond-key\r\n",
        lambda path: read_keys(load({"api_key_file": str(path)}).settings),
    ),
    "template": (
        f"{{{{ bos_token }}}}{TEXT}",
        lambda path: read_template(load({"chat_template_file": str(path)}).settings),
    ),
    "requests": (REQUEST % "a" + REQUEST % "b", requests),
    "examples": (EXAMPLE * 2, examples),
    "json": (JSON, safetensors.read_json),
    "text": (TEXT, read_text),
    "passages": (TEXT, lambda path: read_texts([path])),
    "calibration": (TEXT, calibration_text),
    "adapter": (JSON, lambda path: parse_settings(path.read_bytes(), path)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_and_line_ends_change_nothing(name: str, tmp_path: Path) -> None:
    text, read = READERS[name]
    path = tmp_path / "file"
    path.write_bytes(text.replace("\r\n", "\n").encode())
    plain = read(path)
    for data in (codecs.BOM_UTF8 + text.encode(), text.encode()):
        path.write_bytes(data)
        assert read(path) == plain


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_utf_16_is_refused_in_one_sentence(name: str, encoding: str, tmp_path: Path) -> None:
    text, read = READERS[name]
    (tmp_path / "file").write_bytes(text.encode(encoding))
    with pytest.raises(Exception, match="it is UTF-16 text or binary, expected UTF-8") as raised:
        read(tmp_path / "file")
    assert name == "text" or str(tmp_path / "file") in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", READERS)
def test_bytes_that_are_not_text_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xe9-and-more\n")
    with pytest.raises(Exception, match=r"it is not UTF-8 text: .* byte 0xe9 in position 3"):
        READERS[name][1](tmp_path / "file")


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8, codecs.BOM_UTF8 + b"\r\n"])
def test_an_empty_file_is_named_or_has_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert load({"config": str(path)}).settings.port == 8080
    assert requests(path) == []
    for name, says in (
        ("keys", "must contain API keys"),
        ("template", "expected the source of a template"),
        ("examples", "has no examples"),
        ("json", "not JSON: Expecting value"),
        ("adapter", "not JSON: Expecting value"),
    ):
        with pytest.raises(Exception, match=says) as raised:
            READERS[name][1](path)
        assert str(path) in str(raised.value)
