"""The Document view in a real browser, as the product manager it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from kvcalc import Scenario, to_link
from kvcalc.alternatives import document_page
from kvcalc.document_link import DEFAULT_PAGES, read_document_question, to_document_link
from kvcalc.document_size import DocumentQuestion
from kvcalc.uploads import MOST_FILE_BYTES
from tests.browser.test_capacity_page import (
    MAIN,
    everything,
    figures,
    open_page,
    type_into,
    verdict,
    wait_for_change,
    wait_for_verdict,
)
from tests.documents import pdf, zip_bomb
from tests.support import page_ready

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SERVER = Scenario(
    model="meta-llama/Llama-3.3-70B-Instruct",
    weight_precision="fp8",
    tp=2,
    pp=1,
    prompt_tokens=2_000,
    output_tokens=500,
    price_cents_per_gpu_hour=250,
)
PICKER = 'input[type=file][accept*=".pdf"]'
"""The document's own: the folded tokenizer has another."""
SIDEBAR = '[data-testid="stSidebar"]'


def open_document(page: Page, server: str, scenario: Scenario, question: DocumentQuestion) -> None:
    open_page(page, server, f"view=document&{to_document_link(scenario, question)}")


def choose_file(page: Page, name: str, content: bytes) -> None:
    chooser = page.locator(f"{SIDEBAR} {PICKER}")
    if not chooser.count():
        page.get_by_text("Count a file", exact=True).click()
        chooser.wait_for(state="attached")
        page_ready(page)
    chooser.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})


def shared_link(page: Page) -> str:
    page.get_by_role("button", name="Share or export").click()
    link = page.locator('[data-testid="stPopoverBody"] code').first.inner_text()
    page.keyboard.press("Escape")
    page_ready(page)
    return link


def same_elsewhere(browser: Browser, link: str, shown: str) -> None:
    """Another browser profile shows the same."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    other = context.new_page()
    other.goto(link)
    other.wait_for_selector("h2")
    page_ready(other)
    assert everything(other) == shown
    context.close()


def test_a_product_manager_adds_a_pdf_and_leaves_with_links(page: Page, server: str, browser: Browser) -> None:
    open_page(page, server, to_link(SERVER))
    today = verdict(page)
    page.get_by_role("link", name="Add a document").click()
    wait_for_change(page, today)
    assert verdict(page) == document_page(SERVER, DocumentQuestion.of_pages(DEFAULT_PAGES)).sentence

    before = verdict(page)
    choose_file(page, "customer-contract.pdf", pdf(120, "Words of a contract. " * 40))
    wait_for_change(page, before)
    question = read_document_question(page.url).question
    assert (question.pages, question.counted) == (120, "estimate")
    answer = document_page(SERVER, question)
    assert verdict(page) == answer.sentence
    assert verdict(page).startswith("A 120-page PDF makes each request ")
    assert "customer-contract" not in page.url

    link = shared_link(page)
    same_elsewhere(browser, link, everything(page))

    share = page.get_by_role("link", name="Open this scenario: Share the prefix")
    before = verdict(page)
    share.click()
    wait_for_change(page, before)
    way = next(way for way in answer.ways if way.id == "share_prefix")
    assert way.scenario is not None
    assert f"{way.scenario.prompt_tokens:,} prompt + 500 output tokens" in page.locator(MAIN).inner_text()
    assert page.locator('[data-testid="stAlert"]').count() == 0
    same_elsewhere(browser, shared_link(page), everything(page))

    page.go_back()
    page.get_by_role("heading", name=answer.sentence, exact=True).wait_for()


def test_hostile_files_are_refused_beside_their_box_and_the_answer_stays(page: Page, server: str) -> None:
    open_page(page, server, "view=document")
    before = (verdict(page), figures(page))
    alert = page.locator(f'{SIDEBAR} [data-testid="stAlert"]')
    refused = {
        "bomb.docx": (zip_bomb(220), "a file that unpacks to a document"),
        "locked.pdf": (pdf(1, user="secret"), "a PDF without a password"),
        f"{'n' * 200}.pdf": (b"%PDF-1.7 broken", "a PDF that can be read"),
        "scan.pdf": (pdf(2, ""), "pages with text, got '2 scanned pages'"),
    }
    for name, (content, said) in refused.items():
        choose_file(page, name, content)
        alert.filter(has_text=said).wait_for(timeout=20_000)
        page_ready(page)
        assert alert.count() == 1
        assert (verdict(page), figures(page)) == before
    choose_file(page, "notes.txt", "Déjà vu, words of a note. ".encode("latin-1") * 200)
    wait_for_change(page, before[0])
    assert alert.count() == 0


def test_a_file_over_the_limit_never_leaves_the_browser(page: Page, server: str, tmp_path: Path) -> None:
    open_page(page, server, "view=document")
    before = verdict(page)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "upload_file" in request.url else None)
    large = tmp_path / "large.pdf"
    with large.open("wb") as file:
        file.write(b"%PDF-1.7")
        file.truncate(MOST_FILE_BYTES + 2**20)
    page.get_by_text("Count a file", exact=True).click()
    page.locator(f"{SIDEBAR} {PICKER}").set_input_files(large)
    page.get_by_text("File must be", exact=False).wait_for(timeout=10_000)
    assert sent == []
    assert verdict(page) == before


def test_the_document_survives_another_view_and_back_leads_through_what_was_shown(page: Page, server: str) -> None:
    open_page(page, server)
    first = verdict(page)
    page.get_by_role("link", name="Add a document").click()
    wait_for_change(page, first)
    default = verdict(page)
    type_into(page, "Pages", "20")
    twenty = verdict(page)
    page.get_by_role("link", name="Capacity").click()
    wait_for_verdict(page, first)
    page.get_by_role("link", name="Add a document").click()
    wait_for_verdict(page, twenty)
    # The browser takes a quick step as a repair of the last entry, so that Back would skip it.
    page.wait_for_timeout(1_100)
    for expected in (first, twenty, default, first):
        page.go_back()
        wait_for_verdict(page, expected)
        page.wait_for_timeout(1_100)


def test_a_bad_number_is_said_once_and_stays_in_its_field(page: Page, server: str) -> None:
    open_page(page, server, "view=document")
    type_into(page, "Pages", "many")
    alerts = page.locator('[data-testid="stAlert"]').all_inner_texts()
    assert alerts == ["pages: expected a whole number, got 'many'. Type digits only."]
    assert set(figures(page)[:6]) == {"–"}
    assert page.get_by_role("textbox", name="Pages", exact=True).input_value() == "many"


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("pages", [12, 120])
def test_nothing_overflows_sideways(page: Page, server: str, width: int, pages: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_document(page, server, Scenario.default(), DocumentQuestion.of_pages(pages))
    over = page.locator(MAIN).evaluate("main => main.scrollWidth - main.clientWidth")
    assert over <= 0


def test_charts_and_headings_speak(page: Page, server: str) -> None:
    question = DocumentQuestion.of_pages(12)
    open_document(page, server, SERVER, question)
    found = document_page(SERVER, question).answer
    spoken = page.locator('[data-testid="stVegaLiteChart"]').evaluate_all("all => all.map(x => x.ariaLabel)")
    assert len(spoken) == 3
    assert f"With the document: {found.document.requests}" in spoken[0]
    assert f"Whole document {found.document.requests}" in spoken[1]
    levels = page.locator(f"{MAIN} :is(h1,h2,h3,h4,h5,h6)").evaluate_all("all => all.map(x => x.tagName)")
    assert levels == ["H2", *["H3"] * (len(levels) - 1)]
    page.get_by_text("Numbers", exact=True).nth(1).click()
    table = page.get_by_role("table", name="Requests at once by way of adding the document")
    table.wait_for()
    assert table.get_by_role("rowheader", name="Whole document", exact=True).count() == 1


def test_the_view_asks_no_other_host(page: Page, server: str) -> None:
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    open_page(page, server, "view=document")
    assert {host for host in hosts if host} == {urlsplit(server).netloc}
