"""PDF and office documents on the chat page: their text is attached, with its number of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.server import fakes
from tests.server.openai_servers import LIBRARY, scripted

if TYPE_CHECKING:
    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

DOCUMENTS = Path(__file__).parents[2] / "golden" / "documents"
TEXTS = {
    "report.docx": "Harvest report\nApples & pears grow\there.\nFruit\tTons\nApples\t12",
    "talk.pptx": "First slide\nOne\nTwo\n\nSecond slide\nThree",
    "yields.xlsx": "Yields\nDate\tTons\t\tOrganic\n2026-11-27\t12.5\t\tTRUE\n\nNotes\nlate & cold",
    "notes.odt": "Harvest\nTwo  spaces",
    "table.ods": "a\tb\n1\t2",
    "paper.pdf": "The first page.\nIts second line.\n\nThe second page.",
}


def test_the_text_of_documents_is_attached(page: Page, doorman: Doorman, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes("\ufeffa;ä".encode("utf-16le"))
    (tmp_path / "damaged.docx").write_bytes(b"PK\3\4 and nothing else")
    (tmp_path / "old.doc").write_bytes(b"\xd0\xcf\x11\xe0")
    with fakes.running(scripted("fine"), before=doorman.before) as client:
        page.open(str(client.base_url))
        field = page.driver.find_element("id", "files")
        for path, problem in (
            (tmp_path / "damaged.docx", "it is not a .docx file, or is damaged or protected"),
            (tmp_path / "old.doc", "the format .doc cannot be read: save it as .docx."),
            (DOCUMENTS / "locked.pdf", "it is protected with a password."),
        ):
            field.send_keys(str(path))
            page.shows("#notice", f"{path.name}: {problem}")
        for name, text in TEXTS.items():
            field.send_keys(str(DOCUMENTS / name))
            page.shows(".chip", f"{name} · {len(LIBRARY.encode(text).ids)} tokens")
        field.send_keys(str(tmp_path / "table.csv"))
        page.shows(".chip", "table.csv · ")
        page.ask("compare")
        content = doorman.bodies[-1]["messages"][0]["content"]
        files = {**TEXTS, "table.csv": "a;ä"}
        fenced = [f"{name}\n```\n{text}\n```" for name, text in files.items()]
        assert content == "\n\n".join([*fenced, "compare"])
        page.driver.refresh()
        page.shows(".attachments summary", "paper.pdf")
