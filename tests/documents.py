"""Files that tests of uploads and pages make: PDFs and DOCX, whole, hostile and broken."""

from __future__ import annotations

import io
import zipfile
import zlib

from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject, TextStringObject

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
SENTENCE = "Words of a page of plain text. "


def pdf(
    pages: int, text: str = SENTENCE * 10, *, script: str | None = None, user: str | None = None, owner: str = "owner"
) -> bytes:
    """A PDF of US Letter pages with the same text; a script it asks to run; a password to open it."""
    writer = PdfWriter()
    font = writer._add_object(
        DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
    )
    for _ in range(pages):
        page = writer.add_blank_page(612, 792)
        content = StreamObject()
        content.set_data(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(content)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if script is not None:
        writer._root_object[NameObject("/OpenAction")] = DictionaryObject(
            {NameObject("/S"): NameObject("/JavaScript"), NameObject("/JS"): TextStringObject(script)}
        )
    if user is not None:
        writer.encrypt(user_password=user, owner_password=owner, algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def pdf_bomb(mebibytes: int) -> bytes:
    """A one-page PDF whose drawing instructions unpack to so many MiB."""
    writer = PdfWriter()
    page = writer.add_blank_page(612, 792)
    content = StreamObject()
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b" " * 2**20) for _ in range(mebibytes)) + packer.flush()
    content.set_data(packed)
    content[NameObject("/Filter")] = NameObject("/FlateDecode")
    page[NameObject("/Contents")] = writer._add_object(content)
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def docx(body: str, **parts: str) -> bytes:
    """A DOCX whose document holds this XML; other parts by name, without folder and suffix."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"<w:document {WORD}><w:body>{body}</w:body></w:document>")
        for name, text in parts.items():
            archive.writestr(f"word/{name}.xml", f"<w:part {WORD}>{text}</w:part>")
    return file.getvalue()


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def zip_bomb(mebibytes: int) -> bytes:
    """A DOCX of a few hundred kilobytes whose document unpacks to so many MiB; made without holding them."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/document.xml", "w", force_zip64=True) as part,
    ):
        part.write(f"<w:document {WORD}><w:p><w:r><w:t>".encode())
        for _ in range(mebibytes):
            part.write(b"a" * 2**20)
    return file.getvalue()
