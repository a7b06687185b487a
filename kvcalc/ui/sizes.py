"""Sizes as a person types them: GiB with a point, as engines print them; kept in whole MiB."""

from __future__ import annotations

import re
from fractions import Fraction

from kvcalc.errors import ScenarioError

_MIB_PER_GIB = 1024
_DECIMALS = (2, 3, 4)
"""A ten-thousandth of a GiB is less than half a MiB, so the last always tells."""
_SIZE = re.compile(r"(\d{1,9}|\d{1,3}(?:,\d{3}){1,2})?(?:\.(\d{1,9}))?\s*(gib|mib)?", re.ASCII | re.IGNORECASE)


def gib_text(mib: int) -> str:
    """A size in GiB with two decimals, more where they are needed to tell it from the next MiB.

    >>> gib_text(34_693), gib_text(31_682), gib_text(1_024)
    ('33.88', '30.939', '1.00')
    """
    texts = (_decimal(mib, decimals) for decimals in _DECIMALS)
    return next(shown for shown in texts if _mib(shown, "gib") == mib)


def _decimal(mib: int, decimals: int) -> str:
    scale = 10**decimals
    scaled = round(Fraction(mib * scale, _MIB_PER_GIB))
    return f"{scaled // scale:,}.{scaled % scale:0{decimals}d}"


def read_gib(field: str, text: str) -> int:
    """A size typed in GiB, or in MiB where it says so. [MiB] Raises ScenarioError.

    >>> read_gib("weights_mib", "33.88"), read_gib("weights_mib", "34,693 MiB")
    (34693, 34693)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found.group(1) is found.group(2) is None:
        hint = "Type it with a point, or leave it empty for the estimate."
        raise ScenarioError(field, "a size in GiB such as 33.88", text.strip(), hint=hint)
    number = f"{found.group(1) or '0'}.{found.group(2) or '0'}"
    return _mib(number, (found.group(3) or "gib").lower())


def _mib(number: str, unit: str) -> int:
    """Nearest whole MiB. [MiB]"""
    return round(Fraction(number.replace(",", "")) * (_MIB_PER_GIB if unit == "gib" else 1))
