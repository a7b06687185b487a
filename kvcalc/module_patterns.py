"""Module paths of a checkpoint against the patterns of its ignore and target lists.

Quantisers write the same thing in many ways: whole paths (``model.layers.3.mlp.gate``), parts of one
(``self_attn``), globs (``*.mlp.shared_expert.*``, ``model.layers.0*``) and regular expressions (``re:.*lm_head``).
Wrappers put different words before ``layers``; those are dropped on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_LAYER_LISTS = ("layers", "h", "blocks", "block")
_OUTER = frozenset(("model", "language_model", "transformer", "backbone", "decoder", "text_model", "gpt_neox", "*"))
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")
_EVERY_LINEAR = frozenset(("Linear", "linear", "torch.nn.Linear"))


def module_path(name: str, layer: int) -> str:
    """A tensor's path without what wrappers put before it: ``layers.3.mlp.gate``, ``lm_head``."""
    return f"layers.{layer}.{name}" if layer >= 0 else _without_outer(name)


def _without_outer(path: str) -> str:
    parts = path.split(".")
    while len(parts) > 1 and parts[0] in _OUTER and parts[0] != "*":
        parts.pop(0)
    return ".".join(parts)


class ModulePatterns:
    """Patterns sorted by how they are matched, so that thousands of whole paths cost one look-up each."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._paths: set[str] = set()
        self._anywhere: list[str] = []
        self._regexes: list[re.Pattern[str]] = []
        self._full_regexes: list[re.Pattern[str]] = []
        self.everything = False
        self.by_layer = False
        """Whether the answer can differ from layer to layer."""
        for pattern in patterns:
            self._add(pattern.strip())

    def _add(self, pattern: str) -> None:
        if pattern in _EVERY_LINEAR:
            self.everything = True
            return
        if pattern.startswith("re:"):
            self._full_regexes.append(_compiled(pattern[3:]))
            self.by_layer |= any(letter.isdigit() for letter in pattern)
            return
        path = _canonical(pattern.rstrip("*").rstrip("."))
        if not path:
            return
        if "*" in path:
            expression = "".join(".*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", path))
            self._regexes.append(_compiled(rf"(?:^|.*\.){expression}(?:\.|$)"))
            self.by_layer |= any(letter.isdigit() for letter in path)
        elif path.startswith("layers."):
            self._paths.add(path)
            self.by_layer = True
        elif path != pattern.rstrip("*").rstrip("."):  # outer words were dropped: a path from the top
            self._paths.add(path)
        else:
            self._anywhere.append(f".{path}.")

    def match(self, name: str, layer: int) -> bool:
        """Whether a pattern covers this tensor of this layer, or a module it sits in."""
        if self.everything:
            return True
        return any(self._match(path) for path in _spellings(module_path(name, layer)))

    def _match(self, path: str) -> bool:
        framed = f".{path}."
        if any(part in framed for part in self._anywhere):
            return True
        if self._paths and any(prefix in self._paths for prefix in _prefixes(path)):
            return True
        if any(regex.match(path) for regex in self._regexes):
            return True
        return any(regex.match(prefix + path) for regex in self._full_regexes for prefix in _PREFIXES)


def _canonical(pattern: str) -> str:
    """The pattern without outer words, the list of layers under one name."""
    parts = pattern.split(".")
    for i, part in enumerate(parts):
        if part in _LAYER_LISTS and set(parts[:i]) <= _OUTER:
            return ".".join(("layers", *parts[i + 1 :])) if i + 1 < len(parts) else "layers"
    return _without_outer(pattern)


def _prefixes(path: str) -> Iterable[str]:
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def _spellings(path: str) -> tuple[str, ...]:
    """The path; an expert's also with an index, as checkpoints number them: expert 0 stands for all of them."""
    return (path, path.replace(".experts.", ".experts.0.")) if ".experts." in path else (path,)


@lru_cache(maxsize=512)
def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error:
        return re.compile(re.escape(expression))
