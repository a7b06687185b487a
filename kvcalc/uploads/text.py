"""Counting text and Markdown, in whatever encoding it comes."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from kvcalc.errors import DocumentError, Note
from kvcalc.units import MIB
from kvcalc.uploads.tally import Text, short_name

_PIECE = MIB // 4
_ENCODINGS = (
    (b"\xef\xbb\xbf", "utf-8-sig", "UTF-8"),
    (b"\xff\xfe", "utf-16", "UTF-16"),
    (b"\xfe\xff", "utf-16", "UTF-16"),
)
_MOST_CONTROL_SHARE = 0.02


def read_text(content: bytes, name: str, tally: Text) -> list[Note]:
    """Hand on text in UTF-8, UTF-16 with its mark, else the Western one-byte encodings. Raises DocumentError."""
    encoding = next((codec for mark, codec, _ in _ENCODINGS if content.startswith(mark)), "utf-8")
    notes: list[Note] = []
    if encoding == "utf-8" and not _decodes(content, encoding):
        encoding = "cp1252" if _decodes(content, "cp1252") else "latin-1"
        label = "Windows-1252" if encoding == "cp1252" else "Latin-1"
        notes.append(
            Note(field="document", text=f"Not UTF-8, so it was read as {label}; other encodings give other counts.")
        )
    if encoding != "utf-16":
        _refuse_binary(content, name)
    if not _decodes(content, encoding):
        raise DocumentError("document", "a text file", f"{short_name(name)}, damaged", hint="Save it again as UTF-8.")
    for piece in _pieces(content, encoding):
        tally.add(piece)
    return notes


def _refuse_binary(content: bytes, name: str) -> None:
    """A program, picture or old Word file is not text."""
    start = content[:_PIECE]
    controls = sum(start.count(bytes([code])) for code in range(32) if code not in b"\t\n\r\x0b\x0c\x1b")
    if controls > _MOST_CONTROL_SHARE * len(start):
        raise DocumentError(
            "document",
            "a PDF, DOCX, Markdown or text file",
            f"{short_name(name)}, another kind",
            hint="Save it as PDF or text.",
        )


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        for _ in _pieces(content, encoding):
            pass
    except UnicodeError:
        return False
    return True


def _pieces(content: bytes, encoding: str) -> Iterable[str]:
    """The text in pieces, cut at a line's or word's end where there is one, so that words are not cut."""
    decoder = codecs.getincrementaldecoder(encoding)()
    kept = ""
    for start in range(0, len(content), _PIECE):
        text = kept + decoder.decode(content[start : start + _PIECE], final=start + _PIECE >= len(content))
        cut = max(text.rfind("\n"), text.rfind(" ")) + 1 if start + _PIECE < len(content) else len(text)
        cut = cut or len(text)
        kept = text[cut:]
        if cut:
            yield text[:cut]
