"""The Capacity page in a real browser, doing what its readers do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from kvcalc import Scenario, evaluate, to_link
from tests.support import page_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
MAIN = '[data-testid="stMain"]'


def open_page(page: Page, server: str, link: str = "") -> None:
    page.goto(f"{server}/?{link}" if link else server)
    page.wait_for_selector("h2")
    page_ready(page)


def verdict(page: Page) -> str:
    return page.locator("h2").inner_text()


def figures(page: Page) -> list[str]:
    return page.locator('[data-testid="stMetricValue"]').all_inner_texts()


def wait_for_change(page: Page, before: str) -> None:
    page.wait_for_function("before => document.querySelector('h2')?.innerText !== before", arg=before, timeout=20_000)
    page_ready(page)


def wait_for_verdict(page: Page, expected: str) -> None:
    """Until the page says this: on the way to another view it may show one answer more."""
    page.wait_for_function(
        "expected => document.querySelector('h2')?.innerText === expected", arg=expected, timeout=20_000
    )
    page_ready(page)


def type_into(page: Page, label: str, words: str) -> None:
    before = verdict(page)
    field = page.get_by_role("textbox", name=label, exact=True)
    field.fill(words)
    field.press("Enter")
    wait_for_change(page, before)


def choose(page: Page, label: str, words: str) -> None:
    before = verdict(page)
    field = page.get_by_role("combobox", name=label, exact=True)
    field.click()
    field.fill(words)
    page.get_by_role("option").first.click()
    wait_for_change(page, before)


def paste(page: Page, words: str) -> None:
    box = page.get_by_role("textbox", name="config.json", exact=True)
    if not box.is_visible():
        page.get_by_text("Paste a config, or a Hub id", exact=True).click()
    box.fill(words)
    page.get_by_role("button", name="Use this config").click()


def everything(page: Page) -> str:
    """All the words of the page, charts included."""
    spoken = page.locator('[data-testid="stVegaLiteChart"]').evaluate_all("all => all.map(x => x.ariaLabel)")
    return "\n".join([page.locator(MAIN).inner_text(), *spoken])


def test_a_first_visit_is_answered_and_asks_no_other_host(page: Page, server: str) -> None:
    hosts: set[str] = set()
    scripts: list[str] = []
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.on("request", lambda request: scripts.append(request.url) if request.url.endswith(".js") else None)
    open_page(page, server)
    assert verdict(page) == evaluate(Scenario.default()).sentence
    assert {host for host in hosts if host} == {urlsplit(server).netloc}
    heavy = [url for url in scripts if re.search(r"/(DataFrame|CodeBlock|Code|Table|Latex|katex)[.-]", url)]
    assert heavy == [], "nothing is loaded for what is not shown yet"


def test_the_first_chart_is_on_the_first_screen(page: Page, server: str) -> None:
    open_page(page, server)
    ends = page.locator('[data-testid="stVegaLiteChart"]').evaluate_all(
        "all => all.map(chart => chart.getBoundingClientRect().bottom)"
    )
    assert ends[1] <= 900, "the memory bar and the whole context chart end above the fold at 1440 x 900"


def test_the_job_from_first_visit_to_a_link_that_shows_the_same(page: Page, server: str, browser: Browser) -> None:
    open_page(page, server)
    choose(page, "Model", "Gemma 3 27B")
    choose(page, "GPU", "H200 SXM")
    type_into(page, "Prompt tokens", "12000")
    paste(page, json.dumps(CONFIG))
    page.wait_for_url("**model=pasted**")
    page_ready(page)
    query = parse_qs(urlsplit(page.url).query)
    assert (query["gpu"], query["prompt"]) == (["h200-sxm"], ["12000"])

    page.get_by_role("button", name="Share or export").click()
    shared = page.locator('[data-testid="stPopoverBody"] code').first.inner_text()
    page.keyboard.press("Escape")
    page_ready(page)
    shown = everything(page)

    fresh = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    fresh.goto(shared)
    fresh.wait_for_selector("h2")
    page_ready(fresh)
    assert everything(fresh) == shown
    assert fresh.locator(MAIN).get_by_text("could not", exact=False).count() == 0
    fresh.context.close()


def test_pasted_rubbish_leaves_the_answer_and_says_what_to_do(page: Page, server: str) -> None:
    open_page(page, server)
    before = (verdict(page), figures(page))
    paste(page, "<html><body>Not Found</body></html>")
    warning = page.locator('[data-testid="stSidebar"] [data-testid="stAlert"]')
    warning.wait_for()
    page_ready(page)
    assert "Showing Llama 3.3 70B Instruct until a model is read." in warning.inner_text()
    assert (verdict(page), figures(page)) == before


def test_a_bad_number_is_said_once_and_stays_in_its_field(page: Page, server: str) -> None:
    open_page(page, server)
    type_into(page, "Prompt tokens", "lots")
    alerts = page.locator('[data-testid="stAlert"]').all_inner_texts()
    assert alerts == ["prompt_tokens: expected a whole number, got 'lots'. Type digits only."]
    assert figures(page)[:3] == ["–", "–", "–"]
    assert page.get_by_role("textbox", name="Prompt tokens", exact=True).input_value() == "lots"


def test_back_returns_to_the_scenario_before(page: Page, server: str) -> None:
    open_page(page, server)
    first = verdict(page)
    type_into(page, "Prompt tokens", "15000")
    second = verdict(page)
    # A browser that went back within a second of a change is taken to be late, not to go back.
    page.wait_for_timeout(1_100)
    page.go_back()
    wait_for_change(page, second)
    assert verdict(page) == first
    assert page.get_by_role("textbox", name="Prompt tokens", exact=True).input_value() == "7,000"


def test_a_move_opens_as_its_own_scenario(page: Page, server: str) -> None:
    open_page(page, server)
    before = verdict(page)
    link = page.get_by_role("table", name="Best moves").get_by_role("link").first
    link.click()
    wait_for_change(page, before)
    assert page.locator('[data-testid="stAlert"]').count() == 0


def test_a_rare_input_is_there_once_its_box_is_opened(page: Page, server: str) -> None:
    open_page(page, server)
    field = page.get_by_role("textbox", name="Engine cap", exact=True)
    assert field.count() == 0
    page.get_by_text("Memory share, blocks, batching", exact=True).click()
    field.wait_for()
    page_ready(page)
    assert field.get_attribute("placeholder") == f"{evaluate(Scenario.default()).budget.max_num_seqs:,}"
    type_into(page, "Engine cap", "5")
    assert figures(page)[0] == "5"


def test_numbers_of_a_chart_open_as_a_table(page: Page, server: str) -> None:
    open_page(page, server)
    page.get_by_text("Numbers", exact=True).nth(1).click()
    table = page.get_by_role("table", name="Requests at once at each context")
    table.wait_for()
    assert table.get_by_role("rowheader", name="8,000", exact=True).count() == 1


def test_a_name_cannot_bring_markup_along(page: Page, server: str) -> None:
    open_page(page, server)
    page.get_by_text("Paste a config, or a Hub id", exact=True).click()
    page.get_by_role("textbox", name="config.json", exact=True).wait_for()
    page.get_by_role("textbox", name="Name it").fill("<img src=x onerror=alert(1)> $a$ :red[b]")
    paste(page, json.dumps(CONFIG))
    page.wait_for_url("**model=pasted**")
    page_ready(page)
    assert "<img src=x onerror=alert(1)> $a$ :red[b], weights as published" in page.locator(MAIN).inner_text()
    assert page.locator(f"{MAIN} img, {MAIN} .katex").count() == 0


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scenario", ["default", "window", "does not fit", "target"])
def test_nothing_overflows_sideways(page: Page, server: str, width: int, scenario: str) -> None:
    scenarios = {
        "default": Scenario.default(),
        "window": Scenario(model="google/gemma-3-27b-it"),
        "does not fit": Scenario(model="deepseek-ai/DeepSeek-V3", tp=2, pp=1),
        "target": Scenario(model="Qwen/Qwen3-8B", target_requests=5_000, replicas=3),
    }
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, server, to_link(scenarios[scenario]))
    assert verdict(page) == evaluate(scenarios[scenario]).sentence
    over = page.locator(MAIN).evaluate("main => main.scrollWidth - main.clientWidth")
    assert over <= 0


def test_the_dark_theme_follows_the_system(browser: Browser, server: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    open_page(page, server)
    ground = page.locator('[data-testid="stApp"]').evaluate("app => getComputedStyle(app).backgroundColor")
    assert ground == "rgb(20, 24, 31)"  # [theme.dark] backgroundColor, #14181F
    marks = page.locator('[data-testid="stVegaLiteChart"] svg').first.evaluate("svg => svg.outerHTML")
    assert "#7FB0F5" in marks, "the charts took the accent of the dark theme"
    context.close()


def test_charts_and_headings_speak(page: Page, server: str) -> None:
    open_page(page, server)
    report = evaluate(Scenario.default())
    spoken = page.locator('[data-testid="stVegaLiteChart"]').evaluate_all("all => all.map(x => x.ariaLabel)")
    assert len(spoken) == 3
    assert report.sentence in spoken[1]
    levels = page.locator(f"{MAIN} :is(h1,h2,h3,h4,h5,h6)").evaluate_all("all => all.map(x => x.tagName)")
    assert levels == ["H2", *["H3"] * (len(levels) - 1)]


def test_the_keyboard_reaches_and_changes_an_input(page: Page, server: str) -> None:
    open_page(page, server)
    before = verdict(page)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel") == "Prompt tokens":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type("15000")
    page.keyboard.press("Enter")
    wait_for_change(page, before)
    assert "16,000 tokens" in verdict(page)


def test_pipeline_stages_leave_every_other_input_working(page: Page, server: str) -> None:
    open_page(page, server)
    page.get_by_text("Other ways to split", exact=True).click()
    type_into(page, "Pipeline stages", "2")
    assert "8 × H100" in page.locator(MAIN).inner_text()
    type_into(page, "Prompt tokens", "20000")
    assert "8 × H100" in page.locator(MAIN).inner_text()
    type_into(page, "Pipeline stages", "0")
    type_into(page, "Pipeline stages", "1")
    assert "4 × H100" in page.locator(MAIN).inner_text()
    assert "20,000 prompt" in page.locator(MAIN).inner_text()
