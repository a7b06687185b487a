"""The Method view: the whole document, without a script, every anchor in reach."""

from __future__ import annotations

import re

from streamlit.testing.v1 import AppTest

import kvcalc
from kvcalc import glossary
from kvcalc.data import data_digest
from kvcalc.ui import method_text, text
from tests.support import ROOT

HTML = method_text.method_html()


def test_every_heading_of_the_document_is_there_one_level_down() -> None:
    headings = re.findall(r"^(##+) (.+)$", (ROOT / "METHODOLOGY.md").read_text(encoding="utf-8"), re.MULTILINE)
    for marks, title in headings:
        level = len(marks) + 1
        assert re.search(rf"<h{level} [^>]*>{re.escape(text.html(title))}</h{level}>", HTML), title


def test_every_anchor_leads_somewhere_on_the_page() -> None:
    targets = re.findall(r'href="#([^"]+)"', HTML)
    assert targets
    assert set(targets) <= set(re.findall(r' id="([^"]+)"', HTML))


def test_no_anchor_is_a_name_the_browser_keeps_for_itself() -> None:
    assert all(name.startswith("method-") for name in re.findall(r' id="([^"]+)"', HTML))


def test_the_glossary_is_a_list_with_every_term() -> None:
    for term in glossary.TERMS:
        assert f">{text.html(term.name)}" in HTML
        assert text.html(term.one_line) in HTML


def test_nothing_on_it_is_code_that_a_script_would_colour_or_a_note_to_maintainers() -> None:
    assert "<code" not in HTML
    assert "<!--" not in HTML
    assert "written by" not in HTML


def test_the_view_names_the_release_and_the_data() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["view"] = "method"
    app.run()
    assert not app.exception
    shown = " ".join(element.value for element in app.main.markdown).replace("\\", "")
    assert f"kvcalc {kvcalc.__version__}" in shown
    assert data_digest() in shown
