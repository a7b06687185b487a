"""A model by its id on the Hugging Face Hub: its config, and what its checkpoint really holds.

Requests go through huggingface_hub's own HTTP session, which knows proxies, certificates and offline mode. They are
made here, not by its download functions, because those put files of gated models into a cache on disk that all
visitors share, read answers of any length, follow a redirect to any host, and wait as long as a server asks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

from kvcalc.errors import HubError, Note
from kvcalc.model_spec import ModelSpec
from kvcalc.reading.checkpoint import compare
from kvcalc.reading.hub_address import Address, read_address
from kvcalc.reading.hub_model import HubFile, HubModel, read_hub_model
from kvcalc.units import fmt_bytes, fmt_seconds

__all__ = ["HubFile", "HubModel", "census_note", "fetch"]

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_TIMEOUT_S = 10.0
LONGEST_FETCH_S = 40.0
MOST_ATTEMPTS = 3
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
MOST_REDIRECTS = 5
LONGEST_SHOWN_HOST = 60

_RETRIED = (408, 429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)
_TOKEN = re.compile(r"[\x21-\x7e]{1,200}")
_RATE_LIMIT = re.compile(r"\br=0\s*;\s*t=(\d{1,9})\b")
"""Nothing left, and the seconds until there is. Source: huggingface_hub 2.4, parse_ratelimit_headers."""
_OR_PASTE = "or paste the model's config.json."
_LATER = f"Try again later, {_OR_PASTE}"


def fetch(
    model: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    pause: Callable[[float], None] = time.sleep,
) -> HubModel:
    """A model's config and the size of its checkpoint, pinned to a commit.

    Parameters
    ----------
    model : ``org/name``, or an address of one of the model's pages.
    revision : branch, tag or commit; the default branch when None.
    token : a token for this call alone; else HF_TOKEN; else the call is anonymous. Never kept, logged or shown.
    endpoint : address of the Hub; else HF_ENDPOINT; else huggingface.co. No other host is contacted.
    timeout_s : longest wait for the server to send something. [s]
    pause : what waits between attempts; takes seconds.

    Raises
    ------
    HubError    naming what stands in the way, with the one thing to do.
    """
    base = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).strip().rstrip("/")
    secret = _token(token)
    address = read_address(model, endpoint=base, revision=revision, token=secret)
    return read_hub_model(_Visit(base, secret, address, timeout_s, pause), address)


def census_note(spec: ModelSpec, model: HubModel) -> Note | None:
    """Whether the census counts what the checkpoint holds, and if not, why; None when the Hub does not say."""
    return None if model.weights is None else compare(spec, model.weights)


def _token(typed: str | None) -> str | None:
    token = (typed or "").strip() or os.environ.get("HF_TOKEN", "").strip()
    if token and not _TOKEN.fullmatch(token):
        hint = "Copy it again, or leave it empty."
        raise HubError("token", "a token of the Hub", "something else (not shown)", hint=hint)
    return token or None


class _Answer(NamedTuple):
    """A response: its body only when it is a success."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class _Response(Protocol):
    """What is used of the session's response."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Header names, in lower case, and values."""

    def iter_bytes(self) -> Iterator[bytes]:
        """The body, piece by piece."""


class _NoAnswerError(Exception):
    """What happened instead: 'timeout', 'offline' or 'unreachable'."""


class _Visit:
    """All requests for one model: one host, one token, one clock."""

    def __init__(
        self, base: str, token: str | None, asked: Address, timeout_s: float, pause: Callable[[float], None]
    ) -> None:
        self.base = base
        self.asked = asked
        self.timeout_s = timeout_s
        self.pause = pause
        self.deadline = time.monotonic() + LONGEST_FETCH_S
        self.has_token = token is not None
        # The library's own headers would name the program it runs in, after asking a server about it.
        self._headers = {"user-agent": "kvcalc", "accept-encoding": "identity"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    def finish_within(self, seconds: float) -> None:
        """Give what follows no longer than this."""
        self.deadline = min(self.deadline, time.monotonic() + seconds)

    def get(self, path: str, limit: int, what: str, *, first: int | None = None) -> bytes:
        """The body at a path, after redirects on this host and repeated attempts; at most ``limit`` bytes.

        Raises HubError for anything but success.
        """
        url = self.base + path
        answer = self._attempts(url, limit, what, first)
        for _ in range(MOST_REDIRECTS):
            if answer.status not in _REDIRECTS:
                break
            url = urljoin(url, answer.headers.get("location", ""))
            if _origin(url) != _origin(self.base):
                host = (urlsplit(url).hostname or "nowhere")[:LONGEST_SHOWN_HOST]
                hint = "Only the Hub itself is asked: paste the model's config.json."
                raise HubError("model", f"{what} from the Hub", f"a redirect to {host}", hint=hint)
            answer = self._attempts(url, limit, what, first)
        if answer.status in (200, 206):
            return answer.body
        raise self._refusal(answer, what)

    def _attempts(self, url: str, limit: int, what: str, first: int | None) -> _Answer:
        """The first answer that is no passing trouble, or the last one."""
        failure = ""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            wait_s = FIRST_PAUSE_S * 2 ** (attempt - 1)
            try:
                answer = self._once(url, limit, what, first)
            except _NoAnswerError as error:
                failure = str(error)
            else:
                wait_s = _retry_after(answer.headers) or wait_s
                if answer.status not in _RETRIED or attempt == MOST_ATTEMPTS or wait_s > LONGEST_PAUSE_S:
                    return answer
            if failure == "offline" or time.monotonic() + wait_s > self.deadline:
                break
            if attempt < MOST_ATTEMPTS:
                self.pause(wait_s)
        raise self._no_answer(failure)

    def _once(self, url: str, limit: int, what: str, first: int | None) -> _Answer:
        """One request. The library's errors hold the request, token and all: none leaves here."""
        from huggingface_hub import get_session
        from huggingface_hub.errors import OfflineModeIsEnabled

        headers = dict(self._headers)
        if first is not None:
            headers["range"] = f"bytes={first}-{first + limit - 1}"
        failure = ""
        try:
            stream = get_session().stream("GET", url, headers=headers, timeout=self.timeout_s, follow_redirects=False)
            with stream as response:
                return self._read(response, limit, what, first)
        except (HubError, _NoAnswerError):
            raise
        except OfflineModeIsEnabled:
            failure = "offline"
        except Exception as error:
            # huggingface_hub 1 stands on httpx and 2 on httpx2: their errors share names, not classes.
            names = {kind.__name__ for kind in type(error).__mro__}
            if not names & {"HTTPError", "InvalidURL", "OSError"}:
                raise
            failure = "timeout" if "TimeoutException" in names else "unreachable"
        raise _NoAnswerError(failure)

    def _read(self, response: _Response, limit: int, what: str, first: int | None) -> _Answer:
        """The answer, with the body when it is a success: all of it, or the part asked for."""
        answer = _Answer(response.status_code, dict(response.headers))
        if answer.status not in (200, 206):
            return answer
        if first and answer.status == 200:
            hint = "Paste the model's config.json."
            raise HubError("model", f"a part of {what}", "the whole file", hint=hint)
        announced = answer.headers.get("content-length", "")
        too_large = first is None and announced.isdecimal() and len(announced) < 20 and int(announced) > limit
        body = bytearray()
        for chunk in () if too_large else response.iter_bytes():
            body += chunk
            if len(body) > limit or (first is not None and len(body) == limit):
                too_large = first is None
                break
            if time.monotonic() > self.deadline:
                raise _NoAnswerError("timeout")
        if too_large:
            hint = "Paste the model's config.json."
            raise HubError("model", f"{what} of at most {fmt_bytes(limit)}", "a larger one", hint=hint)
        return answer._replace(body=bytes(body[:limit]))

    def _no_answer(self, failure: str) -> HubError:
        host = (urlsplit(self.base).hostname or self.base)[:LONGEST_SHOWN_HOST]
        if failure == "offline":
            hint = f"Unset HF_HUB_OFFLINE, {_OR_PASTE}"
            return HubError("model", f"a connection to {host}", "offline mode", hint=hint)
        if failure == "timeout":
            return HubError("model", f"an answer from {host} in time", hint=_LATER)
        return HubError("model", f"a connection to {host}", hint=f"Check the network, {_OR_PASTE}")

    def _refusal(self, answer: _Answer, what: str) -> HubError:
        """The sentence for a status that is no success."""
        name, code = self.asked.model_id, answer.headers.get("x-error-code", "")
        if answer.status in (401, 403):
            return self._no_access(name, code, answer.headers.get("x-error-message", ""))
        if answer.status == 404 and code == "RevisionNotFound":
            hint = "Correct it, or leave it empty for the default branch."
            return HubError("revision", f"a branch, tag or commit of {name}", self.asked.revision, hint=hint)
        if answer.status == 404 and code == "EntryNotFound":
            return HubError("model", f"{what} in {name}", "no such file", hint="Paste the model's config.json.")
        if answer.status == 404:
            return HubError("model", "a model on the Hub", name, hint=f"Check its spelling, {_OR_PASTE}")
        if answer.status == 429:
            wait_s = _retry_after(answer.headers)
            when = "in a few minutes" if wait_s is None else f"in {fmt_seconds(wait_s)}"
            token = "" if self.has_token else ", give a token, which raises the limit"
            return HubError("model", "an answer", "too many requests", hint=f"Try again {when}{token}, {_OR_PASTE}")
        if answer.status in _REDIRECTS:
            return HubError("model", what, f"more than {MOST_REDIRECTS} redirects", hint=_LATER)
        return HubError("model", "an answer", f"an error of the Hub's own ({answer.status})", hint=_LATER)

    def _no_access(self, name: str, code: str, message: str) -> HubError:
        if "Invalid credentials" in message:
            hint = "Copy it again, or leave it empty."
            return HubError("token", "a token that the Hub accepts", "one it refuses (not shown)", hint=hint)
        if "disabled" in message:
            hint = "Paste the model's config.json."
            return HubError("model", "a model that the Hub serves", f"{name}, which is disabled", hint=hint)
        if code == "GatedRepo":
            do = "with this token's account" if self.has_token else "and give a token"
            hint = f"Accept its terms on the Hub {do}, {_OR_PASTE}"
            return HubError("model", "a model you may read", f"{name}, which is gated", hint=hint)
        # The Hub answers 401 for what does not exist as well, so that private names are not given away.
        do = "Check its spelling" if self.has_token else "Check its spelling, give a token if it is private"
        return HubError("model", "a model you may read", name, hint=f"{do}, {_OR_PASTE}")


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port that an address stands for."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, (parts.hostname or "").lower(), port
    except ValueError:
        return "", "", None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; None when it does not say. [s]"""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    limit = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return float(limit[1]) if limit else None
