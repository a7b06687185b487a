"""Counting a DOCX: its XML is read as a stream, so that no file, however it unpacks, takes memory.

The standard library's zip and expat readers do this whole; python-docx builds the tree of the document in memory
and leaves out text boxes and content controls.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from typing import IO
from xml.parsers import expat

from kvcalc.errors import DocumentError, Note
from kvcalc.units import MIB, fmt_bytes
from kvcalc.uploads.tally import SECONDS, Clock, Text, short_name

_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_MOST_ENTRIES = 20_000
_MOST_UNPACKED_BYTES = 500 * MIB
"""All parts together, pictures included, as the file claims. [bytes]"""
_MOST_XML_BYTES = 100 * MIB
"""Text parts, as they really unpack. [bytes]"""
_MOST_RATIO = 200
"""Unpacked against packed, for a text part of some size: prose packs four to twenty times. [ratio]"""
_SMALL_BYTES = MIB
_PIECE = MIB // 16
_ENCRYPTED = 0x1

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
_COMPATIBILITY = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def read_docx(content: bytes, name: str, text: Text, *, clock: Clock) -> list[Note]:
    """Hand the text of a DOCX on, paragraph by paragraph. Raises DocumentError."""
    until = clock() + SECONDS
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {entry.filename: entry for entry in _checked(archive, name)}
            if _PARTS[0] not in entries:
                raise DocumentError(
                    "document",
                    "a PDF, DOCX, Markdown or text file",
                    f"{short_name(name)}, a ZIP file of another kind",
                    hint="Save the document as PDF.",
                )
            room = _MOST_XML_BYTES
            for part in _PARTS:
                if part in entries:
                    with archive.open(entries[part]) as stream:
                        room = _Reader(text, name, lambda: clock() >= until).read(stream, room)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise _damaged(name) from error
    except expat.ExpatError as error:
        raise _damaged(name) from error
    return []


def _damaged(name: str) -> DocumentError:
    return DocumentError("document", "a DOCX that can be read", f"{short_name(name)}, damaged", hint="Save it again.")


def _bomb(name: str, size: int) -> DocumentError:
    return DocumentError(
        "document",
        "a file that unpacks to a document",
        f"{short_name(name)}, which unpacks to {fmt_bytes(size)} or more",
        hint="Save it again as PDF.",
    )


def _checked(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The parts, if what they claim is sane. Raises DocumentError."""
    entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > _MOST_ENTRIES or unpacked > _MOST_UNPACKED_BYTES:
        raise _bomb(name, unpacked)
    for entry in entries:
        is_large = entry.filename in _PARTS and entry.file_size > _SMALL_BYTES
        if is_large and entry.file_size > _MOST_RATIO * max(1, entry.compress_size):
            raise _bomb(name, entry.file_size)
        if entry.flag_bits & _ENCRYPTED:
            raise DocumentError(
                "document", "a DOCX without a password", f"{short_name(name)}, encrypted", hint="Save an unlocked copy."
            )
    return entries


class _Reader:
    """One XML part, read as a stream: the text of its runs, a paragraph at a time."""

    def __init__(self, text: Text, name: str, is_over: Callable[[], bool]) -> None:
        self._text, self._name, self._is_over = text, name, is_over
        self._pieces: list[str] = []
        self._held = 0
        self._in_text = False
        self._skipped = 0

    def read(self, stream: IO[bytes], room: int) -> int:
        """Read the part; returns what is left of the room. [bytes]"""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # No document has a document type; what declares one wants entities expanded.
        parser.StartDoctypeDeclHandler = self._refuse
        while piece := stream.read(_PIECE):
            room -= len(piece)
            if room < 0:
                raise _bomb(self._name, _MOST_XML_BYTES)
            if self._is_over():
                raise DocumentError(
                    "document",
                    f"a file that is read within {SECONDS:.0f} s",
                    short_name(self._name),
                    hint="Type its number of pages instead.",
                )
            parser.Parse(piece, False)
        parser.Parse(b"", True)
        self._flush()
        return room

    def _refuse(self, *_: object) -> None:
        raise _damaged(self._name)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        space, _, local = tag.rpartition(" ")
        if space == _COMPATIBILITY and local == "Fallback":
            # A text box is written twice: the second time for readers older than its first form.
            self._skipped += 1
        elif space in (_WORD, _STRICT):
            self._in_text = local == "t"
            if local in ("tab", "br", "cr"):
                self._keep(" ")

    def _end(self, tag: str) -> None:
        space, _, local = tag.rpartition(" ")
        if space == _COMPATIBILITY and local == "Fallback":
            self._skipped -= 1
        elif space in (_WORD, _STRICT):
            self._in_text = False
            if local == "p":
                self._keep("\n")
                self._flush()

    def _characters(self, data: str) -> None:
        if self._in_text:
            self._keep(data)

    def _keep(self, data: str) -> None:
        if self._skipped:
            return
        self._pieces.append(data)
        self._held += len(data)
        if self._held > _PIECE:
            self._flush()

    def _flush(self) -> None:
        paragraph = "".join(self._pieces)
        self._pieces, self._held = [], 0
        if paragraph.strip():
            self._text.add(paragraph)
