"""The document question: what it does to capacity and to everybody else, and its cheaper ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, ScenarioError, evaluate
from kvcalc.alternatives import document_page
from kvcalc.catalogue import model_presets
from kvcalc.document import document_answer, with_tokens
from kvcalc.document_size import DocumentCount, DocumentQuestion, page_image_tokens
from kvcalc.explain_document import document_steps
from kvcalc.model_spec import ImageTokens
from kvcalc.request_cost import request_figures
from kvcalc.scenario import spec_of

LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
SERVER = {"model": LLAMA_70B, "weight_precision": "fp8", "tp": 2, "pp": 1, "prompt_tokens": 2_000, "output_tokens": 500}


def server(**changes) -> Scenario:
    return Scenario(**{**SERVER, **changes})


def way(page, id):
    return next(one for one in page.ways if one.id == id)


def test_twelve_pages_are_as_many_tokens_as_the_data_file_says():
    question = DocumentQuestion.of_pages(12)
    assert (question.tokens_low, question.tokens_typical, question.tokens_high) == (12 * 700, 12 * 1_200, 12 * 2_400)
    assert question.method == ("12 pages: an estimate of 8,400 to 28,800 tokens, most likely 14,400 (1,200 a page).")


@pytest.mark.parametrize(
    ("pages", "name"),
    [(1, "A 1-page PDF"), (8, "An 8-page PDF"), (11, "An 11-page PDF"), (12, "A 12-page PDF"), (80, "An 80-page PDF")],
)
def test_a_document_is_named_as_one_says_it(pages, name):
    assert DocumentQuestion.of_pages(pages).name == name


def test_tokens_typed_have_no_range():
    question = DocumentQuestion.of_tokens(14_400)
    assert question.tokens_low == question.tokens_high == 14_400
    assert question.name == "A document of 14,400 tokens"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tokens_low": 20, "tokens_typical": 10, "tokens_high": 30}, "tokens_typical"),
        ({"tokens_low": 0, "tokens_typical": 10, "tokens_high": 30}, "tokens_low"),
        ({"tokens_low": 1, "tokens_typical": 2, "tokens_high": 3, "passages": 0}, "passages"),
        ({"tokens_low": 1, "tokens_typical": 2, "tokens_high": 3, "counted": "guessed"}, "counted"),
        ({"tokens_low": 1, "tokens_typical": 2.5, "tokens_high": 3}, "tokens_typical"),
    ],
)
def test_a_faulty_question_is_refused_by_field(change, field):
    with pytest.raises(ScenarioError) as refused:
        DocumentQuestion(**change)
    assert refused.value.field == field


@pytest.mark.parametrize(("dpi", "tokens"), [(72, 22 * 28), (100, 30 * 39), (150, 46 * 59), (200, 61 * 79)])
def test_a_letter_page_in_squares_of_28_pixels(dpi, tokens):
    # 612 x 792 points; at 150 dpi 1,275 x 1,650 pixels, 45.5 x 58.9 squares, rounded
    assert page_image_tokens(ImageTokens(pixels_per_token_side=28), dpi=dpi) == tokens


def test_a_page_as_a_picture_keeps_the_models_cap_and_its_fixed_count():
    assert page_image_tokens(ImageTokens(pixels_per_token_side=28, largest_image_tokens=1_000)) == 1_000
    assert page_image_tokens(ImageTokens(tokens_per_image=256)) == 256


def counted(**changes) -> DocumentCount:
    fields = {
        "kind": "PDF",
        "pages": 10,
        "pages_read": 10,
        "scanned_pages": 0,
        "characters": 35_000,
        "words": 6_000,
        "tokens_low": 7_000,
        "tokens_typical": 10_000,
        "tokens_high": 12_963,
        "counted": "estimate",
        "method": "",
    }
    return DocumentCount(**{**fields, **changes})


def test_scanned_pages_are_shown_to_a_model_that_sees_pictures():
    question = DocumentQuestion.of_count(counted(scanned_pages=2), ImageTokens(tokens_per_image=256))
    assert question.tokens_typical == 10_000 + 2 * 256


def test_a_scan_throughout_needs_ocr_or_a_model_that_sees():
    scan = counted(scanned_pages=10, tokens_low=0, tokens_typical=0, tokens_high=0)
    with pytest.raises(ScenarioError, match="OCR"):
        DocumentQuestion.of_count(scan)
    seen = DocumentQuestion.of_count(scan, ImageTokens(tokens_per_image=256))
    assert (seen.counted, seen.tokens_typical) == ("images", 2_560)


def test_the_answer_agrees_with_the_report_of_the_same_scenario():
    scenario = server(price_cents_per_gpu_hour=250, requests_per_hour=1_000)
    found = document_answer(scenario, DocumentQuestion.of_pages(12))
    before, after = evaluate(scenario), evaluate(found.scenario)
    assert found.today.requests == before.total_concurrency
    assert found.document.requests == after.total_concurrency
    assert found.today.kv_bytes == before.kv_bytes_per_request
    assert found.document.kv_bytes == after.kv_bytes_per_request
    assert found.document.ttft == after.ttft
    assert found.document.tpot.typical_s == after.tpot.typical_s
    assert after.scenario.prompt_tokens == 2_000 + 14_400


def test_money_needs_a_typed_price_and_a_month_needs_traffic():
    question = DocumentQuestion.of_pages(12)
    assert document_answer(server(), question).document.cents is None
    priced = document_answer(server(price_cents_per_gpu_hour=250), question)
    assert priced.document.cents > priced.today.cents > 0
    assert priced.month_cents_document is None
    busy = document_answer(server(price_cents_per_gpu_hour=250, requests_per_hour=100), question)
    assert busy.month_cents_document == pytest.approx(busy.document.cents * 100 * 730)


def test_others_wait_for_chunks_or_for_the_whole_document():
    chunked = document_answer(server(), DocumentQuestion.of_pages(12)).neighbours
    assert chunked.tpot_before.typical_s < chunked.tpot_while_read.typical_s
    assert chunked.steps == -(-16_400 // 8_192)
    assert chunked.still_fit < chunked.requests
    whole = document_answer(server(chunked_prefill=False), DocumentQuestion.of_pages(12)).neighbours
    assert whole.tpot_while_read is None
    assert "stands still" in whole.sentence


def test_several_shared_files_are_named_as_such():
    page = document_page(server(target_tpot_ms=None), DocumentQuestion.of_pages(12, documents_at_once=3))
    assert page.sentence.endswith("if they share 3 files.")


def test_a_document_that_does_not_fit_has_no_break_even():
    # A pool of 4,000 MiB holds 25,600 tokens of 163,840 bytes per GPU; 30 pages are 36,000.
    page = document_page(server(kv_pool_mib=4_000, max_model_len=20_000), DocumentQuestion.of_pages(30))
    assert page.answer.document.requests == 0
    assert way(page, "retrieve").break_even.startswith("A request with the whole document does not fit")


def test_no_way_is_recommended_where_nothing_is_lost():
    # One request more or less does not matter to an engine cap of 4.
    page = document_page(server(max_num_seqs=4), DocumentQuestion.of_pages(3))
    assert page.answer.displaced == 0
    assert page.best is None
    assert page.sentence.endswith("and the same 4 requests still run at once.")
    nothing = document_page(server(tp=1, weight_precision="bf16"), DocumentQuestion.of_pages(3))
    assert nothing.sentence == nothing.answer.sentence


def test_a_target_is_what_is_kept():
    found = document_answer(server(target_requests=20), DocumentQuestion.of_pages(12))
    assert found.wanted_requests == 20
    assert found.replicas_to_keep == -(-20 // found.document.requests_per_replica)


def test_a_server_that_holds_nothing_today_says_so():
    found = document_answer(server(tp=1, weight_precision="bf16"), DocumentQuestion.of_pages(1))
    assert found.sentence.startswith("Does not fit, with or without the document: weights")
    assert found.displaced == 0


@given(st.integers(1, 200_000), st.integers(1, 200_000))
def test_a_longer_document_never_serves_more(one, other):
    short, long = sorted((one, other))
    scenario = server()
    few = request_figures(with_tokens(scenario, long))
    many = request_figures(with_tokens(scenario, short))
    assert few.requests <= many.requests
    assert few.kv_bytes >= many.kv_bytes


@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 50))
def test_each_way_is_consistent(pages, questions, documents):
    page = document_page(
        server(),
        DocumentQuestion.of_pages(pages, questions_per_document=questions, documents_at_once=documents),
    )
    shared = way(page, "share_prefix")
    if shared.available:
        assert shared.figures.requests >= page.answer.document.requests
        assert shared.figures.ttft.typical_s <= page.answer.document.ttft.typical_s
    for one in page.ways:
        assert one.available or one.figures is None
        assert one.sentence.endswith(".")
        if one.figures is not None and one.cheaper_from_questions is not None:
            count, whole = one.cheaper_from_questions, page.answer.document.gpu_s
            assert one.once_gpu_s + count * one.figures.gpu_s < count * whole
            if count > 1:
                assert one.once_gpu_s + (count - 1) * one.figures.gpu_s >= (count - 1) * whole


def test_each_document_for_itself_shares_nothing():
    many = document_page(server(), DocumentQuestion.of_pages(12, documents_at_once=1_000))
    assert way(many, "share_prefix").figures.requests == many.answer.document.requests


def test_a_document_below_one_block_shares_nothing():
    # A hybrid's attention pages are as large as its states: blocks of hundreds of tokens.
    scenario = Scenario(model="Qwen/Qwen3-Next-80B-A3B-Instruct")
    found = way(document_page(scenario, DocumentQuestion.of_tokens(100)), "share_prefix")
    assert not found.available
    assert "does not fill one block" in found.sentence


def test_sharing_does_not_save_reading_so_the_speed_target_may_bind():
    held = way(document_page(server(target_tpot_ms=None), DocumentQuestion.of_pages(12)), "share_prefix")
    timed = way(document_page(server(target_tpot_ms=40), DocumentQuestion.of_pages(12)), "share_prefix")
    assert timed.figures.requests < held.figures.requests
    assert "reading the document in every step is what limits" in timed.sentence


def test_prefix_caching_that_is_off_is_a_condition():
    found = way(document_page(server(prefix_caching=False), DocumentQuestion.of_pages(12)), "share_prefix")
    assert found.condition.startswith("Needs prefix caching, which is off.")
    assert found.scenario.prefix_caching


def test_an_engine_that_copies_the_prefix_saves_its_computation_alone():
    scenario = Scenario(model="Qwen/Qwen3-8B", engine="llamacpp", prompt_tokens=2_000, output_tokens=500)
    page = document_page(scenario, DocumentQuestion.of_pages(5))
    found = way(page, "share_prefix")
    assert found.figures.requests == page.answer.document.requests
    assert "keeps a copy of it per request" in found.condition
    assert "held once" not in found.sentence
    # Its cap of slots binds, not the speed target.
    assert "is what limits" not in found.sentence


def test_passages_as_long_as_the_document_are_no_way():
    page = document_page(server(), DocumentQuestion.of_tokens(2_100))
    assert not way(page, "retrieve").available
    assert way(document_page(server(), DocumentQuestion.of_tokens(2_101)), "retrieve").available


def test_smaller_models_keep_less_and_fit_the_same_gpus():
    page = document_page(server(), DocumentQuestion.of_pages(12))
    found = way(page, "smaller_model")
    assert found.figures.kv_bytes < page.answer.document.kv_bytes
    assert (found.scenario.gpu, found.scenario.tp, found.scenario.replicas) == ("h100-sxm-80gb", 2, 1)
    assert evaluate(found.scenario).total_concurrency == found.figures.requests


def test_quantised_kv_shows_evidence_of_both_kinds():
    found = way(document_page(server(), DocumentQuestion.of_pages(12)), "quantise_kv")
    assert {row.finding for row in found.evidence} == {"keeps", "loses"}
    assert all(row.source.startswith("https://") for row in found.evidence)


def test_offload_serves_no_more_running_requests():
    found = way(document_page(server(), DocumentQuestion.of_pages(12)), "offload")
    assert found.figures is None
    assert found.sentence.startswith("Makes no room for a running request")


def test_a_gpu_without_rates_still_gets_requests():
    scenario = Scenario(
        model="Qwen/Qwen3-8B", gpu="custom", custom_gpu={"memory_mib": 81_920, "bandwidth_gb_per_s": 2_000}, tp=1, pp=1
    )
    page = document_page(scenario, DocumentQuestion.of_pages(5))
    assert page.answer.neighbours is None
    assert page.answer.document.requests < page.answer.today.requests
    assert way(page, "retrieve").break_even == "Not known: the GPU's rates are not stated."


@pytest.mark.parametrize("preset", [row.id for row in model_presets()][::12])
def test_any_preset_answers(preset):
    scenario = Scenario(model=preset)
    page = document_page(scenario, DocumentQuestion.of_pages(3))
    assert page.sentence.endswith(".")
    assert len(page.ways) == 6
    limit = spec_of(scenario).max_context_tokens
    assert page.answer.reach.is_possible == (limit is None or page.answer.reach.needed_tokens <= limit)


def test_requests_without_output_have_an_arithmetic_too():
    page = document_page(Scenario(**{**SERVER, "output_tokens": 0}), DocumentQuestion.of_pages(12))
    assert all(step.value for section in document_steps(page) for step in section.steps)


@pytest.mark.parametrize(
    ("tokens", "said"),
    # Today 2,000 + 500 tokens; a uniform cache, so tokens are the ratio: 2,510 ÷ 2,500, 2,700, 2,740, 5,000.
    [(10, "hardly bigger"), (200, "8% bigger"), (240, "1.1 times bigger"), (2_500, "2 times bigger")],
)
def test_a_small_document_is_a_share_more_and_never_one_times_bigger(tokens, said):
    assert (
        f"makes each request {said}" in document_page(Scenario(**SERVER), DocumentQuestion.of_tokens(tokens)).sentence
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "llamacpp"])
def test_a_full_pool_is_never_fuller_than_full(engine):
    # Windows of Gemma 3: llama.cpp's slots share the tokens of a step, so that 60 take less than 60 times one.
    scenario = Scenario(
        model="google/gemma-3-27b-it", weight_precision="int4", tp=1, pp=1, engine=engine, max_num_seqs=1_000
    )
    for use in document_page(scenario, DocumentQuestion.of_pages(12)).answer.pools:
        assert min(use.chat_bytes, use.document_bytes, use.free_bytes) >= 0
        total = use.chat_bytes + use.document_bytes + use.free_bytes
        assert total == evaluate(scenario).budget.kv_pool_bytes
