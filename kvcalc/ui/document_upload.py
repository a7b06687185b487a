"""The box that counts a file. The file is read once, on the server, and forgotten: only its counts are kept."""

from __future__ import annotations

import threading

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from kvcalc.document_size import DocumentCount, DocumentQuestion
from kvcalc.errors import DocumentError, KvcalcError
from kvcalc.model_spec import ImageTokens
from kvcalc.ui import document_inputs, sidebar, text, upload
from kvcalc.units import MIB, fmt_count, fmt_tokens
from kvcalc.uploads import MOST_FILE_BYTES, check_size, count

KINDS = ["pdf", "docx", "txt", "md"]
_ROUND, _PROBLEM, _TOKENIZER = "doc_file_round", "doc_file_problem", "doc_tokenizer"
_MOST_TOKENIZER_BYTES = 40 * MIB
"""The largest vocabularies people serve take about half of this."""
_ONE_AT_A_TIME = threading.Lock()
"""A file takes a core while it is read, and the PDF library's limits hold for the whole process."""


def key() -> str:
    """The uploader's key. It changes with every file, so that the file does not stay with it."""
    return f"doc_file_{st.session_state.setdefault(_ROUND, 0)}"


def draw(rule: ImageTokens | None) -> None:
    """The folded box, what the last file was counted as, and why the last one was refused."""
    box = sidebar.fold("Count a file", "document_file")
    if box.open:
        with box:
            st.file_uploader(
                "PDF, DOCX, Markdown or text",
                KINDS,
                key=key(),
                on_change=_count,
                args=(key(), rule),
                max_upload_size=MOST_FILE_BYTES // MIB,
                help="Counted on the server that runs this page, then forgotten. Links carry the counts alone.",
            )
            st.file_uploader(
                "The model's tokenizer.json, for its own count",
                ["json"],
                key=_TOKENIZER,
                max_upload_size=_MOST_TOKENIZER_BYTES // MIB,
                help="Choose it before the document. Without it tokens are estimated from characters, as a range.",
            )
            if (found := document_inputs.counted()) is not None:
                st.markdown(f":small[{text.markdown(counted_as(found))}]")
    problem: str | None = st.session_state.get(_PROBLEM)
    if problem is not None:
        st.warning(text.markdown(problem))


def counted_as(found: DocumentCount) -> str:
    """What a file was counted as, in one line."""
    pages = "" if found.pages is None else f"{fmt_count(found.pages)} pages, "
    words = "1 word" if found.words == 1 else f"{fmt_count(found.words)} words"
    return f"{found.kind}: {pages}{words}, about {fmt_tokens(found.tokens_typical)} tokens."


def _count(widget: str, rule: ImageTokens | None) -> None:
    file: UploadedFile | None = st.session_state[widget]
    if file is None:
        return
    try:
        found = _counted(file)
        # A scan throughout is refused here, beside the file, where the model sees no pictures.
        DocumentQuestion.of_count(found, rule)
        document_inputs.use_count(found)
        st.session_state[_PROBLEM] = None
    except KvcalcError as error:
        st.session_state[_PROBLEM] = str(error)
    finally:
        st.session_state[_ROUND] += 1
        upload.forget(file)


def _counted(file: UploadedFile) -> DocumentCount:
    check_size(file.name, file.size)
    with _ONE_AT_A_TIME:
        return count(file.getvalue(), file.name, tokenizer_json=_tokenizer())


def _tokenizer() -> str | None:
    """The tokenizer.json chosen beside the document; None without one. Raises DocumentError for another file."""
    chosen: UploadedFile | None = st.session_state.get(_TOKENIZER)
    if chosen is None:
        return None
    try:
        return chosen.getvalue().decode()
    except UnicodeDecodeError as error:
        raise DocumentError("tokenizer", "a tokenizer.json", None, hint="Leave it out to get an estimate.") from error
