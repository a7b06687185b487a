"""Counting a PDF with pypdf: text is read, nothing in the file is executed, followed or unpacked without limit."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kvcalc.document_size import Counted, DocumentCount, characters_to_tokens, document_tables
from kvcalc.errors import DocumentError, Note
from kvcalc.units import MIB, fmt_count
from kvcalc.uploads.tally import (
    MOST_PAGES,
    PAGES_READ_WHOLE,
    SECONDS,
    Clock,
    Tally,
    method_of,
    page_note,
    sample_range,
    short_name,
)

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

_MOST_CONTENT_BYTES = 8 * MIB
"""Drawing instructions of one page; a page with more is counted as one without text. [bytes]"""
_MOST_STREAM_BYTES = 32 * MIB
"""What any stream of a file may unpack to. [bytes]"""
_MOST_OPERATIONS = 500_000
"""Drawing operations and their operands on one page; a page of text has some thousands. [operations]"""
_KEPT_OBJECTS = 2_000
"""Objects the library may remember before its cache is emptied. [objects]"""
_SCRIPTS = ("/JavaScript", "/JS")


def count_pdf(content: bytes, name: str, *, tokenizer: Callable[[str], int] | None, clock: Clock) -> DocumentCount:
    """Counts of a PDF; see ``uploads.count``. Raises DocumentError."""
    until = clock() + SECONDS
    with _bounded():
        reader, pages = _opened(content, name)
        notes = [] if not _has_script(reader) else [Note(field="document", text=_SCRIPT_TEXT)]
        found = _read_pages(reader, pages, tokenizer, lambda: clock() >= until)
        size = _size_of_first_page(reader)
    if not found:
        raise _damaged(name)
    least = document_tables().page.least_characters
    scanned = sum(1 for page in found if page.characters < least)
    scanned_pages = -(-scanned * pages // len(found))
    if (note := page_note(len(found), pages, out_of_time=len(found) < min(pages, PAGES_READ_WHOLE))) is not None:
        notes.append(note)
    if scanned:
        notes.append(Note(field="document", text=_scanned_text(scanned_pages, pages)))
    return _counted(found, pages, scanned_pages, size, notes, with_tokenizer=tokenizer is not None)


_SCRIPT_TEXT = "The file carries a script. It was not run."


def _scanned_text(scanned: int, pages: int) -> str:
    """Pages without text, and what to do about them."""
    which = f"All {fmt_count(pages)}" if scanned >= pages else f"{fmt_count(scanned)} of {fmt_count(pages)}"
    return (
        f"{which} pages have hardly any text: they look scanned. Their text needs OCR before it counts, "
        "or a vision model that is shown them as pictures."
    )


def _counted(
    found: list[Tally],
    pages: int,
    scanned_pages: int,
    size: tuple[int, int] | None,
    notes: list[Note],
    *,
    with_tokenizer: bool,
) -> DocumentCount:
    """All pages' counts from those that were read."""
    low, typical, high = sample_range([page.characters for page in found], pages)
    counted: Counted = "tokenizer" if with_tokenizer else "estimate"
    tokens = (
        sample_range([page.tokens for page in found], pages)
        if with_tokenizer
        else (characters_to_tokens(low)[0], characters_to_tokens(typical)[1], characters_to_tokens(high)[2])
    )
    return DocumentCount(
        kind="PDF",
        pages=pages,
        pages_read=len(found),
        scanned_pages=scanned_pages,
        characters=typical,
        words=sample_range([page.words for page in found], pages)[1],
        tokens_low=tokens[0],
        tokens_typical=tokens[1],
        tokens_high=tokens[2],
        counted=counted,
        method=method_of(counted),
        page_width_points=None if size is None else size[0],
        page_height_points=None if size is None else size[1],
        notes=tuple(notes),
    )


@contextmanager
def _bounded() -> Iterator[None]:
    """pypdf with our limits on what a stream may unpack to and how long a page may be parsed, and without its log:
    a file's oddities are not ours to print."""
    from pypdf import apply_configuration

    log = logging.getLogger("pypdf")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with apply_configuration(
            zlib_maximum_output_length=_MOST_STREAM_BYTES,
            lzw_maximum_output_length=_MOST_STREAM_BYTES,
            run_length_maximum_output_length=_MOST_STREAM_BYTES,
            brotli_maximum_output_length=_MOST_STREAM_BYTES,
            array_based_stream_maximum_output_length=_MOST_STREAM_BYTES,
            stream_decoding_work_maximum_length=2 * _MOST_STREAM_BYTES,
            stream_parsing_work_maximum_count=_MOST_OPERATIONS,
            jbig2dec_binary=None,
        ):
            yield
    finally:
        log.setLevel(before)


def _opened(content: bytes, name: str) -> tuple[PdfReader, int]:
    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(content))
        locked = reader.is_encrypted and not _opens_without_password(reader)
        pages = 0 if locked else reader.get_num_pages()
    # A hostile file can make the library fail in any way, deep recursion included.
    except Exception as error:
        raise _damaged(name) from error
    if locked:
        raise DocumentError(
            "document", "a PDF without a password", f"{short_name(name)}, encrypted", hint="Save an unlocked copy."
        )
    if not pages:
        raise DocumentError("document", "a PDF with pages", f"{short_name(name)}, none", hint="Choose another file.")
    if pages > MOST_PAGES:
        raise DocumentError(
            "document", f"at most {fmt_count(MOST_PAGES)} pages", pages, hint="Type the tokens instead."
        )
    return reader, pages


def _opens_without_password(reader: PdfReader) -> bool:
    """Files with an owner's password only open with an empty one."""
    from pypdf.errors import DependencyError

    try:
        return bool(reader.decrypt(""))
    except (DependencyError, NotImplementedError):
        return False


def _damaged(name: str) -> DocumentError:
    return DocumentError("document", "a PDF that can be read", f"{short_name(name)}, damaged", hint="Save it again.")


def _has_script(reader: PdfReader) -> bool:
    """Whether the file names a script to run when it is opened. It is looked for, never run."""
    try:
        root: Any = reader.trailer["/Root"]
        names, action = root.get("/Names"), root.get("/OpenAction")
        action = action.get_object() if action is not None else None
        in_names = names is not None and "/JavaScript" in names.get_object()
        return in_names or (isinstance(action, dict) and (action.get("/S") in _SCRIPTS or "/JS" in action))
    except Exception:
        return False


def _read_pages(
    reader: PdfReader, pages: int, tokenizer: Callable[[str], int] | None, is_over: Callable[[], bool]
) -> list[Tally]:
    """Counts of the pages read. Their order spreads evenly, so that whenever time runs out they stand for all."""
    found: list[Tally] = []
    for index in spread(pages, PAGES_READ_WHOLE):
        if found and is_over():
            break
        tally = Tally(tokenizer)
        tally.add(_text_of(reader, index))
        found.append(tally)
        if len(reader.resolved_objects) > _KEPT_OBJECTS:
            _forget(reader)
    return found


def _forget(reader: PdfReader) -> None:
    """Empty the library's cache of objects, so that memory does not grow with pages."""
    reader.resolved_objects.clear()


def spread(pages: int, at_most: int) -> list[int]:
    """Page numbers to read, at most so many, evenly over the file and in an order whose every start is even too.

    >>> spread(4, 10), spread(8, 4)
    ([0, 2, 1, 3], [0, 4, 2, 6])
    """
    chosen = [index * pages // min(pages, at_most) for index in range(min(pages, at_most))]
    bits = max(1, (len(chosen) - 1).bit_length())
    order = sorted(range(len(chosen)), key=lambda place: int(f"{place:0{bits}b}"[::-1], 2))
    return [chosen[place] for place in order]


def _text_of(reader: PdfReader, index: int) -> str:
    """A page's text; nothing for a page that cannot be read or would take too long."""
    try:
        page = reader.pages[index]
        if _content_bytes(page) > _MOST_CONTENT_BYTES:
            return ""
        return page.extract_text()
    # One broken page must not lose the others, and the library can fail in any way on it.
    except Exception:
        return ""


def _content_bytes(page: PageObject) -> int:
    contents = page.get_contents()
    return 0 if contents is None else len(contents.get_data())


def _size_of_first_page(reader: PdfReader) -> tuple[int, int] | None:
    """Width and height of the first page in points, when they are sane."""
    try:
        box = reader.pages[0].mediabox
        size = round(float(box.width)), round(float(box.height))
    except Exception:
        return None
    return size if all(1 <= side <= _LARGEST_SIDE for side in size) else None


_LARGEST_SIDE = 14_400
"""200 inches: the largest page the format's first readers took. [points]"""
