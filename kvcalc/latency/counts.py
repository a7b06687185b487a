"""The one check of whole numbers that both times make."""

from __future__ import annotations

from kvcalc.errors import ScenarioError


def check_count(field: str, value: object, *, least: int) -> None:
    """Refuse anything but a whole number from ``least``. Raises ScenarioError naming the field."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ScenarioError(field, f"a whole number from {least}", value, hint=f"Use at least {least}.")
