"""Text → lines worth reading → readings → facts. Time grows with the length of the text, whatever is in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from kvcalc.enginelog.facts import EngineLog, EngineName, LogLine
from kvcalc.enginelog.found import Found, Match
from kvcalc.enginelog.merging import facts_of
from kvcalc.enginelog.patterns import PATTERNS

LONGEST_TEXT = 16 * 2**20
LONGEST_LINE = 4_000
LONGEST_SHOWN = 300
MOST_LINES = 20_000
"""Lines that hold a needle; what follows them is not read."""
MOST_WRAPPED = 2_000
"""Lines up to which a text is also read as a terminal wrapped it."""
MOST_UNREAD = 40

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,30}[ -/]{0,5}[@-~]|\[(?:\d{1,3};?){1,4}m(?![a-zA-Z])")
_MEMORY = re.compile(r"\d ?(?:Gi?B|Mi?B)\b|KV cache|\bnum_gpu_blocks\b", re.IGNORECASE)
_PROGRESS = re.compile(r"\d%\||it/s\b|B/s\b")
_RANK = re.compile(r"\bTP(\d{1,4})(?: [A-Z_]{2,9}\d{1,4}){0,4}\]|_TP(\d{1,4})|\brank=(\d{1,4})\b")
_NEEDLES = tuple(dict.fromkeys(pattern.needle for pattern in PATTERNS))


def parse(text: str) -> EngineLog:
    """The facts of a start-up log of vLLM, SGLang, TensorRT-LLM or llama.cpp.

    Parameters
    ----------
    text : as pasted or read from a file: colours, time stamps, several ranks and other programs' lines do no harm.

    Returns
    -------
    EngineLog. A text that says nothing has ``engine`` None; nothing is raised.

    Source
    ------
    The engines' own wording: ``kvcalc.enginelog.patterns``.
    """
    plain = _plain(text)
    starts = _line_starts(plain)
    lines = _lines_with_needles(plain, starts)
    matches = [match for line in lines for match in _matches(line)]
    if len(starts) <= MOST_WRAPPED:
        known = {found.fact for match in matches for found in match.found}
        matches += [match for match in _wrapped(plain.split("\n")) if not {x.fact for x in match.found} & known]
    engine = _engine(matches)
    used = [match for match in matches if match.pattern.engine in (engine, None)] if engine else []
    understood = {match.line.number for match in matches}
    unread, count = _unread(plain, starts, understood)
    return facts_of(engine, used, unread, count)


def _plain(text: str) -> str:
    """The text in lines: no colours, no carriage returns, escaped line ends undone."""
    text = text[:LONGEST_TEXT].replace("\r\n", "\n").replace("\r", "\n")
    if "\\n" in text:
        text = text.replace("\\n", "\n").replace('\\"', '"')
    if "\\u2588" in text:
        text = text.replace("\\u2588", "█")
    return _COLOUR.sub("", text) if "\x1b" in text or "m" in text else text


def _line_starts(text: str) -> list[int]:
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _line(text: str, starts: list[int], index: int) -> LogLine:
    start = starts[index]
    end = starts[index + 1] - 1 if index + 1 < len(starts) else len(text)
    return LogLine(number=index + 1, text=text[start : min(end, start + LONGEST_LINE)].strip())


def _lines_with_needles(text: str, starts: list[int]) -> Iterator[LogLine]:
    """Lines that some pattern could match, found needle by needle: most of a long text is never looked at."""
    lower = text.lower()
    if len(lower) != len(text):
        # Lower case may be longer (İ): then only ASCII letters are lowered.
        lower = text.translate(_ASCII_LOWER)
    wanted: set[int] = set()
    for needle in _NEEDLES:
        at = lower.find(needle)
        while at >= 0 and len(wanted) < MOST_LINES:
            index = bisect_right(starts, at) - 1
            wanted.add(index)
            after = starts[index + 1] if index + 1 < len(starts) else len(text)
            at = lower.find(needle, after)
    for index in sorted(wanted):
        yield _line(text, starts, index)


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _matches(line: LogLine) -> Iterator[Match]:
    lower = line.text.lower()
    rank = _rank(line.text)
    for order, pattern in enumerate(PATTERNS):
        if pattern.needle not in lower:
            continue
        for match in pattern.regex.finditer(line.text):
            found = []
            for name, value in match.groupdict().items():
                if value is not None:
                    fact, unit = name.split("__")
                    found.append(Found(order, fact, unit, value, line, rank))
            yield Match(pattern, tuple(found), line)


def _rank(text: str) -> int | None:
    match = _RANK.search(text)
    return None if match is None else int(next(group for group in match.groups() if group))


def _wrapped(lines: list[str]) -> Iterator[Match]:
    """Figures of sentences that a terminal cut in two to four: joined with a blank, and without."""
    for index in range(len(lines) - 1):
        for count in (2, 3, 4):
            pieces = [piece.strip() for piece in lines[index : index + count]]
            if len(pieces) < count or not all(pieces):
                break
            for mark in (" ", ""):
                joined = mark.join(pieces)[:LONGEST_LINE]
                yield from _matches(LogLine(number=index + 1, text=joined))


def _engine(matches: list[Match]) -> EngineName | None:
    """The engine most lines speak for."""
    votes: dict[EngineName, int] = {}
    for match in matches:
        engine = match.pattern.engine
        if engine is not None:
            votes[engine] = votes.get(engine, 0) + 1
    return max(votes.items(), key=lambda item: item[1])[0] if votes else None


def _unread(text: str, starts: list[int], understood: set[int]) -> tuple[list[LogLine], int]:
    """(the first lines that speak of memory and were not understood, how many there are); no progress bars."""
    shown: list[LogLine] = []
    count, last = 0, -1
    for match in _MEMORY.finditer(text):
        index = bisect_right(starts, match.start()) - 1
        if index == last:
            continue
        last = index
        if index + 1 in understood:
            continue
        end = starts[index + 1] if index + 1 < len(starts) else len(text)
        if _PROGRESS.search(text, starts[index], min(end, starts[index] + LONGEST_LINE)):
            continue
        count += 1
        if count <= MOST_UNREAD:
            line = _line(text, starts, index)
            shown.append(LogLine(number=line.number, text=line.text[:LONGEST_SHOWN]))
    return shown, count
