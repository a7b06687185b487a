"""Levers and Compare in a real browser: a lever is applied, scenarios are compared, sent on, and opened elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from kvcalc import Scenario, evaluate, to_link
from kvcalc.compare_link import read_compared, to_compare_link
from kvcalc.comparison import compare
from kvcalc.levers import levers
from tests.browser.test_capacity_page import MAIN, choose, everything, figures, open_page, verdict, wait_for_change
from tests.support import page_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

A = Scenario.default()
B = A.model_copy(update={"kv_precision": "fp8"})
C = A.model_copy(update={"gpu": "h200-sxm"})


def view(page: Page, title: str) -> None:
    """Open a view by its link on the page."""
    before = verdict(page)
    page.get_by_role("link", name=title, exact=True).click()
    wait_for_change(page, before)


def test_a_lever_is_applied_and_the_view_stays(page: Page, server: str) -> None:
    open_page(page, server, f"view=levers&{to_link(A)}&sessions=100&active=40")
    assert verdict(page) == levers(A, sessions=100, active=40).waterfall.sentence
    before = verdict(page)
    page.get_by_role("table", name="Quantisation").get_by_role("link", name="FP8 (per tensor) KV").click()
    wait_for_change(page, before)
    query = parse_qs(urlsplit(page.url).query)
    assert (query["view"], query["kv"], query["sessions"]) == (["levers"], ["fp8"], ["100"])
    assert verdict(page) == levers(B, sessions=100, active=40).waterfall.sentence
    view(page, "Capacity")
    assert verdict(page) == evaluate(B).sentence
    assert "sessions" not in parse_qs(urlsplit(page.url).query)
    view(page, "Levers")
    assert verdict(page) == levers(B, sessions=100, active=40).waterfall.sentence


def paste(page: Page, link: str) -> None:
    before = verdict(page)
    page.get_by_role("button", name="Paste a link").click()
    box = page.get_by_role("textbox", name="Link of another scenario")
    box.fill(link)
    box.press("Enter")
    wait_for_change(page, before)


def test_links_are_compared_reloaded_and_opened_by_somebody_else(page: Page, server: str, browser: Browser) -> None:
    open_page(page, server, f"view=compare&{to_link(A)}")
    paste(page, f"{server}/?{to_link(B)}")
    assert verdict(page) == compare((A, B)).sentence
    page.get_by_role("button", name="Copy A as C").click()
    page.get_by_role("button", name="Remove C").wait_for()
    page_ready(page)
    choose(page, "GPU", "H200 SXM")
    found = compare((A, B, C))
    assert verdict(page) == found.sentence
    assert read_compared(page.url).scenarios == {"B": B, "C": C}
    page.wait_for_timeout(500)
    shown = everything(page)
    page.reload()
    page.wait_for_selector("h2")
    page_ready(page)
    assert everything(page) == shown

    page.get_by_role("button", name="Share or export").click()
    shared = page.locator('[data-testid="stPopoverBody"] code').first.inner_text()
    fresh = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    fresh.goto(shared)
    fresh.wait_for_selector("h2")
    page_ready(fresh)
    assert everything(fresh) == shown
    assert fresh.locator('[data-testid="stAlert"]').count() == 0
    fresh.context.close()


def test_another_view_shows_the_first_scenario_and_back_the_comparison(page: Page, server: str) -> None:
    open_page(page, server, f"view=compare&{to_compare_link(A, (B,))}")
    sentence = verdict(page)
    page.locator('[data-testid="stSidebar"]').get_by_role("radio", name="B", exact=True).click()
    page.get_by_role("button", name="Remove B").wait_for()
    page_ready(page)
    view(page, "Capacity")
    assert verdict(page) == evaluate(A).sentence
    assert figures(page)[0] == f"{evaluate(A).total_concurrency:,}"
    page.wait_for_timeout(1_100)
    page.go_back()
    wait_for_change(page, evaluate(A).sentence)
    assert verdict(page) == sentence


def test_a_scenario_pinned_on_capacity_is_compared_with_what_comes_after(page: Page, server: str) -> None:
    open_page(page, server, to_link(A))
    page.get_by_role("button", name="Share or export").click()
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_text("Pinned as B.", exact=False).wait_for()
    page.keyboard.press("Escape")
    page_ready(page)
    before = verdict(page)
    page.get_by_role("table", name="Best moves").get_by_role("link", name="KV cache in FP8").click()
    wait_for_change(page, before)
    view(page, "Compare")
    assert verdict(page) == compare((B, A)).sentence


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("link", [f"view=levers&{to_link(A)}", f"view=compare&{to_compare_link(A, (B, C))}"])
def test_nothing_overflows_sideways(page: Page, server: str, width: int, link: str) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, server, link)
    assert page.locator(MAIN).evaluate("main => main.scrollWidth - main.clientWidth") <= 0
