"""Cheaper ways to let a model answer from a document, each with its numbers, its condition and its break-even."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc import measured
from kvcalc.document import DocumentAnswer, document_answer, with_tokens
from kvcalc.document_size import DocumentQuestion, document_tables
from kvcalc.errors import KvcalcError, Record
from kvcalc.evaluation import Answer, answer, speed_limit
from kvcalc.kv_formats import caution, smaller_formats
from kvcalc.latency import Band
from kvcalc.model_choice import smaller_models
from kvcalc.prefix_cache import shared_bytes_per_request, usable_cached_tokens
from kvcalc.request_cost import RequestFigures, figures_of
from kvcalc.scenario import Scenario
from kvcalc.units import GB, GIB, fmt_bytes, fmt_count, fmt_seconds, fmt_tokens
from kvcalc.way import Way, WayId, break_even_words, no_way, way

_MOST_MODELS = 3


class DocumentPage(Record):
    """The whole answer to a document question."""

    answer: DocumentAnswer
    """What the document does."""
    ways: tuple[Way, ...]
    """Cheaper ways, those that replace the document first."""
    best: WayId | None
    """The way that serves more and changes least of the answers; None when the document displaces nobody or no way
    serves more."""
    sentence: str
    """The answer in one sentence, with the best way at its end."""


def document_page(scenario: Scenario, question: DocumentQuestion) -> DocumentPage:
    """The document question answered, with its cheaper ways. Raises KvcalcError."""
    found = document_answer(scenario, question)
    whole = answer(found.scenario)
    makers: tuple[Callable[[DocumentAnswer, Answer, Scenario], Way], ...] = (
        _share_prefix,
        _summarise,
        _retrieve,
        _quantise_kv,
        _smaller_model,
        _offload,
    )
    ways = tuple(make(found, whole, scenario) for make in makers)
    best = _best(found, ways)
    return DocumentPage(
        answer=found, ways=ways, best=None if best is None else best.id, sentence=_with_best(found, best)
    )


def _best(found: DocumentAnswer, ways: tuple[Way, ...]) -> Way | None:
    """What wins back requests that the document displaces and changes least of the answers."""
    if not found.displaced:
        return None
    better = {one.id: one.figures.requests for one in ways if one.figures is not None}
    better = {id: count for id, count in better.items() if count > found.document.requests}
    for tier in _TIERS:
        offered = {id: better[id] for id in tier if id in better}
        if offered:
            best = max(offered, key=lambda id: offered[id])
            return next(one for one in ways if one.id == best)
    return None


_TIERS: tuple[tuple[WayId, ...], ...] = (
    ("share_prefix",),
    ("summarise", "retrieve"),
    ("quantise_kv",),
    ("smaller_model",),
)
"""Ways by what they change: nothing of the answers, what is read, how it is stored, who answers."""
_BEST_WORDS: dict[WayId, str] = {
    "share_prefix": "if everyone shares the file",
    "summarise": "with a summary instead",
    "retrieve": "with retrieved passages instead",
    "quantise_kv": "with smaller KV values",
    "smaller_model": "with a smaller-KV model",
}


def _with_best(found: DocumentAnswer, best: Way | None) -> str:
    if best is None or best.figures is None or best.id not in _BEST_WORDS:
        return found.sentence
    words, documents = _BEST_WORDS[best.id], found.question.documents_at_once
    if best.id == "share_prefix" and documents > 1:
        words = f"if they share {fmt_count(documents)} files"
    joint = ", or" if found.reach.is_possible else ";"
    return f"{found.sentence.removesuffix('.')}{joint} {fmt_count(best.figures.requests)} {words}."


def _compared(figures: RequestFigures, found: DocumentAnswer) -> str:
    if figures.requests == found.document.requests:
        return f"Still {_at_once(figures.requests)}"
    return f"{_at_once(figures.requests)} instead of {fmt_count(found.document.requests)}"


def _at_once(count: int) -> str:
    return f"{fmt_count(count)} request{'s' if count != 1 else ''} at once"


# The ways


def _retrieve(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    question = found.question
    added = question.passages * question.passage_tokens
    passages = f"{fmt_count(question.passages)} passages of {fmt_tokens(question.passage_tokens)} tokens"
    if added >= question.tokens_typical:
        why = f"{passages} are {fmt_tokens(added)} tokens, no less than the document itself."
        return no_way("retrieve", "Retrieve passages", why)
    changed = with_tokens(today, added)
    figures = figures_of(answer(changed))
    text = f"{_compared(figures, found)}: {passages} stand for {fmt_tokens(question.tokens_typical)} tokens."
    condition = "Needs an index of the document; may miss a passage. Building the index is not in the figures."
    return way("retrieve", "Retrieve passages", found, figures, scenario=changed, sentence=text, condition=condition)


def _summarise(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    question = found.question
    if question.summary_tokens >= question.tokens_typical:
        why = f"A summary of {fmt_tokens(question.summary_tokens)} tokens is no shorter than the document."
        return no_way("summarise", "Summarise first", why)
    if not found.reach.is_possible:
        why = "The model cannot read the document in one go; summarise it in parts with another tool."
        return no_way("summarise", "Summarise first", why)
    changed = with_tokens(today, question.summary_tokens)
    figures = figures_of(answer(changed))
    once_s, once_gpu_s = _summary_cost(found, today)
    short, long = fmt_tokens(question.summary_tokens), fmt_tokens(question.tokens_typical)
    text = f"{_compared(figures, found)}: {short} tokens stand for {long}."
    if once_s is not None:
        text += f" Writing the summary takes {fmt_seconds(once_s.typical_s)}, once per document."
    condition = "Details get lost. Pays when a document is asked about more than once."
    return way(
        "summarise",
        "Summarise first",
        found,
        figures,
        scenario=changed,
        sentence=text,
        condition=condition,
        once_gpu_s=once_gpu_s,
        once_s=once_s,
    )


def _summary_cost(found: DocumentAnswer, today: Scenario) -> tuple[Band | None, float | None]:
    """Time and GPU time of one summary: the document is read, the summary written, in a full server's batch."""
    question = found.question
    update = {
        "prompt_tokens": question.tokens_typical,
        "output_tokens": question.summary_tokens,
        "max_model_len": max(today.max_model_len, question.tokens_typical + question.summary_tokens),
        "cached_prompt_tokens": 0,
    }
    try:
        writing = answer(measured.changed(today, update))
    except KvcalcError:
        return None, None
    figures = figures_of(writing)
    if figures.ttft is None or figures.tpot is None:
        return None, None
    words = question.summary_tokens
    band = Band(
        low_s=figures.ttft.low_s + words * figures.tpot.low_s,
        typical_s=figures.ttft.typical_s + words * figures.tpot.typical_s,
        high_s=figures.ttft.high_s + words * figures.tpot.high_s,
    )
    return band, figures.gpu_s


class SharedPrefix(Record):
    """Requests when the document is held once for everyone who asks about it."""

    prefix_tokens: int
    """Tokens that stand in shared blocks. [tokens]"""
    shared_bytes: int
    """KV of one document's shared blocks. [bytes/GPU]"""
    private_bytes: int
    """KV each request holds for itself beside them. [bytes/GPU]"""
    requests: int
    """Requests the KV memory of one replica holds. [requests]"""


def shared_prefix(whole: Answer, *, prefix_tokens: int, documents: int) -> SharedPrefix:
    """Requests that fit when this many different documents are held once each.

    Equation   (pool - documents × shared) / private, whole blocks; never less than without sharing

    whole          the scenario with the document in every request
    prefix_tokens  start of the prompt that requests share: only whole blocks of it count [tokens]
    documents      different documents in use at once [documents]
    """
    inputs = whole.inputs
    context, pool = inputs.scenario.context_tokens, inputs.budget.kv_pool_bytes
    usable = usable_cached_tokens(
        inputs.plan, cached_prompt_tokens=prefix_tokens, prompt_tokens=inputs.scenario.prompt_tokens
    )
    shared = shared_bytes_per_request(inputs.plan, context_tokens=context, usable_tokens=usable)
    alone = inputs.plan.requests_at(pool, context)
    together = alone
    if shared and alone > documents:
        together = inputs.plan.requests_at(max(0, pool - documents * shared), context - usable)
    return SharedPrefix(
        prefix_tokens=usable,
        shared_bytes=shared,
        private_bytes=inputs.plan.reserved_bytes(context) - shared,
        requests=max(alone, together),
    )


def _share_prefix(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    title, question = "Share the prefix", found.question
    if not found.reach.is_possible:
        return no_way("share_prefix", title, "A request with the document is longer than the model reads.")
    prefix = today.cached_prompt_tokens + question.tokens_typical
    changed = measured.changed(found.scenario, {"prefix_caching": True, "cached_prompt_tokens": prefix})
    sharing = answer(changed)
    shared = shared_prefix(sharing, prefix_tokens=prefix, documents=question.documents_at_once)
    if not shared.prefix_tokens:
        block = fmt_tokens(sharing.inputs.plan.prefix_block_tokens)
        why = f"Worth nothing here: the document does not fill one block of {block} tokens."
        return no_way("share_prefix", title, why)
    if question.questions_per_document == 1:
        why = "Worth nothing here: each document is asked about once, so nothing is read twice."
        return no_way("share_prefix", title, why, "Needs several questions on the same document.")
    admitted = min(shared.requests, sharing.inputs.budget.max_num_seqs)
    speed = speed_limit(sharing.inputs, context_tokens=changed.context_tokens, at_most=admitted)
    count = min(limit for limit in (admitted, speed, sharing.first_token_requests) if limit is not None)
    later = figures_of(sharing, requests_per_replica=count)
    first = figures_of(whole, requests_per_replica=count)
    once = None if first.gpu_s is None or later.gpu_s is None else first.gpu_s - later.gpu_s
    return way(
        "share_prefix",
        title,
        found,
        later,
        scenario=changed,
        sentence=_sharing_sentence(later, found, shared, speed_binds=speed == count < admitted),
        condition=_sharing_condition(today, sharing),
        once_gpu_s=once,
        first_ttft=first.ttft,
    )


def _sharing_sentence(later: RequestFigures, found: DocumentAnswer, shared: SharedPrefix, *, speed_binds: bool) -> str:
    documents = found.question.documents_at_once
    text = f"{_compared(later, found)}."
    if shared.shared_bytes:
        held = "The document is held once" if documents == 1 else f"{fmt_count(documents)} documents are held once each"
        text += f" {held}, {fmt_bytes(shared.shared_bytes)} per GPU;"
        text += f" each request adds {fmt_bytes(shared.private_bytes)}."
    asked = found.question.questions_per_document
    if asked > 1:
        text += f" {fmt_count(asked - 1)} of {fmt_count(asked)} questions find it read."
    if speed_binds:
        text += f" Memory would hold {fmt_count(shared.requests)}; reading the document in every step is what limits."
    return text


def _sharing_condition(today: Scenario, sharing: Answer) -> str:
    text = (
        "The document must come first in every prompt, the same to the letter, and stay in the cache between questions."
    )
    if not today.prefix_caching:
        text = f"Needs prefix caching, which is off. {text}"
    if not sharing.inputs.plan.shares_prefixes:
        text += " This engine still keeps a copy of it per request: only its computation is saved."
    return text


def _quantise_kv(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    title = "Store KV in fewer bits"
    formats, why_not = smaller_formats(whole.inputs)
    if not formats:
        return no_way("quantise_kv", title, why_not)
    chosen = formats[0]
    changed = measured.changed(found.scenario, {"kv_precision": chosen.id})
    figures = figures_of(answer(changed))
    text = f"{_compared(figures, found)} with {chosen.label} KV: {fmt_bytes(figures.kv_bytes)} a request"
    text += f" instead of {fmt_bytes(found.document.kv_bytes)}."
    others = ", ".join(row.label for row in formats[1:])
    if others:
        text += f" The engine also stores {others}."
    return way(
        "quantise_kv",
        title,
        found,
        figures,
        scenario=changed,
        sentence=text,
        condition=f"Verify quality on your own documents: measurements point both ways.{caution(chosen, whole.inputs)}",
        evidence=document_tables().kv_evidence,
    )


def _smaller_model(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    title = "A model with smaller KV"
    candidates = smaller_models(found.scenario, count=_MOST_MODELS)
    if not candidates:
        return no_way(
            "smaller_model", title, "No preset of a similar size with less KV serves more on these GPUs at this length."
        )
    first = candidates[0]
    figures = figures_of(answer(first.scenario))
    text = f"{_compared(figures, found)} with {first.label}: {fmt_bytes(figures.kv_bytes)} a request"
    text += f" instead of {fmt_bytes(found.document.kv_bytes)}."
    others = "; ".join(f"{row.label}, {fmt_count(row.requests)}" for row in candidates[1:])
    if others:
        text += f" Also: {others}."
    condition = "Another model gives other answers: compare them before the cost."
    return way("smaller_model", title, found, figures, scenario=first.scenario, sentence=text, condition=condition)


def _offload(found: DocumentAnswer, whole: Answer, today: Scenario) -> Way:
    """Host memory: keeps a document's KV between questions, never makes room for a running request."""
    title, inputs = "Offload to host memory", whole.inputs
    host = document_tables().host_link
    row = host.row(inputs.gpu.compute_capability)
    if inputs.gpu.unified_memory:
        return no_way("offload", title, "This GPU has no memory of its own: host memory is what it already uses.")
    each = found.document.reserved_bytes
    rate = row.gb_per_s * GB * host.share_pct // 100
    back_s = each / rate
    text = f"Makes no room for a running request: still {_at_once(found.document.requests)}. "
    text += f"An idle document comes back in {fmt_seconds(back_s)} over {row.text}"
    if found.document.ttft is not None:
        text += f" instead of {fmt_seconds(found.document.ttft.typical_s)} of reading it again"
    whole_bytes = each * inputs.scenario.tp * inputs.scenario.pp
    if found.question.host_gib is not None and whole_bytes:
        kept = found.question.host_gib * GIB // whole_bytes
        text += f"; {fmt_count(found.question.host_gib)} GiB of host memory keep {fmt_count(kept)} of them"
    condition = f"Helps between questions on the same document. {host.share_text}."
    return Way(
        id="offload",
        title=title,
        available=True,
        sentence=f"{text}.",
        condition=condition,
        scenario=None,
        figures=None,
        once_gpu_s=None,
        once_s=None,
        first_ttft=None if found.document.ttft is None else found.document.ttft,
        cheaper_from_questions=_offload_break_even(found, back_s),
        break_even=_offload_words(found, back_s),
        per_question_cents=None,
    )


def _offload_break_even(found: DocumentAnswer, back_s: float) -> int | None:
    """The second question on, if copying back is quicker than reading again."""
    ttft = found.document.ttft
    return 2 if ttft is not None and back_s < ttft.typical_s else None


def _offload_words(found: DocumentAnswer, back_s: float) -> str:
    if found.document.ttft is None:
        return break_even_words(None, unknown="Not known: the GPU's rates are not stated.")
    return break_even_words(_offload_break_even(found, back_s))
