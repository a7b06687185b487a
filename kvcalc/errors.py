"""What a user is told when an input cannot be used, and what was assumed when one was missing.

One voice for every refusal: ``<field>: expected <constraint>, got <value>. <One thing to do.>``
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

_LONGEST_VALUE = 80


class Record(BaseModel):
    """A frozen, strict record: no unknown field, no coercion, no NaN."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def shown(value: object) -> str:
    """The value as an error shows it: its repr, cut so that pasted junk is never echoed back."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


class KvcalcError(ValueError):
    """An input that cannot be used. Shown to the user as it is; anything else is a bug.

    field     what to look at, in the user's own words for it (a config key, a scenario field)
    expected  the constraint, starting in lower case, without a full stop
    got       the value refused; None means that it was missing
    hint      one thing to do, a sentence
    """

    def __init__(self, field: str, expected: str, got: object = None, *, hint: str) -> None:
        self.field, self.expected, self.got, self.hint = field, expected, got, hint
        value = "nothing" if got is None else shown(got)
        super().__init__(f"{field}: expected {expected}, got {value}. {hint}")


class ConfigError(KvcalcError):
    """A model configuration that cannot be sized."""


class CatalogueError(KvcalcError):
    """A bundled data file, or a name that the catalogue does not hold."""


class ScenarioError(KvcalcError):
    """A scenario field, or a combination of fields, that no engine could run."""


def check_whole(field: str, value: object, least: int, *, hint: str = "Check this field.") -> None:
    """Refuse anything but a whole number from ``least``. Raises ScenarioError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ScenarioError(field, f"a whole number from {least}", value, hint=hint)


class LinkError(KvcalcError):
    """A shared link that cannot be opened at all."""


class HubError(KvcalcError):
    """A model that could not be fetched from the Hub."""


class DocumentError(KvcalcError):
    """A file that cannot be counted."""


class Assumption(Record):
    """Something taken for granted because the input did not say it."""

    field: str
    """What was missing."""
    value: str
    """What was used, with its unit."""
    reason: str
    """Why this value, and where it comes from. One sentence."""


class Note(Record):
    """Something the reader must know about an answer or a link."""

    field: str
    """The input it concerns."""
    text: str
    """One or two sentences."""
