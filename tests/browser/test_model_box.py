"""A model from the Hub and from a file, in a real browser: the app talks to a stand-in of the Hub, to nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcalc import evaluate, from_link
from tests.browser.test_capacity_page import everything, open_page, verdict
from tests.hub_server import COMMIT, Answer, Hub, Repo, running_hub, safetensors
from tests.support import page_ready, running_app
from tests.test_gguf import LLAMA, written
from tests.test_hub import CONFIG, TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SLOW_S = 2.0
BIG = CONFIG | {"max_position_embeddings": 131_072}


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        yield running


@pytest.fixture(scope="module")
def app(hub: Hub) -> Iterator[str]:
    """The app whose Hub is the stand-in."""
    with running_app(HF_ENDPOINT=hub.address, HF_TOKEN="") as address:
        yield address


@pytest.fixture(autouse=True)
def repos(hub: Hub) -> None:
    hub.clear()
    config = {"config.json": json.dumps(BIG).encode()}
    for name in ("org/model", "org/slow"):
        hub.repos[name] = Repo(dict(config))
    hub.repos["org/gated"] = Repo(dict(config), gated=True)
    hub.repos["org/empty"] = Repo({"README.md": b"nothing"})
    hub.repos["org/gguf"] = Repo({"model-Q4_K_M.gguf": b"GGUF"})


def open_box(page: Page, app: str, source: str) -> None:
    open_page(page, app)
    page.get_by_text("Paste a config, or a Hub id", exact=True).click()
    page.get_by_role("radio", name=source).click()
    page.wait_for_selector(f'[role="radio"][aria-checked="true"]:has-text("{source}")')
    page_ready(page)


def read(page: Page, model: str, token: str = "") -> None:
    page.get_by_role("textbox", name="Hub id or address").fill(model)
    page.get_by_role("textbox", name="Token", exact=True).fill(token)
    page.get_by_role("button", name="Read from the Hub").click()


def test_a_hub_model_is_answered_with_its_commit_and_its_link_needs_no_hub(
    page: Page, browser: Browser, app: str, hub: Hub
) -> None:
    tensors = {"model.embed_tokens.weight": ("BF16", [100, 64], 12_800)}
    hub.repos["org/model"].files["model.safetensors"] = safetensors(tensors)
    open_box(page, app, "Hub id")
    read(page, f"{hub.address}/org/model/tree/main")
    page.wait_for_url("**label=org%2Fmodel**")
    page_ready(page)
    sidebar = page.locator('[data-testid="stSidebar"]').inner_text()
    assert f"Read from the Hub at commit {COMMIT}." in sidebar
    assert "Its tensors take 0.00 GiB" in sidebar
    scenario = from_link(page.url).scenario
    assert verdict(page) == evaluate(scenario).sentence
    asked = len(hub.requests)
    other = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    open_page(other, app, page.url.partition("?")[2])
    assert everything(other) == everything(page)
    assert len(hub.requests) == asked
    other.context.close()


def test_while_a_model_is_read_the_last_answer_stays(page: Page, app: str, hub: Hub) -> None:
    hub.script("org/slow", Answer(body=b"{}", delay_s=SLOW_S))
    open_box(page, app, "Hub id")
    before = everything(page)
    read(page, "org/slow")
    waiting = page.get_by_text("Showing Llama 3.3 70B Instruct until the new model is read.")
    waiting.wait_for(timeout=SLOW_S * 1000)
    assert everything(page) == before
    waiting.wait_for(state="detached")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("org/gated", "Accept its terms on the Hub and give a token"),
        ("org/missing", "Check its spelling"),
        ("org/empty", "config.json"),
        ("org/gguf", "GGUF"),
        ("../etc/passwd", "model: expected"),
        ("https://example.com/org/model", "model: expected a model's address on the Hub"),
    ],
)
def test_what_cannot_be_read_is_said_and_the_answer_stays(page: Page, app: str, model: str, says: str) -> None:
    open_box(page, app, "Hub id")
    before = everything(page)
    read(page, model)
    warning = page.locator('[data-testid="stSidebar"] [data-testid="stAlert"]')
    warning.wait_for()
    page_ready(page)
    assert says in warning.inner_text()
    assert "Showing Llama 3.3 70B Instruct until a model is read." in warning.inner_text()
    assert everything(page) == before


def test_a_token_opens_a_gated_model_and_travels_nowhere(page: Page, app: str, hub: Hub) -> None:
    open_box(page, app, "Hub id")
    read(page, "org/gated", TOKEN)
    page.wait_for_url("**label=org%2Fgated**")
    page_ready(page)
    assert any(request.headers.get("authorization") == f"Bearer {TOKEN}" for request in hub.requests)
    assert TOKEN not in page.url
    assert TOKEN not in page.locator("body").inner_text()


def test_a_gguf_file_is_read_by_its_header(page: Page, app: str, tmp_path: Path) -> None:
    file = written(tmp_path, "llama", LLAMA | {"general.name": "From a file", "general.file_type": 7})
    open_box(page, app, "File")
    page.locator('[data-testid="stFileUploaderDropzoneInput"]').set_input_files(file)
    page.wait_for_url("**label=From+a+file**")
    page_ready(page)
    scenario = from_link(page.url).scenario
    assert scenario.weight_precision == "q8_0"
    assert verdict(page) == evaluate(scenario).sentence


def test_the_closed_box_loads_nothing(page: Page, app: str) -> None:
    scripts: list[str] = []
    page.on("request", lambda request: scripts.append(request.url))
    open_page(page, app)
    assert not [url for url in scripts if "FileUploader" in url or "TextArea" in url]
    page.get_by_text("Paste a config, or a Hub id", exact=True).click()
    page.get_by_role("radio", name="File").click()
    page.wait_for_selector('[data-testid="stFileUploader"]')
    assert [url for url in scripts if "FileUploader" in url]


def test_a_hub_that_is_not_there_is_one_plain_sentence(page: Page) -> None:
    with running_app(HF_ENDPOINT="http://127.0.0.1:9", HF_TOKEN="") as offline:
        open_box(page, offline, "Hub id")
        read(page, "org/model")
        warning = page.locator('[data-testid="stSidebar"] [data-testid="stAlert"]')
        warning.wait_for(timeout=60_000)
        assert "paste the model's config.json" in warning.inner_text()
