"""A model from wherever a person has it, ready for a scenario: the Hub, or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvcalc import catalogue
from kvcalc.errors import Note, Record
from kvcalc.model_spec import ModelSpec
from kvcalc.reading.hf_config import read_config
from kvcalc.scenario import PASTED, Scenario
from kvcalc.storage import CHECKPOINT
from kvcalc.units import MIB, ceil_div, fmt_gib
from kvcalc.weights import weight_bytes


class Loaded(Record):
    """A model with what a scenario needs of it, and what its source says beside."""

    spec: ModelSpec
    """The model."""
    facts: str
    """The config keys that decided it, compact JSON: what a link carries."""
    label: str
    """What to call it."""
    revision: str | None = None
    """Commit it was read at; None for a file."""
    weight_precision: str = CHECKPOINT
    """How its weights are stored: a GGUF mix, else as published."""
    weights_bytes: int | None = None
    """Bytes of all tensors, where the source lists them. [bytes]"""
    weights_are_exact: bool = False
    """Whether those bytes are what one GPU loads when it holds the whole model."""
    notes: tuple[Note, ...] = ()
    """What the reader must know."""

    def scenario(self, **choices: Any) -> Scenario:
        """A scenario of this model; ``choices`` are further fields. Raises KvcalcError.

        On one GPU the listed bytes are its weights; split over several, they are computed.
        """
        fields = {
            "model": PASTED,
            "model_facts": self.facts,
            "model_label": self.label,
            "weight_precision": self.weight_precision,
            **choices,
        }
        plain = Scenario(**fields)
        whole = plain.tp == plain.pp == 1 and plain.weight_precision == self.weight_precision
        if not whole or self.weights_bytes is None or not self.weights_are_exact or plain.weights_mib is not None:
            return plain
        return Scenario(**{**dict(plain), "weights_mib": ceil_div(self.weights_bytes, MIB)})


def from_hub(model: str, *, revision: str | None = None, token: str | None = None) -> Loaded:
    """A model of the Hugging Face Hub, pinned to a commit.

    Parameters
    ----------
    model : ``org/name``, or an address of one of the model's pages.
    revision : branch, tag or commit; the default branch when None.
    token : a token for this call alone; else HF_TOKEN; else the call is anonymous. Never kept or shown.

    Raises
    ------
    HubError       what stands in the way of fetching it.
    ConfigError    a config that cannot be sized.
    """
    from kvcalc.reading.hub import census_note, fetch

    found = fetch(model, revision=revision, token=token)
    spec = read_config(found.config, label=found.model_id)
    notes = list(found.notes)
    census = census_note(spec, found)
    if census is not None:
        notes.append(census)
    listed = None if found.weights is None else found.weights.weights_bytes
    if listed is not None:
        computed = weight_bytes(spec, draft=True)
        text = f"Its tensors take {fmt_gib(listed, 2)}; {fmt_gib(computed, 2)} is computed, draft layers included."
        notes.append(Note(field="weights", text=text))
    return Loaded(
        spec=spec,
        facts=spec.sizing_facts,
        label=found.model_id,
        revision=found.revision,
        weights_bytes=listed,
        notes=tuple(notes),
    )


def from_gguf(source: bytes | Path) -> Loaded:
    """A model from a GGUF file, or from the bytes at its start. Raises ConfigError.

    Weights are counted from the list of tensors, to the byte, when it is complete.
    """
    spec, header = catalogue.read_gguf_model(source)
    return Loaded(
        spec=spec,
        facts=spec.sizing_facts,
        label=spec.label,
        weight_precision=header.weight_precision or CHECKPOINT,
        weights_bytes=header.weights_bytes,
        weights_are_exact=header.weights_bytes is not None,
        notes=header.notes,
    )
