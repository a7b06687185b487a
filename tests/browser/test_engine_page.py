"""A log pasted in a real browser, its figures used, and the link opened by somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from kvcalc import Scenario, from_link, to_link
from kvcalc.enginelog import calibrate, parse
from kvcalc.reconcile import reconcile
from kvcalc.reconcile_words import sentence
from tests.browser.test_capacity_page import everything, figures, open_page, verdict, wait_for_change
from tests.support import page_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SCENARIO = Scenario(
    model="meta-llama/Llama-3.3-70B-Instruct", tp=2, pp=1, weight_precision="fp8", gpu="h100-sxm-80gb", engine="vllm"
)
LOG = """\
\x1b[36m(EngineCore pid=64)\x1b[0m INFO 05-12 08:01:12 Model loading took 33.88 GiB and 41.2 seconds
INFO 05-12 08:01:40 Available KV cache memory: 30.94 GiB
INFO 05-12 08:01:40 GPU KV cache size: 202,768 tokens
INFO 05-12 08:01:40 Maximum concurrency for 32,768 tokens per request: 6.19x
INFO 05-12 08:01:41 /home/somebody/models: 0.25 GiB for <b>something</b> new
"""
BOX = "Your engine's start-up log"
TOP_LINK, SIDE_LINK = '[data-testid="stTopNavLink"]', '[data-testid="stSidebarNavLink"]'


def open_engine(page: Page, server: str) -> None:
    open_page(page, server, f"view=engine&{to_link(SCENARIO)}")


def read_log(page: Page) -> None:
    before = verdict(page)
    page.get_by_role("textbox", name=BOX).fill(LOG)
    page.get_by_role("button", name="Read the log").click()
    wait_for_change(page, before)


def show_view(page: Page, title: str) -> None:
    page.locator(TOP_LINK, has_text=title).click()
    page.wait_for_selector(f'{TOP_LINK}[aria-current="page"]:has-text("{title}")')
    page_ready(page)


def test_a_log_explains_the_difference_and_its_link_opens_digit_for_digit(
    page: Page, browser: Browser, server: str
) -> None:
    open_engine(page, server)
    read_log(page)
    assert verdict(page) == sentence(reconcile(SCENARIO, parse(LOG)))
    assert figures(page) == ["30.94 GiB", "202,768", "6.19 ×", "25"]
    words = everything(page)
    assert "read 4 of 5 lines" in words
    assert "<b>something</b> new" in words, "the log is shown as text"
    page.get_by_role("button", name="Use these figures").click()
    page.wait_for_url("**weights_mib=34693**")
    page_ready(page)
    assert "somebody" not in unquote(page.url)
    assert from_link(page.url).scenario == calibrate(SCENARIO, parse(LOG)).scenario
    show_view(page, "Capacity")
    assert "view=" not in page.url
    mine = everything(page)
    other = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    open_page(other, server, page.url.partition("?")[2])
    assert everything(other) == mine
    assert "30.9 GiB" in mine
    other.context.close()


def test_page_links_keep_the_scenario_and_back_returns(page: Page, server: str) -> None:
    open_engine(page, server)
    read_log(page)
    here = page.url
    # The browser takes a quick step as a repair of the last entry, so that Back would skip it.
    page.wait_for_timeout(1_100)
    show_view(page, "Capacity")
    assert from_link(page.url).scenario == SCENARIO
    page.wait_for_timeout(1_100)
    page.go_back()
    page.wait_for_selector(f'{TOP_LINK}[aria-current="page"]:has-text("Why does my engine differ?")')
    page_ready(page)
    assert page.url == here
    assert verdict(page) == sentence(reconcile(SCENARIO, parse(LOG))), "the log is still there"
    page.reload()
    page.wait_for_selector("h2")
    page_ready(page)
    assert verdict(page) == sentence(reconcile(SCENARIO)), "a new visit knows no log"


def test_on_a_phone_page_links_take_no_height_and_nothing_hangs_out(browser: Browser, server: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page = context.new_page()
    open_engine(page, server)
    read_log(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator(TOP_LINK).count()
    assert page.locator("h2").bounding_box()["y"] < 130  # type: ignore[index]
    page.locator('[data-testid="stExpandSidebarButton"]').click()
    page.locator(SIDE_LINK, has_text="Capacity").click()
    page.wait_for_function("document.querySelectorAll('[data-testid=stVegaLiteChart]').length > 1")
    assert from_link(page.url).scenario == SCENARIO
    context.close()
