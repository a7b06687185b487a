"""Pasted text → a dict, tolerant of how people copy a config.

Read: JSON with a byte order mark, trailing commas, // and # comments, NaN and Infinity, smart quotes; a Python
dict or a printed ``LlamaConfig {...}``; a fenced block inside a README. Never evaluated as code.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping

from kvcalc.errors import ConfigError

LARGEST_TEXT_CHARS = 2_000_000
"""The largest config.json known (a quantised model listing every excluded module) is a tenth of this."""
LARGEST_PYTHON_CHARS = 200_000
DEEPEST_NESTING = 32
MOST_ENTRIES = 200_000
LARGEST_NUMBER_BITS = 128

_RAW = "Open the file's raw view and copy its text."
_CONFIG = "Paste the text of the model's config.json, from its first { to its last }."
_SMART_QUOTES = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "}
)
_FENCE = re.compile(r"```[a-zA-Z0-9]*[ \t]*\n(.*?)```", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
_CLASS_NAME = re.compile(r"^[\w.]*Config\s*(?=\{)")


def parse(text: str) -> dict[str, object]:
    """The object in the text. Raises ConfigError, quickly and without echoing the text, when there is none."""
    if len(text) > LARGEST_TEXT_CHARS:
        raise ConfigError(
            "config", f"JSON text of up to {LARGEST_TEXT_CHARS:,} characters", f"{len(text):,} characters", hint=_CONFIG
        )
    text = text.lstrip("\ufeff").strip()
    if not text:
        raise ConfigError("config", "JSON text", hint=_CONFIG)
    _refuse_other_formats(text)
    value = _read(text)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a single value")
        raise ConfigError("config", "one JSON object", kind, hint=_CONFIG)
    check_size(value)
    return value


def _refuse_other_formats(text: str) -> None:
    start = text[:300].lower()
    if start.startswith(("<!doctype", "<html", "<head", "<?xml", "<div", "<body")):
        raise ConfigError("config", "JSON text", "an HTML page", hint=_RAW)
    if text.startswith("version https://git-lfs"):
        raise ConfigError("config", "JSON text", "a Git LFS pointer", hint="Download the file it points to.")
    if start.startswith("gguf"):
        raise ConfigError("config", "JSON text", "a GGUF file", hint="Paste the config.json of the original model.")


def _read(text: str) -> object:
    candidates = [text]
    if not text.startswith(("{", "[")):
        candidates = [block.strip() for block in _FENCE.findall(text)] or [_between_braces(text)]
    problem: str = "no object in it"
    for candidate in candidates:
        if not candidate:
            continue
        if _nesting(candidate) > DEEPEST_NESTING:
            raise ConfigError("config", f"at most {DEEPEST_NESTING} nested levels", "more", hint=_CONFIG)
        for attempt in (_as_json, _as_repaired_json, _as_python):
            try:
                return attempt(candidate)
            except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
                problem = _one_line(error) if attempt is _as_json else problem
    if _looks_cut(candidates[0]):
        raise ConfigError("config", "complete JSON text", "text that breaks off before the last }", hint=_CONFIG)
    raise ConfigError("config", "JSON text", f"text that is not JSON ({problem})", hint=_CONFIG)


def _as_json(text: str) -> object:
    return json.loads(text)


def _as_repaired_json(text: str) -> object:
    text = _CLASS_NAME.sub("", text.translate(_SMART_QUOTES))
    return json.loads(_TOKEN.sub(lambda found: found.group() if found.group().startswith('"') else "", text))


def _as_python(text: str) -> object:
    if len(text) > LARGEST_PYTHON_CHARS:
        raise ValueError("too long for a Python literal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.literal_eval(_CLASS_NAME.sub("", text.translate(_SMART_QUOTES)))


def _between_braces(text: str) -> str:
    first, last = text.find("{"), text.rfind("}")
    return text[first : last + 1] if 0 <= first < last else text[first:] if first >= 0 else ""


def _looks_cut(text: str) -> bool:
    return text.count("{") > text.count("}")


def _nesting(text: str) -> int:
    deepest = depth = 0
    for bracket in re.finditer(r"[\[{]|[\]}]", text):
        depth += 1 if bracket.group() in "[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST_NESTING:
            break
    return deepest


def _one_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg[0].lower()}{error.msg[1:]}"
    return "a number too long to read" if "digits" in str(error) else "unreadable"


def check_size(raw: Mapping[str, object]) -> None:
    """Refuse an object too deep or too large to be a config, and keys that are no text. Raises ConfigError."""
    seen = 0
    stack: list[tuple[object, int]] = [(raw, 1)]
    while stack:
        value, depth = stack.pop()
        if depth > DEEPEST_NESTING:
            raise ConfigError("config", f"at most {DEEPEST_NESTING} nested levels", "more", hint=_CONFIG)
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise ConfigError("config", "text as keys", "a key that is not text", hint=_CONFIG)
            children = list(value.values())
        elif isinstance(value, list | tuple):
            children = list(value)
        else:
            _check_scalar(value)
            continue
        seen += len(children)
        if seen > MOST_ENTRIES:
            raise ConfigError("config", f"at most {MOST_ENTRIES:,} entries", "more", hint=_CONFIG)
        stack.extend((child, depth + 1) for child in children if not isinstance(child, str))


def _check_scalar(value: object) -> None:
    if value is not None and not isinstance(value, str | int | float):
        raise ConfigError("config", "the kinds of value that JSON has", type(value).__name__, hint=_CONFIG)
    if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER_BITS:
        raise ConfigError("config", "numbers of up to 38 digits", "a longer one", hint=_CONFIG)
