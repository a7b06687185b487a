"""Vision and audio towers: their tensors, from their own config section and the class's defaults.

The layouts are data (``model_presets/tensors/towers.toml``). A tower that nothing describes is left out, and
said so.
"""

from __future__ import annotations

from functools import lru_cache

from pydantic import Field

from kvcalc.data import load_table
from kvcalc.errors import Record
from kvcalc.reading.config import Config
from kvcalc.reading.families import Fact, FactBook
from kvcalc.reading.rows import Block
from kvcalc.reading.section import Section
from kvcalc.reading.shape import Shape
from kvcalc.reading.tensor_list import TensorList
from kvcalc.tensors import TensorClass

_FIRST_STAGE = (-1,)


class Images(Record):
    """How pictures become tokens: expressions over the tower's facts."""

    side: str | None = None
    """Side of the square of pixels one token stands for. [pixels]"""
    tokens: str | None = None
    """Tokens of any image. [tokens]"""
    largest: str | None = None
    """Most tokens of one image. [tokens]"""


class Tower(Record):
    """One encoder."""

    model_types: tuple[str, ...]
    """``model_type`` values of its own config section."""
    blocks: tuple[str, ...]
    """What it is made of."""
    facts: dict[str, Fact]
    """Its sizes, with class defaults."""
    images: Images | None = None
    """How pictures become tokens, where the tower decides it whatever it is joined to."""


class Wrapper(Record):
    """What a multimodal class adds to its language model."""

    model_types: tuple[str, ...]
    """``model_type`` values at the top of the file."""
    vision: str | None = None
    """Vision tower when the section does not name its own type."""
    audio: str | None = None
    """Audio tower, likewise."""
    join: tuple[str, ...] = ()
    """Blocks between tower and language model."""
    always: bool = False
    """Whether the vision tower is built from class defaults when the file has no section for it."""
    facts: dict[str, Fact] = Field(default_factory=dict)
    """Facts of the join, and what this class changes in the tower."""
    absent: dict[str, Fact] = Field(default_factory=dict)
    """Sizes of the tower when the file has no section for it."""
    images: Images | None = None
    """How pictures become tokens; None where it is not known."""


class _Towers(Record):
    base: dict[str, Fact]
    blocks: dict[str, Block]
    towers: tuple[Tower, ...]
    wrappers: tuple[Wrapper, ...]


@lru_cache(maxsize=1)
def _data() -> _Towers:
    return load_table("tensors/towers.toml", _Towers)


@lru_cache(maxsize=1)
def _towers() -> dict[str, Tower]:
    return {model_type: tower for tower in _data().towers for model_type in tower.model_types}


@lru_cache(maxsize=1)
def _wrappers() -> dict[str, Wrapper]:
    return {model_type: wrapper for wrapper in _data().wrappers for model_type in wrapper.model_types}


_NO_WRAPPER = Wrapper(model_types=())


def tower_tensors(config: Config, shape: Shape) -> tuple[TensorClass, ...]:
    """Tensors of the vision and audio towers and of what joins them to the language model."""
    wrapper = _wrappers().get(config.wrapper_type, _NO_WRAPPER)
    tensors = TensorList({})
    for kind, section, default in (
        ("vision", vision_section(config, wrapper), wrapper.vision),
        ("audio", config.audio, wrapper.audio),
    ):
        if section is None:
            continue
        tower = _tower(section, default)
        if tower is None:
            config.assume(
                f"{kind}_config",
                f"no parameters for the {kind} tower",
                "Its type is not in the catalogue, so its weights are missing from the total.",
            )
            continue
        if wrapper is _NO_WRAPPER:
            config.assume(
                f"{kind}_config",
                f"no parameters for what joins the {kind} tower",
                f"How {config.wrapper_type or 'this model type'} joins it is not known here; the tower is counted.",
            )
        fact = tower_facts(config, wrapper, tower, section, hidden_size=shape.hidden_size)
        parts = {_data().blocks[name].part for name in tower.blocks}
        joins = [name for name in wrapper.join if _data().blocks[name].part in parts]
        for name in (*tower.blocks, *joins):
            tensors.add(_data().blocks[name], fact, _FIRST_STAGE)
    return tuple(tensor.model_copy(update={"quantizable": False}) for tensor in tensors.classes())


def vision_section(config: Config, wrapper: Wrapper) -> Section | None:
    """The vision tower's section; an empty one where the class builds it unasked; None without a tower."""
    if config.vision is None and wrapper.always:
        config.assume(
            "vision_config", "the class's default vision tower", "The file has no section for it; the class builds one."
        )
        return Section({})
    return config.vision


def tower_facts(config: Config, wrapper: Wrapper, tower: Tower, section: Section, *, hidden_size: int) -> FactBook:
    """Facts of a tower and of its join."""
    absent = wrapper.absent if config.vision is None else {}
    facts = _data().base | tower.facts | wrapper.facts | absent
    return FactBook({"hidden": hidden_size}, facts, section, config)


def vision_images(config: Config) -> tuple[Images, FactBook] | None:
    """How pictures become tokens, and the facts to work it out; None where it is not known."""
    wrapper = _wrappers().get(config.wrapper_type)
    section = vision_section(config, wrapper) if wrapper is not None else None
    if wrapper is None or section is None:
        return None
    tower = _tower(section, wrapper.vision)
    images = (tower.images or wrapper.images) if tower is not None else None
    if tower is None or images is None:
        return None
    return images, tower_facts(config, wrapper, tower, section, hidden_size=0)


def _tower(section: Section, default: str | None) -> Tower | None:
    return _towers().get(section.string("model_type", default="")) or _towers().get(default or "")
