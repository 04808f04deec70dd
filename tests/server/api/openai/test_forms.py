"""Bodies that are not forms, and damaged forms, where a route reads files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.api.openai.test_transcriptions import PATH, SECONDS, client_of
from tests.server.speech.speech_services import wav

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with client_of() as (client, _):
        yield client


@pytest.mark.parametrize(
    ("content_type", "status", "message"),
    [
        ("application/json", 400, "expected multipart/form-data, as curl -F sends"),
        ("", 400, "expected multipart/form-data, as curl -F sends"),
        ("multipart/form-data", 400, "body: the form cannot be read: Missing boundary"),
        ("multipart/form-data; boundary=C", 400, "body: the form cannot be read: Invalid"),
        ("multipart/form-data; boundary=B; charset=punycode", 400, "expected charset utf-8"),
        ("multipart/form-data; boundary=B; charset=UTF-8", 200, "Hello"),
    ],
)
def test_a_body_that_is_not_a_form_is_refused(
    client: httpx.Client, content_type: str, status: int, message: str
) -> None:
    """Python takes seconds to decode 300 KB of punycode, and a minute for 1 MB."""
    head = b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    note = head % (b"note", b"b" * 150_000 + b"-" + b"a" * 150_000)
    file = head % (b'file"; filename="a', wav(SECONDS))
    answer = client.post(
        PATH, content=note + file + b"--B--\r\n", headers={"Content-Type": content_type}
    )
    assert answer.status_code == status, answer.text
    assert message in (answer.json()["error"]["message"] if status > 200 else answer.text)


def test_a_file_in_place_of_a_text_is_named(client: httpx.Client) -> None:
    files = {"file": ("a.wav", wav(SECONDS)), "prompt": ("b.txt", b"text")}
    answer = client.post(PATH, files=files).json()["error"]
    assert (answer["param"], answer["got"]) == ("prompt", "a file")
