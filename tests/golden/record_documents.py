"""Write documents with the libraries that other programs use.

pip install python-docx python-pptx openpyxl odfpy fpdf2
python tests/golden/record_documents.py
"""

# mypy: ignore-errors

from __future__ import annotations

import datetime
from pathlib import Path

import docx
import openpyxl
import pptx
from fpdf import FPDF
from odf import table
from odf.opendocument import OpenDocumentSpreadsheet, OpenDocumentText
from odf.text import H, P, S, Span

FOLDER = Path(__file__).parent / "documents"


def write_word() -> None:
    """A heading, a paragraph of several runs with a tab, and a table."""
    document = docx.Document()
    document.add_heading("Harvest report", 1)
    paragraph = document.add_paragraph("Apples & ")
    paragraph.add_run("pears").bold = True
    paragraph.add_run(" grow\there.")
    cells = document.add_table(2, 2)
    for row, texts in enumerate([("Fruit", "Tons"), ("Apples", "12")]):
        for column, text in enumerate(texts):
            cells.cell(row, column).text = text
    document.save(FOLDER / "report.docx")


def write_slides() -> None:
    """Two slides with titles."""
    slides = pptx.Presentation()
    for title, body in (("First slide", "One\nTwo"), ("Second slide", "Three")):
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body
    slides.save(FOLDER / "talk.pptx")


def write_sheets() -> None:
    """Two sheets, with a date, an empty cell and a formula that nobody has computed."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Yields"
    sheet.append(["Date", "Tons", None, "Organic"])
    sheet.append([datetime.date(2026, 11, 27), 12.5, None, True])
    sheet["E2"] = "=B2*2"
    book.create_sheet("Notes").append(["late & cold"])
    book.save(FOLDER / "yields.xlsx")


def write_open_documents() -> None:
    """A text with a run of spaces, and a sheet."""
    text = OpenDocumentText()
    text.text.addElement(H(outlinelevel=1, text="Harvest"))
    paragraph = P(text="Two")
    paragraph.addElement(S(c=2))
    paragraph.addElement(Span(text="spaces"))
    text.text.addElement(paragraph)
    text.save(FOLDER / "notes.odt")
    sheet = OpenDocumentSpreadsheet()
    rows = table.Table(name="T")
    for texts in (("a", "b"), ("1", "2")):
        row = table.TableRow()
        for value in texts:
            cell = table.TableCell()
            cell.addElement(P(text=value))
            row.addElement(cell)
        rows.addElement(row)
    sheet.spreadsheet.addElement(rows)
    sheet.save(FOLDER / "table.ods")


def write_pdf() -> None:
    """Two pages, and a file with a password."""
    pages = FPDF()
    for text in ("The first page.\nIts second line.", "The second page."):
        pages.add_page()
        pages.set_font("Helvetica", size=12)
        pages.multi_cell(0, 8, text)
    pages.output(str(FOLDER / "paper.pdf"))
    locked = FPDF()
    locked.add_page()
    locked.set_font("Helvetica", size=12)
    locked.cell(text="secret")
    locked.set_encryption("owner", "user")
    locked.output(str(FOLDER / "locked.pdf"))


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    write_word()
    write_slides()
    write_sheets()
    write_open_documents()
    write_pdf()


if __name__ == "__main__":
    main()
