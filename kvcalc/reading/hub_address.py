"""What a person pastes to name a model on the Hub → its id and revision. No network here."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from kvcalc.errors import HubError

_PASTE = "Paste the model's config.json."
_HUB_HOSTS = frozenset(["huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co"])
_OTHER_PAGES = {
    "datasets": "a dataset",
    "spaces": "a Space",
    "collections": "a collection",
    "papers": "a paper",
    "docs": "the documentation",
    "blog": "a blog post",
    "posts": "a post",
    "organizations": "an organisation's page",
    "settings": "a settings page",
}
_REVISION_AFTER = frozenset(["tree", "blob", "resolve", "raw", "commit", "commits"])
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_SECRET = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\bapi_org_[A-Za-z0-9]{8,}")
LONGEST_ID = 96
LONGEST_REVISION = 128
LONGEST_INPUT = 2_000


class Address(NamedTuple):
    """A model on the Hub."""

    model_id: str
    """Organisation and name, or a name alone for the oldest models: org/name."""
    revision: str | None
    """Branch, tag or commit; None for the default branch."""


def scrubbed(text: str, token: str | None = None) -> str:
    """The text with the token, and anything that looks like one, taken out."""
    if token:
        text = text.replace(token, "…")
    return _SECRET.sub("hf_…", text)


def read_address(text: str, *, endpoint: str, revision: str | None = None, token: str | None = None) -> Address:
    """The model that an id or any of its addresses names.

    Parameters
    ----------
    text : ``org/name``, or an address of the model's pages or files on the Hub or on ``endpoint``.
    revision : branch, tag or commit; overrules the address's.

    Raises
    ------
    HubError    an impossible id or revision, another site, or a page that is no model's.
    """
    text = text.strip()
    if not text or len(text) > LONGEST_INPUT:
        got = f"{len(text):,} characters" if text else None
        raise HubError("model", "a model id such as org/name, or its address on the Hub", got, hint=_PASTE)
    found, from_address = (text, None) if _is_bare(text) else _from_url(text, endpoint, token)
    return Address(checked_id(found, token), _checked_revision(revision or from_address, token))


def _is_bare(text: str) -> bool:
    return "://" not in text and text.count("/") <= 1 and not text.lower().startswith(("hf.co/", "huggingface.co/"))


def _from_url(text: str, endpoint: str, token: str | None) -> tuple[str, str | None]:
    parts = _split(text if "://" in text else f"https://{text}")
    hosts = _HUB_HOSTS | {_host(_split(endpoint))}
    if parts.scheme not in ("http", "https") or _host(parts) not in hosts:
        expected = "a model's address on the Hub"
        hint = "Give its id, org/name, or paste the model's config.json."
        raise HubError("model", expected, scrubbed(text, token), hint=hint)
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    if segments[:2] == ["api", "models"]:
        segments = segments[2:]
    elif segments[:1] == ["models"]:
        segments = segments[1:]
    if not segments:
        raise HubError("model", "a model's address", scrubbed(text, token), hint="Add the model's id, org/name.")
    if segments[0] in _OTHER_PAGES:
        what = f"{_OTHER_PAGES[segments[0]]} ({scrubbed('/'.join(segments[1:3]), token)})"
        raise HubError("model", "a model", what, hint="Give a model's id, org/name, or paste a config.json.")
    end = next((i for i, segment in enumerate(segments) if i and segment in (*_REVISION_AFTER, "discussions")), None)
    revision = None
    if end is not None and segments[end] in _REVISION_AFTER and len(segments) > end + 1:
        revision = segments[end + 1]
    return "/".join(segments[: min(2, end or 2)]), revision


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _host(parts: SplitResult) -> str:
    try:
        return (parts.hostname or "").lower()
    except ValueError:
        return ""


def checked_id(model_id: str, token: str | None = None) -> str:
    """The id, when it could be one. Raises HubError."""
    names = model_id.removesuffix("/").split("/")
    sane = len(names) <= 2 and len(model_id) <= LONGEST_ID and all(_sane_name(name) for name in names)
    if not sane or names[0] in _OTHER_PAGES:
        hint = "Use letters, digits, '-', '_' and '.', with one '/' between organisation and name."
        raise HubError("model", "a model id such as org/name", scrubbed(model_id, token), hint=hint)
    return "/".join(names)


def _sane_name(name: str) -> bool:
    return (
        bool(_SEGMENT.fullmatch(name))
        and ".." not in name
        and "--" not in name
        and not name.endswith((".git", ".", "-"))
    )


def _checked_revision(revision: str | None, token: str | None) -> str | None:
    if revision is None or not revision.strip():
        return None
    revision = revision.strip()
    sane = len(revision) <= LONGEST_REVISION and _REVISION.fullmatch(revision) and ".." not in revision
    if not sane or "//" in revision:
        raise HubError(
            "revision", "a branch, tag or commit", scrubbed(revision, token), hint="Leave it empty for main."
        )
    return revision
