"""The inputs, in four groups. Widgets hold text and ids; ``state`` turns them into a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import streamlit as st

from kvcalc import glossary
from kvcalc.errors import KvcalcError
from kvcalc.model_spec import ModelSpec
from kvcalc.report import Report
from kvcalc.scenario import CUSTOM
from kvcalc.ui import inputs, measured, model_source, options
from kvcalc.units import fmt_count

_PAIR_PX = 110
_LONGEST_NUMBER, _LONGEST_VERSION = 20, 40
KEPT: Literal["session"] = "session"
"""A widget that is not drawn in a run keeps its value."""


def draw(spec: ModelSpec | None, report: Report | None, *, own: Callable[[], None] | None = None) -> None:
    """All four groups, and a view's ``own`` first.

    ``report`` is the last good one: what an empty field stands for is read from it.
    """
    with st.sidebar:
        if own is not None:
            own()
        with group("Model"):
            _model(spec, report)
        with group("GPUs"):
            _gpus()
        with group("Engine"):
            _engine(spec, report)
        with group("Workload"):
            _workload()


def group(title: str) -> Any:
    """A titled group of inputs."""
    box = st.container(gap="xsmall")
    box.markdown(f"##### {title}")
    return box


def pair() -> Any:
    """Two inputs side by side."""
    return st.grid(2, min_column_width=_PAIR_PX)


def fold(title: str, name: str) -> Any:
    """A folded box for rare inputs. What is in it is made when it is opened: closed, it costs every run nothing."""
    return st.expander(title, type="compact", key=f"fold_{name}", on_change="rerun")


def _help(term: str | None) -> str | None:
    return None if term is None else glossary.term(term).one_line


def _number(field: str, *, term: str | None = None, empty: str | None = None) -> None:
    """A whole number typed as text. ``empty`` says what nothing stands for."""
    st.text_input(
        inputs.LABELS[field],
        key=inputs.key(field),
        max_chars=_LONGEST_NUMBER,
        on_change=_tidy,
        args=(field,),
        placeholder=empty,
        help=_help(term),
        persist_state=KEPT,
    )


def _tidy(field: str) -> None:
    """Write a number that can be read the way the page writes numbers; leave anything else as it was typed."""
    try:
        number = inputs.read_number(field, _now(field), optional=True)
    except KvcalcError:
        return
    st.session_state[inputs.key(field)] = inputs.typed(field, number)


def _choice(field: str, label: str, ids: list[Any], names: dict[str, str], **more: Any) -> None:
    st.selectbox(
        label,
        ids,
        key=inputs.key(field),
        format_func=lambda item: names.get(item, str(item)),
        persist_state=KEPT,
        **more,
    )


def _check(field: str, label: str, **more: Any) -> None:
    st.checkbox(label, key=inputs.key(field), persist_state=KEPT, **more)


def _now(field: str) -> Any:
    return st.session_state[inputs.key(field)]


def _model(spec: ModelSpec | None, report: Report | None) -> None:
    names, ids = options.models(_now("model_label"), _now("model"))
    _choice("model", "Model", ids, names, label_visibility="collapsed")
    with pair():
        labels = options.weight_labels()
        _choice("weight_precision", "Weights", list(labels), labels, help=_help("precision"))
        kv = options.kv_formats(_now("engine"), _now("kv_precision"))
        _choice("kv_precision", "KV cache", kv, options.kv_labels(), help=_help("kv_cache"))
    model_source.draw(report)
    has_state = spec is not None and spec.has_recurrent_state
    box = fold(f"Attention{' and state' if has_state else ''}, what if", "attention")
    if not box.open:
        return
    with box, pair():
        st.selectbox(
            "Attention",
            options.attention(spec, _now("attention")),
            key=inputs.key("attention"),
            format_func=options.attention_label,
            help="What if the model had been built with other key/value heads? Its quality would differ.",
            persist_state=KEPT,
        )
        if has_state:
            labels = options.state_labels()
            _choice("state_precision", "State", list(labels), labels, help=_help("recurrent_state"))


def _gpus() -> None:
    ids = options.gpus(_now("gpu"))
    _choice("gpu", "GPU", ids, options.gpu_labels(), label_visibility="collapsed")
    if _now("gpu") == CUSTOM:
        with pair():
            _number("memory_mib", term="memory_bytes")
            _number("bandwidth_gb_per_s", term="bandwidth_bytes_per_s")
            _number("bf16_tflops", empty="not known")
    with pair():
        st.selectbox(
            inputs.LABELS["tp"] if _now("pp").strip() in ("", "1") else "GPUs per stage",
            options.tensor_parallel(_now("tp")),
            key=inputs.key("tp"),
            format_func=options.tensor_parallel_label,
            help=_help("tp"),
            persist_state=KEPT,
        )
        _number("replicas", term="replicas")
    if (box := fold("Other ways to split", "split")).open:
        with box, pair():
            _number("pp", term="pp")
            _number("ep", term="ep")
            _number("dcp", term="dcp")


def _engine(spec: ModelSpec | None, report: Report | None) -> None:
    with pair():
        _choice("engine", "Engine", list(options.ENGINES), options.ENGINES)
        _number("max_model_len", term="max_model_len")
    if (box := fold("Memory share, blocks, batching", "engine")).open:
        with box:
            _engine_details(spec, report)


def _engine_details(spec: ModelSpec | None, report: Report | None) -> None:
    budget = None if report is None else report.budget
    with pair():
        share = None if budget is None else f"{budget.utilization_pct:g}"
        _number("utilization_pct", term="utilization_pct", empty=share)
        seqs = None if budget is None else fmt_count(budget.max_num_seqs)
        _number("max_num_seqs", term="max_num_seqs", empty=seqs)
        batched = None if budget is None else fmt_count(budget.max_num_batched_tokens)
        _number("max_num_batched_tokens", term="max_num_batched_tokens", empty=batched)
        block = None if report is None else fmt_count(report.capacity.block_size)
        _number("block_size", term="block_size", empty=block)
        _number("speculative_tokens", term="speculative_tokens")
        st.text_input(
            "Engine version",
            key=inputs.key("engine_version"),
            placeholder="newest",
            max_chars=_LONGEST_VERSION,
            persist_state=KEPT,
        )
    _check("prefix_caching", "Prefix caching", help=_help("prefix_caching"))
    _check("enforce_eager", "No CUDA graphs (eager)")
    _check("async_scheduling", "Asynchronous scheduling")
    _check("chunked_prefill", "Chunked prefill")
    if spec is not None and any(group.knee_tokens is not None for group in spec.layer_groups):
        _choice(
            "hybrid_manager",
            inputs.LABELS["hybrid_manager"],
            list(inputs.SWITCH_VALUES),
            options.HYBRID_LABELS,
            help="Whether layers with a window give back the blocks they no longer see (hybrid KV cache manager).",
        )
    if spec is not None and spec.image_tokens is not None:
        _check("images", "Accept images")
    measured.draw(report, pair, _number)


def _workload() -> None:
    with pair():
        _number("prompt_tokens", term="context_tokens")
        _number("output_tokens", term="context_tokens")
        _number("target_tpot_ms", term="target_tpot_ms", empty="none")
        _number("target_requests", term="concurrency", empty="none")
    if (box := fold("Shared prefix, first token, load", "workload")).open:
        with box:
            with pair():
                _number("cached_prompt_tokens", term="prefix_caching")
                _number("target_ttft_ms", term="ttft", empty="no target")
            _check("busy", "Busy server: prompts share the steps")
    if (box := fold("Traffic and price", "traffic")).open:
        with box:
            _traffic()


def _traffic() -> None:
    with pair():
        _number("requests_per_hour", term="requests_per_hour", empty="not given")
        _number("price_cents_per_gpu_hour", term="price_cents_per_gpu_hour", empty="not given")
        _number("prompt_tokens_p95", term="p95", empty="all alike")
        _number("output_tokens_p95", term="p95", empty="all alike")
        _number("fleet_utilization_pct", term="fleet_utilization_pct")
