"""A file → counts. Nothing of the file is stored, executed or sent on; what leaves is a ``DocumentCount``.

Readers stream: a file's text is counted page by page or piece by piece and dropped, so memory stays flat, within
limits of size, pages and time. Tokens come from the model's own tokenizer where its tokenizer.json is at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from kvcalc.document_size import DocumentCount
from kvcalc.errors import DocumentError
from kvcalc.units import fmt_bytes
from kvcalc.uploads.tally import MOST_FILE_BYTES, Clock, Tally, empty_file, short_name, whole_count
from kvcalc.uploads.text import read_text

__all__ = ["MOST_FILE_BYTES", "check_size", "count"]


def check_size(name: str, size_bytes: int) -> None:
    """Refuse a file by its size, before it is read. Raises DocumentError."""
    if size_bytes > MOST_FILE_BYTES:
        raise DocumentError(
            "document",
            f"a file of at most {fmt_bytes(MOST_FILE_BYTES)}",
            f"{fmt_bytes(size_bytes)} in {short_name(name)}",
            hint="Type its number of pages instead.",
        )


def count(
    content: bytes, name: str, *, tokenizer_json: str | None = None, clock: Clock = time.monotonic
) -> DocumentCount:
    """Pages, characters, words and tokens of a PDF, DOCX, Markdown or text file.

    Parameters
    ----------
    content : the file. Its kind is told by its bytes, not by its name.
    name : what to call it in a message; never opened.
    tokenizer_json : the model's own tokenizer.json; None estimates tokens from characters.
    clock : seconds, for the time limit. [s]

    Returns
    -------
    DocumentCount. Tokens are a range; ``method`` says where it comes from.

    Raises
    ------
    DocumentError    too large, encrypted, damaged, empty, scanned throughout with no page to count, another kind
                     of file, or a compressed file that unpacks to far more than it claims.
    """
    check_size(name, len(content))
    if not content.strip(b"\0\t\n\r\x0b\x0c "):
        raise empty_file(name)
    tokenizer = None if tokenizer_json is None else _tokenizer(tokenizer_json)
    if b"%PDF-" in content[:1024]:
        from kvcalc.uploads.pdf import count_pdf

        return count_pdf(content, name, tokenizer=tokenizer, clock=clock)
    tally = Tally(tokenizer)
    kind: Literal["text", "DOCX"] = "text"
    if content[:4] == b"PK\x03\x04":
        from kvcalc.uploads.docx import read_docx

        kind, notes = "DOCX", read_docx(content, name, tally, clock=clock)
    else:
        notes = read_text(content, name, tally)
    if not tally.characters:
        raise DocumentError(
            "document", "a file with text", f"{short_name(name)}, without any", hint="Choose another file."
        )
    return whole_count(kind, tally, notes, counted="estimate" if tokenizer is None else "tokenizer")


def _tokenizer(tokenizer_json: str) -> Callable[[str], int]:
    """Tokens of a text by a Hugging Face tokenizer. Raises DocumentError for a file that is none."""
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_str(tokenizer_json)
    # The library raises plain Exception for any fault in the file.
    except Exception as error:
        raise DocumentError("tokenizer", "a tokenizer.json", None, hint="Leave it out to get an estimate.") from error
    return lambda text: len(loaded.encode(text, add_special_tokens=False))
