"""Takes the pictures in docs/shots: `make shots`."""

from __future__ import annotations

import sys
from typing import Literal, NamedTuple

from kvcalc import Scenario, to_link
from kvcalc.scenario import DEFAULT_MODEL
from tests.support import ROOT, chromium_path, page_ready, running_app, running_chromium

FOLDER = ROOT / "docs" / "shots"


class Shot(NamedTuple):
    """One picture."""

    name: str
    query: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"


SHOTS = (
    Shot("capacity-light", "", 1440, 900),
    Shot("capacity-dark", "", 1440, 900, "dark"),
    Shot("capacity-phone", "", 390, 844),
    Shot("capacity-phone-dark", "", 390, 844, "dark"),
    Shot("capacity-window", to_link(Scenario(model="google/gemma-3-27b-it")), 1440, 900),
    Shot("capacity-does-not-fit", to_link(Scenario(model=DEFAULT_MODEL, tp=1, pp=1)), 1440, 900),
)


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
            page.screenshot(path=FOLDER / f"{shot.name}.png")
            page.close()
            print(f"docs/shots/{shot.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
