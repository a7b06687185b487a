"""The box for a model that is no preset: a Hub id, a pasted config, or a file's header. One of them is drawn at a time.

What was read waits here until the next run, which puts it into the widgets before they are drawn. The answer on the
page stays the old one until then.
"""

from __future__ import annotations

from typing import Literal

import streamlit as st

from kvcalc.errors import KvcalcError
from kvcalc.measured import DECIDED_BY
from kvcalc.report import Report
from kvcalc.scenario import PASTED
from kvcalc.sources import Loaded
from kvcalc.ui import inputs, model_file, model_hub, paste, state, text

_SOURCE, _READ, _PROBLEM, _ABOUT = "model_source", "model_read", "model_problem", "model_about"
_COMMIT_SHOWN = 7
_KEPT: Literal["session"] = "session"
_SOURCES = {"config": "Config", "hub": "Hub id", "file": "File"}
_DRAW = {"config": paste.draw, "hub": model_hub.draw, "file": model_file.draw}


def draw(report: Report | None) -> None:
    """The folded box, and under it what came of the last attempt."""
    box = st.expander("Paste a config, or a Hub id", type="compact", key="fold_model", on_change="rerun")
    if box.open:
        with box:
            st.session_state.setdefault(_SOURCE, "config")
            chosen = st.segmented_control(
                "Where the model is",
                list(_SOURCES),
                key=_SOURCE,
                format_func=lambda name: _SOURCES[name],
                label_visibility="collapsed",
                required=True,
                persist_state=_KEPT,
            )
            _DRAW[chosen or "config"](take, refuse)
    shown = "" if report is None else f"Showing {text.markdown(report.model.label)} until "
    if model_hub.is_wanted():
        st.markdown(f":small[{shown}the new model is read.]" if shown else ":small[The model is being read.]")
    elif (problem := _problem()) is not None:
        st.warning(f"{text.markdown(problem)} {shown + 'a model is read.' if shown else ''}")
    else:
        _about()


def _about() -> None:
    """Where the model came from, while it is the one chosen."""
    facts, lines = st.session_state.get(_ABOUT, ("", ()))
    if facts and (PASTED, facts) == _model_now():
        st.markdown(f":small[:gray[{' '.join(text.markdown(line) for line in lines)}]]")


def _model_now() -> tuple[str, str | None]:
    """What the widgets have for a model."""
    return st.session_state[inputs.key("model")], st.session_state[inputs.key("model_facts")]


def refuse(problem: str) -> None:
    """Say why nothing was read, until another model is chosen; this one stays."""
    st.session_state[_PROBLEM] = (problem, _model_now())


def _problem() -> str | None:
    problem, model = st.session_state.get(_PROBLEM, (None, None))
    return problem if model == _model_now() else None


def take(loaded: Loaded, name: str = "") -> None:
    """Keep what was read for the next run."""
    st.session_state[_READ] = (loaded, name.strip())
    st.session_state.pop(_PROBLEM, None)


def finish() -> None:
    """At the end of a run: read from the Hub what was asked for. The page already shows the answer that stays."""
    if model_hub.is_wanted():
        try:
            take(model_hub.fetch())
        except KvcalcError as error:
            refuse(str(error))
        st.rerun()


def apply() -> None:
    """At the start of a run, before a widget is drawn: what was read becomes the model."""
    loaded, name = st.session_state.pop(_READ, (None, ""))
    if loaded is None:
        return
    label = name or loaded.label
    if loaded.revision is not None:
        label = f"{label} @ {loaded.revision[:_COMMIT_SHOWN]}"
    before = state.readable()
    if before is None:
        # Something else is typed wrong: only the model is set.
        changes = {"model": PASTED, "model_facts": loaded.facts, "model_label": label, "attention": "as_trained"}
        state.put({**changes, "weight_precision": loaded.weight_precision})
    else:
        own = ("model", "model_facts", "model_label", "attention", "weight_precision", *DECIDED_BY)
        kept = {field: value for field, value in dict(before).items() if field not in own}
        state.show(loaded.scenario(**kept, model_label=label))
    st.session_state[_ABOUT] = (loaded.facts, _lines(loaded))


def _lines(loaded: Loaded) -> tuple[str, ...]:
    where = () if loaded.revision is None else (f"Read from the Hub at commit {loaded.revision}.",)
    return (*where, *(note.text for note in loaded.notes))
