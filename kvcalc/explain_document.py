"""The arithmetic of a document: tokens, KV, requests, what neighbours feel, GPU time, where each way breaks even."""

from __future__ import annotations

from kvcalc.alternatives import DocumentPage
from kvcalc.arithmetic import Section, Step
from kvcalc.document import DocumentAnswer
from kvcalc.request_cost import RequestFigures
from kvcalc.units import fmt_bytes, fmt_cents, fmt_count, fmt_factor, fmt_gib, fmt_ms, fmt_seconds, fmt_tokens
from kvcalc.way import Way

_SOURCE = "METHODOLOGY, Adding a document"


def document_steps(page: DocumentPage) -> tuple[Section, ...]:
    """Sections for KV per request, requests at once, neighbours, GPU time and break-even, as the answer has them."""
    found = page.answer
    sections = [_kv(found), _requests(found)]
    if found.neighbours is not None:
        sections.append(_neighbours(found))
    if found.today.gpu_s is not None and found.document.gpu_s is not None:
        sections.append(_gpu_time(found, page.ways))
    return tuple(sections)


def _step(title: str, formula: str, numbers: str, value: str) -> Step:
    return Step(title=title, formula=formula, numbers=numbers, value=value, source=_SOURCE)


def _kv(found: DocumentAnswer) -> Section:
    today, document = found.today, found.document
    before, after = fmt_gib(today.kv_bytes, 2), fmt_gib(document.kv_bytes, 2)
    lines = [
        _document_tokens(found),
        _step(
            "Tokens per request, with the document",
            "prompt + document + output",
            f"{fmt_tokens(today.prompt_tokens)} + {fmt_tokens(found.question.tokens_typical)} + "
            f"{fmt_tokens(today.output_tokens)}",
            f"{fmt_tokens(document.context_tokens)} tokens",
        ),
        _request_kv("KV per request today", today),
        _request_kv("KV per request with the document", document),
        _step("How many times bigger", "with ÷ without", f"{after} ÷ {before}", fmt_factor(found.kv_ratio)),
    ]
    return Section(title=f"KV per request: {before} → {after}", steps=tuple(lines))


def _document_tokens(found: DocumentAnswer) -> Step:
    question = found.question
    value = f"{fmt_tokens(question.tokens_typical)} tokens"
    if question.pages is not None and question.counted in ("pages", "images"):
        each = fmt_tokens(question.tokens_typical // question.pages)
        return _step("Document", "pages × tokens a page", f"{fmt_count(question.pages)} × {each}", value)
    how = {"tokens": "as typed", "tokenizer": "by the model's own tokenizer"}.get(question.counted, "")
    low, high = fmt_tokens(question.tokens_low), fmt_tokens(question.tokens_high)
    numbers = f"{low} to {high}, most likely" if low != high else low
    return _step("Document", how or "characters ÷ characters a token", numbers, value)


def _request_kv(title: str, figures: RequestFigures) -> Step:
    return _step(
        title,
        "bytes all layers keep of its tokens, over all GPUs of a replica",
        f"{fmt_tokens(figures.context_tokens)} tokens, {fmt_bytes(figures.kv_bytes, exact=True)}",
        fmt_gib(figures.kv_bytes, 2),
    )


def _requests(found: DocumentAnswer) -> Section:
    today, document = found.today, found.document
    lines = [
        _held("Requests in one replica's KV memory today", found, today),
        _held("The same with the document", found, document),
    ]
    for title, figures in (("Today", today), ("With the document", document)):
        if figures.requests_per_replica < figures.memory_requests:
            lines.append(
                _step(
                    f"{title}, what else limits",
                    "the least of KV memory, the engine's cap, the time targets and the model's limit",
                    f"KV memory {fmt_count(figures.memory_requests)}",
                    fmt_count(figures.requests_per_replica),
                )
            )
    before, after = fmt_count(today.requests), fmt_count(document.requests)
    replicas = found.scenario.replicas
    if replicas > 1:
        count = fmt_count(document.requests_per_replica)
        lines.append(_step("All replicas", "requests × replicas", f"{count} × {fmt_count(replicas)}", after))
    lines.append(_step("Displaced", "today − with the document", f"{before} − {after}", fmt_count(found.displaced)))
    if found.replicas_to_keep is not None:
        lines.append(
            _step(
                f"Replicas for {fmt_count(found.wanted_requests)} requests",
                "requests to keep ÷ requests on one replica, rounded up; no fewer than today",
                f"{fmt_count(found.wanted_requests)} ÷ {fmt_count(document.requests_per_replica)}",
                fmt_count(found.replicas_to_keep),
            )
        )
    least, most = fmt_count(found.most_tokens.requests), fmt_count(found.fewest_tokens.requests)
    if least != most:
        low, high = fmt_tokens(found.question.tokens_low), fmt_tokens(found.question.tokens_high)
        lines.append(
            _step(
                "Range", "the same at the most and the fewest tokens", f"{high} to {low} tokens", f"{least} to {most}"
            )
        )
    return Section(title=f"Requests at once: {before} → {after}", steps=tuple(lines))


def _held(title: str, found: DocumentAnswer, figures: RequestFigures) -> Step:
    return _step(
        title,
        "KV pool of a GPU ÷ what the engine reserves per request there, in whole blocks, rounded down",
        f"{fmt_gib(found.pool_bytes, 2)} ÷ {fmt_bytes(figures.reserved_bytes)}",
        fmt_count(figures.memory_requests),
    )


def _neighbours(found: DocumentAnswer) -> Section:
    near = found.neighbours
    assert near is not None
    before, read = fmt_ms(near.tpot_before.typical_s, 1), fmt_seconds(near.reading.typical_s)
    lines = [
        _step(
            "Steps the document's prompt takes",
            "prompt tokens ÷ tokens an engine takes in one step, rounded up",
            f"{fmt_tokens(found.document.prompt_tokens)} prompt tokens",
            fmt_count(near.steps),
        )
    ]
    if near.tpot_while_read is not None:
        pace = fmt_ms(near.tpot_while_read.typical_s)
        lines.append(
            _step(
                "Time per token while it is read",
                "time per token before + reading ÷ steps, typical times",
                f"{before} + {read} ÷ {fmt_count(near.steps)}",
                pace,
            )
        )
    lines.append(
        _step(
            "Time per token once it is in the batch",
            "before + its longer KV read once a step",
            f"{before}, {fmt_count(near.requests)} requests running",
            fmt_ms(near.tpot_after.typical_s, 1),
        )
    )
    return Section(title="What everyone else feels of one document", steps=tuple(lines))


def _gpu_time(found: DocumentAnswer, ways: tuple[Way, ...]) -> Section:
    today, document = found.today, found.document
    lines = [*_request_time("Today", found, today), *_request_time("With the document", found, document)]
    for way in ways:
        lines += _break_even(way, document)
    before, after = (fmt_seconds(figures.gpu_s or 0) for figures in (today, document))
    return Section(title=f"GPU time per request: {before} → {after}", steps=tuple(lines))


def _request_time(title: str, found: DocumentAnswer, figures: RequestFigures) -> list[Step]:
    if figures.gpu_s is None or figures.ttft is None or not figures.requests_per_replica:
        return []
    gpus = found.scenario.tp * found.scenario.pp
    # What is left of the GPU time after the prompt is the request's share of the decode steps.
    decoding = figures.gpu_s / gpus - figures.ttft.typical_s
    pace = decoding * figures.requests_per_replica / max(1, figures.output_tokens)
    price = found.scenario.price_cents_per_gpu_hour
    lines = [
        _step(
            title,
            "GPUs × (prefill + output tokens × time per token ÷ requests at once), typical times",
            f"{fmt_count(gpus)} × ({fmt_seconds(figures.ttft.typical_s)} + {fmt_tokens(figures.output_tokens)} × "
            f"{fmt_ms(pace, 1)} ÷ {fmt_count(figures.requests_per_replica)})",
            f"{fmt_seconds(figures.gpu_s)} of GPU time",
        )
    ]
    if price is not None and figures.cents is not None:
        lines.append(
            _step(
                f"{title}, price of 1,000",
                "GPU time × price of a GPU-hour ÷ planned use of the fleet × 1,000",
                f"{fmt_seconds(figures.gpu_s)} × {fmt_cents(price)} ÷ {found.scenario.fleet_utilization_pct}% × 1,000",
                fmt_cents(figures.cents * 1_000),
            )
        )
    return lines


def _break_even(way: Way, document: RequestFigures) -> list[Step]:
    if way.figures is None or way.figures.gpu_s is None or document.gpu_s is None or not way.once_gpu_s:
        return []
    once, each, whole = (fmt_seconds(seconds) for seconds in (way.once_gpu_s, way.figures.gpu_s, document.gpu_s))
    return [
        _step(
            f"{way.title}, break-even",
            "once per document ÷ (whole document − this way, per question), the next whole number",
            f"{once} ÷ ({whole} − {each})",
            way.break_even.removesuffix("."),
        )
    ]
