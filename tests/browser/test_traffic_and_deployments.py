"""Traffic, price, other deployments and the Method view in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from kvcalc import Scenario, evaluate, from_link, to_link
from kvcalc.fleet import fleet
from kvcalc.other_deployments import other_deployments
from kvcalc.units import fmt_cents
from tests.browser.test_capacity_page import MAIN, everything, open_page, verdict, wait_for_change
from tests.support import page_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def scenario(**fields: object) -> Scenario:
    return Scenario(**{**dict(Scenario.default()), **fields})


def fill(page: Page, label: str, words: str, key: str, value: str) -> None:
    """Type into an input and wait for the address to say so."""
    field = page.get_by_role("textbox", name=label, exact=True)
    field.fill(words)
    field.press("Enter")
    page.wait_for_url(f"**{key}={value}**")
    page_ready(page)


def unfold(page: Page, title: str) -> None:
    page.get_by_text(title, exact=True).click()
    page.wait_for_timeout(200)
    page_ready(page)


def test_traffic_and_a_price_show_the_cost_and_the_link_repeats_it_digit_for_digit(
    page: Page, server: str, browser: Browser
) -> None:
    open_page(page, server)
    unfold(page, "Traffic and price")
    fill(page, "Requests per hour", "3600", "per_hour", "3600")
    fill(page, "Prompt, p95", "20000", "prompt_p95", "20000")
    fill(page, "Price, $/GPU-hour", "2.5", "gpu_cents", "250")
    page.get_by_text("Traffic and cost", exact=True).wait_for()
    page_ready(page)
    asked = scenario(requests_per_hour=3_600, prompt_tokens_p95=20_000, price_cents_per_gpu_hour=250)
    assert from_link(page.url).scenario == asked
    found = fleet(asked)
    assert found is not None
    assert found.cost is not None
    shown = everything(page)
    assert found.sentence in shown
    assert fmt_cents(found.cost.cents_per_request * 1_000) in shown
    assert "$2.50 per GPU-hour as typed" in shown

    fresh = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    open_page(fresh, server, urlsplit(page.url).query)
    assert everything(fresh) == shown
    unfold(fresh, "Traffic and price")
    assert fresh.get_by_role("textbox", name="Price, $/GPU-hour", exact=True).input_value() == "2.50"
    fresh.context.close()


def test_a_deployment_opens_as_its_own_scenario(page: Page, server: str) -> None:
    asked = scenario(target_requests=100, cached_prompt_tokens=1_000)
    open_page(page, server, to_link(asked))
    before = verdict(page)
    unfold(page, "Other deployments that would do")
    table = page.get_by_role("table", name="Other deployments that would do")
    table.wait_for()
    best = other_deployments(evaluate(asked)).rows[0].scenario
    table.get_by_role("link").first.click()
    wait_for_change(page, before)
    assert verdict(page) == evaluate(best).sentence
    assert from_link(page.url).scenario == best
    assert (best.target_requests, best.cached_prompt_tokens) == (100, 1_000)


def test_folded_charts_are_drawn_when_they_are_opened(page: Page, server: str) -> None:
    open_page(page, server)
    charts = page.locator(f'{MAIN} [data-testid="stVegaLiteChart"]')
    assert charts.count() == 3
    unfold(page, "Output per second, as requests are added")
    unfold(page, "Time per token, as conversations grow")
    page.wait_for_function("() => document.querySelectorAll('[data-testid=\"stVegaLiteChart\"]').length === 5")
    page_ready(page)
    spoken = charts.evaluate_all("all => all.map(chart => chart.ariaLabel)")
    assert "Output stops growing at" in spoken[3]
    assert "throughout, a token takes" in spoken[4]
    page.get_by_text("Numbers", exact=True).nth(3).click()
    page.get_by_role("table", name="Output per second").wait_for()


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_sideways_with_everything_open(page: Page, server: str, width: int) -> None:
    asked = scenario(
        requests_per_hour=3_600,
        price_cents_per_gpu_hour=250,
        prompt_tokens_p95=20_000,
        speculative_tokens=2,
        cached_prompt_tokens=1_500,
        target_requests=100,
        target_ttft_ms=1_500,
        busy=True,
    )
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, server, to_link(asked))
    for title in (
        "Output per second, as requests are added",
        "Time per token, as conversations grow",
        "Other deployments that would do",
    ):
        unfold(page, title)
    page.get_by_role("table", name="Other deployments that would do").wait_for()
    over = page.locator(MAIN).evaluate("main => main.scrollWidth - main.clientWidth")
    assert over <= 0


@pytest.mark.parametrize("width", [390, 1440])
def test_the_method_is_read_without_more_scripts_and_its_anchors_work(page: Page, server: str, width: int) -> None:
    heavy: list[str] = []
    words = ("Vega", "Code", "katex", "Latex", "DataFrame", "Mono")
    page.on("request", lambda request: heavy.append(request.url) if any(w in request.url for w in words) else None)
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, server, "view=method")
    assert verdict(page) == "Method"
    assert page.locator(MAIN).evaluate("main => main.scrollWidth - main.clientWidth") <= 0
    heading = page.get_by_role("heading", name="Links", exact=True)
    top = "heading => heading.getBoundingClientRect().top"
    assert heading.evaluate(top) > 844
    page.get_by_role("link", name="Links", exact=True).click()
    page.wait_for_function("() => document.getElementById('method-links').getBoundingClientRect().top < 200")
    assert heading.evaluate(top) > 0
    assert heavy == []


def test_the_method_leaves_the_scenario_as_it_was(page: Page, server: str) -> None:
    asked = scenario(prompt_tokens=12_000)
    open_page(page, server, to_link(asked))
    before = verdict(page)
    page.get_by_role("link", name="Method", exact=True).click()
    wait_for_change(page, before)
    assert parse_qs(urlsplit(page.url).query)["view"] == ["method"]
    page.get_by_role("link", name="Capacity", exact=True).click()
    wait_for_change(page, "Method")
    assert verdict(page) == before
    assert from_link(page.url).scenario == asked
