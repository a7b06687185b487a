"""Takes the pictures of README in docs/shots: `make shots`."""

from __future__ import annotations

import sys
from typing import Literal, NamedTuple

from kvcalc import Scenario
from kvcalc.compare_link import to_compare_link
from tests.support import ROOT, chromium_path, page_ready, running_app, running_chromium

FOLDER = ROOT / "docs" / "shots"


class Shot(NamedTuple):
    """One picture."""

    name: str
    query: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"


_A = Scenario.default()
_OTHERS = (_A.model_copy(update={"kv_precision": "fp8"}), _A.model_copy(update={"gpu": "h200-sxm"}))
SHOTS = (
    Shot("capacity-light", "", 1440, 900),
    Shot("document-light", "view=document", 1440, 900),
    Shot("compare-light", f"view=compare&{to_compare_link(_A, _OTHERS)}", 1440, 900),
    Shot("capacity-dark", "", 1440, 900, "dark"),
    Shot("capacity-phone", "", 390, 844),
)
MOST_BYTES = 200_000
"""A picture larger than this slows README down for everybody."""


def main() -> int:
    """Take every picture; gives the exit code."""
    path = chromium_path()
    if path is None:
        print(
            "chromium: expected it on the PATH, got nothing. Run: sudo apt-get install chromium",
            file=sys.stderr,
        )
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with running_app() as address, running_chromium(path) as browser:
        for shot in SHOTS:
            page = browser.new_page(viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.scheme)
            page.goto(f"{address}/?{shot.query}")
            page_ready(page)
            if page.locator('[data-testid="stException"]').count():
                print(f"{shot.name}: expected an answer, got a fault. Look at the app's log.", file=sys.stderr)
                return 1
            size = len(page.screenshot(path=FOLDER / f"{shot.name}.png"))
            page.close()
            if size > MOST_BYTES:
                print(f"{shot.name}: expected at most {MOST_BYTES:,} B, got {size:,} B. Show less.", file=sys.stderr)
                return 1
            print(f"docs/shots/{shot.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
