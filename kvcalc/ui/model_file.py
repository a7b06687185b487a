"""A model from a file: a GGUF header, or a config. The file leaves memory as soon as it is read."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from kvcalc import sources
from kvcalc.errors import ConfigError, KvcalcError
from kvcalc.ui import paste, upload

_COUNT = "model_file_count"
_LARGEST_MB = 64
_GGUF = b"GGUF"


def draw(take: Callable[..., None], refuse: Callable[[str], None]) -> None:
    """The uploader. Its script is loaded when this is shown, not before."""
    key = f"model_file_{st.session_state.setdefault(_COUNT, 0)}"
    st.file_uploader(
        "GGUF or JSON file",
        type=["gguf", "json"],
        key=key,
        max_upload_size=_LARGEST_MB,
        on_change=_read,
        args=(key, take, refuse),
    )
    st.markdown(
        ":small[:gray[Of a GGUF only the header is read, but a browser sends the whole file. Of a larger one send "
        "the first 32 MB, or run python -m kvcalc --gguf FILE.]]"
    )


def _read(key: str, take: Callable[..., None], refuse: Callable[[str], None]) -> None:
    file: UploadedFile | None = st.session_state.get(key)
    if file is None:
        return
    st.session_state[_COUNT] += 1
    content = file.getvalue()
    upload.forget(file)
    try:
        take(sources.from_gguf(content) if content.startswith(_GGUF) else paste.loaded(_decoded(content)))
    except KvcalcError as error:
        refuse(str(error))


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        expected = "a GGUF file, or a config as UTF-8 text"
        raise ConfigError("file", expected, "other bytes", hint="Choose config.json, or a .gguf file.") from None
