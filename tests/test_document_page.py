"""The Document view without a browser: its inputs reach the core, a file leaves its counts, nothing typed is lost."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlencode

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from kvcalc import Scenario, to_link
from kvcalc.alternatives import DocumentPage, document_page
from kvcalc.document_link import DEFAULT_PAGES, read_document_question, to_document_link
from kvcalc.document_size import DocumentQuestion, document_tables
from kvcalc.explain_document import document_steps
from kvcalc.export_document import document_to_json, document_to_markdown
from kvcalc.ui import chart_document, chart_parts, chart_ways, document_inputs, text
from kvcalc.ui.labels import Plot
from kvcalc.units import GIB, fmt_count, fmt_gib, fmt_tokens
from tests.documents import docx, paragraph, pdf, zip_bomb
from tests.test_app import figures, opened, plain, run, typed, verdict
from tests.test_charts import boxes, overlap, rows

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
VISION = "Qwen/Qwen2.5-VL-7B-Instruct"
SERVER = {"model": LLAMA, "weight_precision": "fp8", "tp": 2, "pp": 1, "prompt_tokens": 2_000, "output_tokens": 500}


def view(scenario: Scenario | None = None, question: DocumentQuestion | None = None) -> AppTest:
    """The view, from a link where one is asked for."""
    if scenario is None:
        return opened("view=document")
    asked = question or DocumentQuestion.of_pages(DEFAULT_PAGES)
    return opened(f"view=document&{to_document_link(scenario, asked)}")


def set_number(app: AppTest, name: str, words: str) -> AppTest:
    app.text_input(key=document_inputs.key(name)).set_value(words)
    return run(app)


def choose_unit(app: AppTest, unit: str) -> AppTest:
    app.selectbox(key=document_inputs.key("unit")).set_value(unit)
    return run(app)


def asked(app: AppTest) -> DocumentQuestion:
    """The question in the address bar."""
    pairs = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    found = read_document_question(urlencode(pairs))
    assert found.notes == ()
    return found.question


def upload(app: AppTest, name: str, content: bytes) -> AppTest:
    app.session_state["fold_document_file"] = True
    run(app).file_uploader[0].set_value((name, content, "application/octet-stream"))
    return run(app)


def spoken(app: AppTest) -> str:
    shown = [plain(element.value) for element in app.main.markdown]
    return " ".join([*shown, *(element.proto.body for element in app.get("html"))])


def test_the_first_visit_answers_for_a_document_of_some_pages() -> None:
    app = view()
    page = document_page(Scenario.default(), DocumentQuestion.of_pages(DEFAULT_PAGES))
    found = page.answer
    assert verdict(app) == page.sentence
    assert list(figures(app))[:6] == [
        "KV per request",
        "Requests at once",
        "Displaced",
        "First token",
        "Time per token",
        "GPUs needed",
    ]
    assert figures(app)["KV per request"] == fmt_gib(found.document.kv_bytes)
    assert figures(app)["Requests at once"] == fmt_count(found.document.requests)
    assert figures(app)["Displaced"] == fmt_count(found.today.requests - found.document.requests)
    assert figures(app)["GPUs needed"] == fmt_count(found.gpus_to_keep or 0)
    assert asked(app) == found.question
    assert not app.warning
    assert not app.info


def test_pages_change_the_answer_and_the_address() -> None:
    app = set_number(view(), "pages", "20")
    question = DocumentQuestion.of_pages(20)
    assert verdict(app) == document_page(Scenario.default(), question).sentence
    assert asked(app) == question


def test_dense_pages_are_the_upper_end_and_typical_ones_the_lower() -> None:
    app = view()
    app.selectbox(key=document_inputs.key("density")).set_value("dense")
    page = document_tables().page
    found = asked(run(app))
    assert found.tokens_typical == found.tokens_high == DEFAULT_PAGES * page.dense_tokens
    assert found.tokens_low == DEFAULT_PAGES * page.typical_tokens


def test_tokens_are_taken_as_typed() -> None:
    app = set_number(choose_unit(view(), "tokens"), "tokens", "20000")
    assert verdict(app).startswith("A document of 20,000 tokens makes each request")
    assert app.text_input(key=document_inputs.key("tokens")).value == "20,000"


def test_a_price_takes_the_place_of_the_replicas() -> None:
    scenario = Scenario(**{**SERVER, "price_cents_per_gpu_hour": 250, "requests_per_hour": 100})
    app = view(scenario)
    assert "Per 1,000 requests" in figures(app)
    assert "A month of this traffic costs $" in spoken(app)


@pytest.mark.parametrize(
    "question",
    [
        DocumentQuestion.of_pages(7, density="light", questions_per_document=3),
        DocumentQuestion.of_tokens(31_000, documents_at_once=4, passages=2, passage_tokens=900, host_gib=256),
        DocumentQuestion(
            pages=31,
            counted="estimate",
            tokens_low=9_000,
            tokens_typical=11_000,
            tokens_high=14_000,
            summary_tokens=300,
        ),
    ],
    ids=["pages", "tokens", "a counted file"],
)
def test_a_link_opens_as_the_question_it_names(question: DocumentQuestion) -> None:
    scenario = Scenario(**SERVER)
    app = view(scenario, question)
    assert verdict(app) == document_page(scenario, question).sentence
    assert asked(app) == question


def test_a_bad_field_of_a_link_is_named() -> None:
    link = to_document_link(Scenario.default(), DocumentQuestion.of_pages(9))
    app = opened(f"view=document&{link.replace('doc_questions=10', 'doc_questions=many')}")
    assert "doc_questions: expected a whole number, got 'many'." in plain(app.info[0].value)
    assert asked(app) == DocumentQuestion.of_pages(9)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("pages", "0", "pages: expected a whole number from 1 to 416,666, got 0."),
        ("pages", "many", "pages: expected a whole number, got 'many'."),
        ("questions_per_document", "0", "questions_per_document: expected a whole number from 1 to 1,000,000, got 0."),
    ],
)
def test_a_bad_input_is_said_once_and_the_rest_stays(name: str, words: str, said: str) -> None:
    app = set_number(view(), name, words)
    assert [plain(box.value)[: len(said)] for box in app.warning] == [said]
    assert set(list(figures(app).values())[:6]) == {"–"}
    assert app.text_input(key=document_inputs.key(name)).value == words
    assert app.get("vega_lite_chart"), "the last answer's pictures stay"
    good = DocumentQuestion.of_pages(DEFAULT_PAGES)
    assert asked(app) == good, "the address keeps the last question that was one"
    restored = {"pages": str(DEFAULT_PAGES), "questions_per_document": "10"}[name]
    assert verdict(set_number(app, name, restored)) == document_page(Scenario.default(), good).sentence


def test_a_bad_scenario_keeps_the_document() -> None:
    app = typed(set_number(view(), "pages", "20"), "prompt_tokens", "lots")
    assert "prompt_tokens: expected a whole number, got 'lots'." in plain(app.warning[0].value)
    assert typed(app, "prompt_tokens", "7,000").header[0].value.startswith("A 20")


def test_the_question_survives_another_view() -> None:
    app = set_number(view(), "pages", "20")
    app.query_params["view"] = "capacity"
    assert "Longest context" in figures(run(app))
    app.query_params["view"] = "document"
    assert asked(run(app)) == DocumentQuestion.of_pages(20)
    assert app.text_input(key=document_inputs.key("pages")).value == "20"


def test_the_uploader_is_made_when_its_box_is_opened() -> None:
    app = view()
    assert not app.file_uploader
    app.session_state["fold_document_file"] = True
    assert len(run(app).file_uploader) == 2, "the document, and the tokenizer that may count it"


def test_a_pdf_is_counted_and_only_its_counts_are_kept() -> None:
    app = upload(view(), "secret-plan.pdf", pdf(30, "Confidential words. " * 100))
    question = asked(app)
    assert (question.pages, question.counted) == (30, "estimate")
    assert verdict(app).startswith("A 30-page PDF makes each request")
    assert "PDF: 30 pages, 6,000 words" in " ".join(plain(e.value) for e in app.sidebar.markdown)
    kept = repr(app.session_state)
    assert "doc_count" in kept
    for trace in ("secret-plan", "Confidential"):
        assert trace not in kept
        assert trace not in str(app.query_params)
        assert trace not in spoken(app)
    assert not app.warning


@pytest.mark.parametrize(
    ("name", "content"),
    [("notes.md", b"# Plan\n\nWords of a plan." * 50), ("café.txt", "déjà vu, ".encode("latin-1") * 100)],
)
def test_text_is_counted_in_whatever_encoding_it_comes(name: str, content: bytes) -> None:
    app = upload(view(), name, content)
    assert asked(app).pages is None
    assert verdict(app).startswith("A document of ")


def tokenizer_json() -> bytes:
    """A tokenizer.json whose every word is one token."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer.to_str().encode()


def test_the_models_own_tokenizer_counts_the_document_exactly() -> None:
    app = view()
    app.session_state["fold_document_file"] = True
    run(app).file_uploader[1].set_value(("tokenizer.json", tokenizer_json(), "application/json"))
    question = asked(upload(run(app), "notes.txt", b"one two three four\n" * 250))
    assert question.counted == "tokenizer"
    assert question.tokens_low == question.tokens_typical == question.tokens_high == 4 * 250


def test_a_file_that_is_no_tokenizer_is_named() -> None:
    app = view()
    app.session_state["fold_document_file"] = True
    run(app).file_uploader[1].set_value(("tokenizer.json", b'{"a": 1}', "application/json"))
    app = upload(run(app), "notes.txt", b"one two three four\n" * 250)
    assert any("tokenizer: expected a tokenizer.json" in plain(warning.value) for warning in app.warning)


def test_a_docx_is_counted() -> None:
    assert asked(upload(view(), "plan.docx", docx(paragraph("Words of a plan. " * 200)))).counted == "estimate"


HOSTILE = {
    "bomb.docx": (zip_bomb(220), "expected a file that unpacks to a document, got 'bomb.docx, which unpacks to"),
    "locked.pdf": (pdf(1, user="secret"), "expected a PDF without a password, got 'locked.pdf, encrypted'."),
    "broken.pdf": (b"%PDF-1.7\nnothing of the sort", "expected a PDF that can be read, got 'broken.pdf, damaged'."),
    "empty.txt": (b"  \n", "expected a file with text, got 'empty.txt, empty'."),
    "scan.pdf": (pdf(3, ""), "expected pages with text, got '3 scanned pages'. Run OCR on it first"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_be_counted_is_refused_beside_its_box_and_the_answer_stays(name: str) -> None:
    content, said = HOSTILE[name]
    before = view()
    shown = (verdict(before), figures(before))
    app = upload(before, name, content)
    assert said in plain(app.sidebar.warning[0].value)
    assert (verdict(app), figures(app)) == shown
    assert not upload(app, "notes.txt", b"Words of a note. " * 50).warning, "the next file is read"


def test_a_script_in_a_pdf_is_told_and_not_run() -> None:
    app = upload(view(), "form.pdf", pdf(2, script="app.alert(1)"))
    assert "The file carries a script. It was not run." in spoken(app)


def test_a_very_long_name_is_cut() -> None:
    app = upload(view(), f"{'n' * 5_000}.pdf", b"%PDF-1.7 no")
    assert len(plain(app.sidebar.warning[0].value)) < 200


def test_a_scan_is_shown_to_a_model_that_sees_pictures() -> None:
    app = upload(view(Scenario(model=VISION)), "scan.pdf", pdf(3, ""))
    assert asked(app).counted == "images"
    assert not app.warning


def test_pages_as_pictures_need_a_model_that_sees_them() -> None:
    app = set_number(choose_unit(view(Scenario(model=VISION)), "pictures"), "pages", "4")
    assert asked(app).counted == "images"
    link = urlencode({name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()})
    again = opened(link)
    assert verdict(again) == verdict(app)
    assert again.selectbox(key=document_inputs.key("unit")).value == "pictures"
    again.selectbox(key="in_model").set_value(LLAMA)
    assert "document: expected a model that sees pictures" in plain(run(again).warning[0].value)


def test_each_way_links_to_its_scenario() -> None:
    page = document_page(Scenario.default(), DocumentQuestion.of_pages(DEFAULT_PAGES))
    shown = spoken(view())
    linked = [way for way in page.ways if way.scenario is not None]
    assert len(linked) == 5
    for way in linked:
        assert way.scenario is not None
        assert f'href="?{text.html(to_link(way.scenario))}"' in shown
        assert text.html(way.sentence) in shown
        assert text.html(way.condition) in shown


def test_a_document_past_the_model_s_limit_is_not_possible_and_says_what_is() -> None:
    app = view(Scenario(model=LLAMA), DocumentQuestion.of_pages(200))
    assert app.header[0].value.startswith(":orange[Not possible:]")
    assert figures(app)["Requests at once"] == "0"
    assert figures(app)["First token"] == figures(app)["Time per token"] == "–"
    assert "Split the document, or use one of the cheaper ways." in spoken(app)


# Charts

PAGES: dict[str, tuple[dict[str, Any], DocumentQuestion]] = {
    "default": ({"model": LLAMA}, DocumentQuestion.of_pages(12)),
    "priced": (SERVER, DocumentQuestion.of_pages(12)),
    "exact": (SERVER, DocumentQuestion.of_tokens(20_000)),
    "past the model": ({"model": LLAMA}, DocumentQuestion.of_pages(120)),
    "far past the model": ({"model": LLAMA}, DocumentQuestion.of_pages(20_000)),
    "window": ({"model": "google/gemma-3-27b-it"}, DocumentQuestion.of_pages(40)),
    "speed binds": ({"model": LLAMA, "target_tpot_ms": 30}, DocumentQuestion.of_pages(12)),
    "engine cap": ({"model": "meta-llama/Llama-3.2-1B-Instruct", "prompt_tokens": 100}, DocumentQuestion.of_pages(1)),
    "two replicas": ({"model": LLAMA, "replicas": 2}, DocumentQuestion.of_pages(12)),
    "too long today": ({"model": LLAMA, "prompt_tokens": 120_000, "tp": 2, "pp": 1}, DocumentQuestion.of_pages(1)),
    "nothing runs": ({"model": LLAMA, "tp": 1, "pp": 1}, DocumentQuestion.of_pages(12)),
}


@pytest.fixture(params=PAGES, scope="module")
def page(request: pytest.FixtureRequest) -> DocumentPage:
    fields, question = PAGES[request.param]
    return document_page(Scenario(**fields), question)


def test_both_points_are_the_answer_s(page: DocumentPage) -> None:
    found = page.answer
    spec = chart_document.spec(found)
    points = rows(spec, chart_document.template(), "points")
    assert [point["x"] for point in points] == [found.today.context_tokens, found.document.context_tokens]
    words = {row["t"] for row in rows(spec, chart_document.template(), "labels")}
    assert f"Today: {fmt_count(found.today.requests) if found.today.requests else 'none'}" in words
    assert f"With the document: {fmt_count(found.document.requests) if found.document.requests else 'none'}" in words


def test_both_points_lie_inside_the_plot_and_have_their_ticks(page: DocumentPage) -> None:
    spec = chart_document.spec(page.answer)
    head = spec["layer"][0]["encoding"]
    (left, right), (low, high) = (head[axis]["scale"]["domain"] for axis in "xy")
    for point in rows(spec, chart_document.template(), "points"):
        assert left <= point["x"] <= right
        assert low <= point["y"] <= high
    assert page.answer.document.context_tokens in head["x"]["axis"]["values"]


@pytest.mark.parametrize("size", [size for size, _ in chart_parts.SIZES])
def test_no_two_labels_of_the_document_chart_overlap(page: DocumentPage, size: int) -> None:
    spec = chart_document.spec(page.answer)
    head = spec["layer"][0]["encoding"]
    x, y = (tuple(head[axis]["scale"]["domain"]) for axis in "xy")
    width = dict(chart_parts.SIZES)[size]
    plot = Plot(width=width, height=chart_parts.PLOT_HEIGHT, x_domain=x, y_domain=y, log=True, size=size)
    labels = [row for row in rows(spec, chart_document.template(), "labels") if row["n"] == size]
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes(labels, plot), 2))


def test_the_grey_bar_spans_the_range_of_the_document(page: DocumentPage) -> None:
    found = page.answer
    bars = rows(chart_document.spec(found), chart_document.template(), "range")
    exact = found.question.tokens_low == found.question.tokens_high
    assert bool(bars) == (found.reach.is_possible and not exact)
    for bar in bars:
        assert bar["x"] == found.fewest_tokens.context_tokens
        assert bar["x2"] <= found.most_tokens.context_tokens


def test_there_is_a_bar_for_every_way_that_can_work_and_its_number_is_whole(page: DocumentPage) -> None:
    ends = {row["name"]: row["t"] for row in rows(chart_ways.spec(page), chart_ways.template(), "ends")}
    assert ends["No document"] == fmt_count(page.answer.today.requests)
    assert ends["Whole document"] == fmt_count(page.answer.document.requests)
    for way in page.ways:
        if way.figures is not None and way.id in chart_ways.SHORT:
            assert ends[chart_ways.SHORT[way.id]] == fmt_count(way.figures.requests)


def test_only_a_bar_far_longer_than_all_others_is_cut() -> None:
    bars = [("No document", "soft", 57), ("Whole document", "ink", 20)]
    assert chart_ways.cut_at([*bars, ("Smaller-KV model", "wash", 114)]) is None
    assert chart_ways.cut_at([*bars, ("Smaller-KV model", "wash", 115)]) == 71  # 57 × 1.25


def test_the_pool_s_bars_sum_to_the_pool(page: DocumentPage) -> None:
    found = page.answer
    pieces = rows(chart_ways.pool_spec(found), chart_ways.template(), "segments")
    names = {row["name"] for row in pieces}
    assert len(names) == (2 if found.pool_bytes else 0)
    for name in names:
        own = [row for row in pieces if row["name"] == name]
        assert own[0]["x"] == 0
        assert all(left["x2"] == right["x"] for left, right in itertools.pairwise(own))
        assert own[-1]["x2"] == pytest.approx(found.pool_bytes / GIB, rel=1e-4)  # six digits travel


@pytest.mark.parametrize("chart", [chart_document, chart_ways])
def test_a_template_is_valid_vega_lite(chart: Any) -> None:
    alt.LayerChart.from_dict(chart.template()).to_dict(validate=True)


# Arithmetic and export


def test_the_arithmetic_of_twelve_pages() -> None:
    found = document_page(Scenario(**SERVER), DocumentQuestion.of_pages(12))
    lines = {step.title: step for section in document_steps(found) for step in section.steps}
    assert (lines["Document"].numbers, lines["Document"].value) == ("12 × 1,200", "14,400 tokens")
    # 2 x 80 layers x 8 heads x 128 x 2 bytes = 327,680 a token, x (2,000 + 500) and x (2,000 + 14,400 + 500)
    assert lines["KV per request today"].numbers == f"2,500 tokens, {fmt_tokens(2_500 * 327_680)} B"
    assert lines["KV per request with the document"].numbers == f"16,900 tokens, {fmt_tokens(16_900 * 327_680)} B"
    assert lines["How many times bigger"].value == "6.8 times"  # 16,900 / 2,500 = 6.76


def test_every_step_of_every_scenario_is_complete(page: DocumentPage) -> None:
    for section in document_steps(page):
        for step in section.steps:
            assert all((step.title, step.formula, step.numbers, step.value))


def test_the_export_says_what_the_page_says(page: DocumentPage) -> None:
    scenario = Scenario(**SERVER)
    words = document_to_markdown(page, scenario, address="http://127.0.0.1/").replace("\\", "")
    assert page.sentence in words
    assert f"http://127.0.0.1/?view=document&{to_document_link(scenario, page.answer.question)}" in words
    for way in page.ways:
        assert way.sentence in words
    assert DocumentPage.model_validate_json(document_to_json(page)) == page
