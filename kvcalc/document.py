"""The document question: what adding a document to every request does to capacity, speed and cost."""

from __future__ import annotations

from kvcalc import measured
from kvcalc.document_size import DocumentQuestion
from kvcalc.errors import Note, Record
from kvcalc.evaluation import Answer, answer
from kvcalc.first_token import prompt_alone
from kvcalc.inputs import Inputs
from kvcalc.latency import Band
from kvcalc.request_cost import RequestFigures, figures_of, per_month, step_of
from kvcalc.scenario import Scenario
from kvcalc.units import ceil_div, fmt_count, fmt_factor, fmt_ms, fmt_percent, fmt_seconds, fmt_tokens

_CURVE_POINTS = 36
_FIRST_TOKENS = 1_000
_PER_THOUSAND = 1_000


class Neighbours(Record):
    """What everybody else feels when one user brings a document."""

    requests: int
    """Requests running before it comes, on one replica. [requests]"""
    still_fit: int
    """How many of them the KV memory still holds beside it. [requests]"""
    tpot_before: Band
    """Their time per token before. [s]"""
    tpot_while_read: Band | None
    """Their time per token while the document is computed in chunks; None when it is computed in one go. [s]"""
    tpot_after: Band
    """Their time per token once it is in the batch. [s]"""
    reading: Band
    """How long it takes to compute the document's prompt. [s]"""
    steps: int
    """Engine steps it is spread over. [steps]"""
    sentence: str
    """The same in words."""


class PoolUse(Record):
    """One GPU's KV pool, full of requests of one kind."""

    label: str
    """Which."""
    requests: int
    """Requests in it. [requests]"""
    chat_bytes: int
    """What they would take without a document. [bytes/GPU]"""
    document_bytes: int
    """What the document adds. [bytes/GPU]"""
    free_bytes: int
    """What is left: less than one more request, or held back by the speed target or the engine's cap. [bytes/GPU]"""


class CurvePoint(Record):
    """Requests at one length."""

    context_tokens: int
    """Prompt and output. [tokens]"""
    requests: float
    """What the KV memory of all replicas holds, engine cap applied, not rounded. [requests]"""


class Reach(Record):
    """Whether model and engine admit a request with the document."""

    needed_tokens: int
    """Prompt, document and output. [tokens]"""
    engine_limit: int
    """The scenario's max_model_len. [tokens]"""
    model_limit: int | None
    """What the model states. [tokens]"""
    sentence: str | None
    """What to change; None when nothing is in the way."""

    @property
    def is_possible(self) -> bool:
        """Whether the model can read it at all."""
        return self.model_limit is None or self.needed_tokens <= self.model_limit


class DocumentAnswer(Record):
    """What the document does, before any cheaper way."""

    question: DocumentQuestion
    """The document."""
    scenario: Scenario
    """The scenario with the document in every request; its context limit raised where it has to be."""
    today: RequestFigures
    """A request as it is."""
    document: RequestFigures
    """A request with the document, at its most likely length."""
    fewest_tokens: RequestFigures
    """The same if the document is as short as it may be."""
    most_tokens: RequestFigures
    """The same if it is as long as it may be."""
    kv_ratio: float
    """KV of a request with the document against one without. [ratio]"""
    displaced: int
    """Requests at once that no longer fit. [requests]"""
    added_ttft: Band | None
    """What the document adds to this user's first token. [s]"""
    added_tpot: Band | None
    """What it adds to the time per token when as many requests as fit carry it; negative when few do. [s]"""
    neighbours: Neighbours | None
    """What one such document does to everybody else; None when nothing runs or times are unknown."""
    wanted_requests: int
    """Requests at once to keep: the scenario's target, else what runs today. [requests]"""
    replicas_to_keep: int | None
    """Replicas that keep them with the document; None when no number would. [replicas]"""
    gpus_to_keep: int | None
    """GPUs of those replicas. [GPUs]"""
    gpus_today: int
    """GPUs of the scenario. [GPUs]"""
    month_cents_today: float | None
    """A month of today's requests at the typed price and traffic. [US cents]"""
    month_cents_document: float | None
    """A month of requests with the document. [US cents]"""
    reach: Reach
    """Whether model and engine admit it."""
    pool_bytes: int
    """KV pool of one GPU. [bytes/GPU]"""
    pools: tuple[PoolUse, PoolUse]
    """That pool full of requests without, and with, the document."""
    curve: tuple[CurvePoint, ...]
    """Requests against length, for both points to stand on."""
    sentence: str
    """The answer in one sentence."""
    notes: tuple[Note, ...]
    """What the reader must know."""


def with_tokens(scenario: Scenario, added_tokens: int) -> Scenario:
    """The scenario with so many more tokens in every prompt, and a context limit that admits them."""
    context = scenario.context_tokens + added_tokens
    p95 = scenario.prompt_tokens_p95
    changes = {
        "prompt_tokens": scenario.prompt_tokens + added_tokens,
        "prompt_tokens_p95": None if p95 is None else p95 + added_tokens,
        "max_model_len": max(scenario.max_model_len, context),
    }
    return measured.changed(scenario, changes)


def document_answer(scenario: Scenario, question: DocumentQuestion) -> DocumentAnswer:
    """What adding the document to every request does.

    Parameters
    ----------
    scenario : today's requests: prompt, output, and target_requests as the requests in flight to keep.
    question : the document, as a range of tokens.

    Raises
    ------
    KvcalcError    a scenario that cannot be used, named by field.

    Source
    ------
    The same Report arithmetic as every other page, at the longer prompt.
    """
    now = answer(scenario)
    changed = with_tokens(scenario, question.tokens_typical)
    then = answer(changed)
    today, document = figures_of(now), figures_of(then)
    wanted = today.requests if scenario.target_requests is None else scenario.target_requests
    replicas = ceil_div(wanted, document.requests_per_replica) if wanted and document.requests_per_replica else None
    reach = _reach(scenario, now, changed)
    return DocumentAnswer(
        question=question,
        scenario=changed,
        today=today,
        document=document,
        fewest_tokens=figures_of(answer(with_tokens(scenario, question.tokens_low))),
        most_tokens=figures_of(answer(with_tokens(scenario, question.tokens_high))),
        kv_ratio=_ratio(today, document),
        displaced=max(0, today.requests - document.requests),
        added_ttft=_added(today.ttft, document.ttft),
        added_tpot=_added(today.tpot, document.tpot),
        neighbours=_neighbours(now, then, question),
        wanted_requests=wanted,
        replicas_to_keep=None if replicas is None else max(replicas, scenario.replicas),
        gpus_to_keep=None if replicas is None else max(replicas, scenario.replicas) * scenario.tp * scenario.pp,
        gpus_today=scenario.replicas * scenario.tp * scenario.pp,
        month_cents_today=per_month(scenario, today.cents),
        month_cents_document=per_month(scenario, document.cents),
        reach=reach,
        pool_bytes=now.inputs.budget.kv_pool_bytes,
        pools=_pools(now, today, document),
        curve=_curve(now, changed.context_tokens + question.tokens_high - question.tokens_typical),
        sentence=_sentence(question, now, today=today, document=document, reach=reach),
        notes=_notes(scenario, question),
    )


def _ratio(today: RequestFigures, document: RequestFigures) -> float:
    return document.kv_bytes / today.kv_bytes if today.kv_bytes else 1.0


def _added(before: Band | None, after: Band | None) -> Band | None:
    if before is None or after is None:
        return None
    return Band(
        low_s=after.low_s - before.low_s,
        typical_s=after.typical_s - before.typical_s,
        high_s=after.high_s - before.high_s,
    )


def _reach(scenario: Scenario, now: Answer, changed: Scenario) -> Reach:
    needed, model = changed.context_tokens, now.inputs.spec.max_context_tokens
    sentence = None
    if model is not None and needed > model:
        sentence = (
            f"A request would need {fmt_tokens(needed)} tokens; the model reads at most {fmt_tokens(model)}. "
            "Split the document, or use one of the cheaper ways."
        )
    elif needed > scenario.max_model_len:
        limit = fmt_tokens(scenario.max_model_len)
        sentence = (
            f"Needs a context limit of {fmt_tokens(needed)} tokens; it is {limit}. The figures take it as raised."
        )
    return Reach(needed_tokens=needed, engine_limit=scenario.max_model_len, model_limit=model, sentence=sentence)


def _sentence(
    question: DocumentQuestion, now: Answer, *, today: RequestFigures, document: RequestFigures, reach: Reach
) -> str:
    if not today.requests:
        state, colon, why = now.sentence.partition(":")
        return f"{state}, with or without the document{colon}{why}"
    ratio = _ratio(today, document)
    bigger = f"{question.name} makes each request {_bigger(ratio)}"
    if not reach.is_possible:
        limit = fmt_tokens(reach.model_limit or 0)
        return f"Not possible: {bigger[0].lower()}{bigger[1:]}, past the {limit} tokens the model reads."
    before = _requests(today.requests)
    if document.requests == today.requests:
        return f"{bigger}, and the same {before} still run at once."
    after = "none fits" if not document.requests else f"become {fmt_count(document.requests)}"
    joined = f"{before} at once {after}" if document.requests else f"of {before} at once, {after}"
    return f"{bigger}: {joined}."


def _bigger(ratio: float) -> str:
    if ratio < _SAME:
        return "hardly bigger"
    return f"{fmt_percent(ratio - 1)} bigger" if ratio < _FACTOR_SHOWS else f"{fmt_factor(ratio)} bigger"


_SAME, _FACTOR_SHOWS = 1.005, 1.095
"""A factor below the second would read '1.0 times' or hide half of what it adds."""


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{fmt_count(count)} requests"


def _neighbours(now: Answer, then: Answer, question: DocumentQuestion) -> Neighbours | None:
    """One document among the requests that run today."""
    inputs, reading = now.inputs, prompt_alone(then.inputs)
    steps, scenario = inputs.steps, inputs.scenario
    running = now.concurrency
    if scenario.target_requests is not None:
        running = min(running, ceil_div(scenario.target_requests, scenario.replicas))
    before = step_of(inputs, running)
    if before is None or reading is None or steps is None or then.inputs.steps is None:
        return None
    pool = inputs.budget.kv_pool_bytes - then.inputs.plan.reserved_bytes(then.inputs.scenario.context_tokens)
    beside = inputs.plan.requests_at(max(0, pool), scenario.context_tokens)
    # The batch reads one long cache in place of a short one.
    longer = then.inputs.steps.kv_bytes(then.inputs.scenario.context_tokens) - steps.kv_bytes(scenario.context_tokens)
    after = before.typical_s + longer / (steps.bandwidth * before.bandwidth_efficiency)
    chunk = inputs.budget.max_num_batched_tokens
    chunks = ceil_div(then.inputs.scenario.prompt_tokens, chunk) if scenario.chunked_prefill else 1
    tpot_before = Band(low_s=before.low_s, typical_s=before.typical_s, high_s=before.high_s)
    slowed = Band(
        low_s=before.low_s + reading.low_s / chunks,
        typical_s=before.typical_s + reading.typical_s / chunks,
        high_s=before.high_s + reading.high_s / chunks,
    )
    return Neighbours(
        requests=running,
        still_fit=min(running, beside),
        tpot_before=tpot_before,
        tpot_while_read=slowed if scenario.chunked_prefill else None,
        tpot_after=_scaled(tpot_before, after / before.typical_s),
        reading=reading,
        steps=chunks,
        sentence=_neighbours_sentence(
            before.typical_s,
            slowed,
            reading,
            chunked=scenario.chunked_prefill,
            waiting=max(0, running - beside),
            running=running,
        ),
    )


def _neighbours_sentence(
    before_s: float, slowed: Band, reading: Band, *, chunked: bool, waiting: int, running: int
) -> str:
    read = fmt_seconds(reading.typical_s)
    text = f"Everyone else gets a token every {_pace(slowed.typical_s)} instead of {fmt_ms(before_s)} for the {read}"
    text += " in which one document is read."
    if not chunked:
        text = f"Everyone else stands still for {read} while one document is read."
    if waiting:
        text += f" It takes the memory of {fmt_count(waiting)} of the {_requests(running)} that run today."
    return text


def _pace(seconds: float) -> str:
    return fmt_ms(seconds) if seconds < 1 else fmt_seconds(seconds)


def _scaled(band: Band, ratio: float) -> Band:
    return Band(low_s=band.low_s * ratio, typical_s=band.typical_s * ratio, high_s=band.high_s * ratio)


def _pools(now: Answer, today: RequestFigures, document: RequestFigures) -> tuple[PoolUse, PoolUse]:
    pool, plan = now.inputs.budget.kv_pool_bytes, now.inputs.plan

    def full_of(label: str, figures: RequestFigures) -> PoolUse:
        count = figures.requests_per_replica
        chat, taken = (plan.held_bytes(count, each.context_tokens) for each in (today, figures))
        return PoolUse(
            label=label, requests=count, chat_bytes=chat, document_bytes=taken - chat, free_bytes=pool - taken
        )

    return full_of("Today", today), full_of("With the document", document)


def _curve(now: Answer, longest: int) -> tuple[CurvePoint, ...]:
    """Requests from short to the longest the document may make them, today's and the document's own among them."""
    inputs: Inputs = now.inputs
    pool, cap, replicas = inputs.budget.kv_pool_bytes, inputs.budget.max_num_seqs, inputs.scenario.replicas
    first = min(_FIRST_TOKENS, inputs.scenario.context_tokens)
    last = max(2 * longest, 4 * inputs.scenario.context_tokens)
    steps = {round(first * (last / first) ** (i / (_CURVE_POINTS - 1))) for i in range(_CURVE_POINTS)}
    points = []
    for tokens in sorted({*steps, inputs.scenario.context_tokens}):
        requests = min(float(inputs.plan.side_by_side(pool, tokens)), float(cap))
        points.append(CurvePoint(context_tokens=tokens, requests=requests * replicas))
    return tuple(points)


def _notes(scenario: Scenario, question: DocumentQuestion) -> tuple[Note, ...]:
    found = [Note(field="document", text=question.method)]
    if question.counted in ("pages", "estimate"):
        text = "A scan has no text: count its pages as pictures instead. Other languages than English take more tokens."
        found.append(Note(field="document", text=text))
    if question.counted == "images":
        text = "Pictures also pass the vision encoder: its time and memory per picture are not in the figures."
        found.append(Note(field="document", text=text))
    if not scenario.chunked_prefill:
        text = "Chunked prefill is off: a long prompt holds up every other request until it is computed."
        found.append(Note(field="chunked_prefill", text=text))
    return tuple(found)
