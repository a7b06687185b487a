"""One dict of a config, strictly typed: a number that is not a plain whole number is refused by its key.

Every key that is looked at is remembered, so that a model can be stored as the few facts that decide its
size. Null means missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import overload

from kvcalc.errors import ConfigError

Path = tuple[str | int, ...]

LARGEST_INTEGER = 10**12
"""Nothing in a config that counts something is larger; a longer number is a slip."""

HERE = "\0"
"""Path entry that keeps an otherwise empty dict in the sizing facts."""

_FIX = "Correct this key in the config."
_WHOLE_FILE = "Paste the whole config.json of the model."
_UNSET = object()


class Section:
    """One dict of the file. Getters take keys in order of preference; the first that is not null wins."""

    def __init__(self, values: Mapping[str, object], path: Path = (), seen: set[Path] | None = None) -> None:
        self.values = values
        self.path = path
        self.seen: set[Path] = set() if seen is None else seen

    def name(self, key: str) -> str:
        """The key as an error shows it: ``text_config.num_hidden_layers``."""
        return ".".join(str(part) for part in (*self.path, key))

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Path, object]:
        """(shown name, path, value) of the first key that is not null; the first key and None when all are."""
        for key in keys:
            if key in self.values:
                self.seen.add((*self.path, key))
                if self.values[key] is not None:
                    return self.name(key), (*self.path, key), self.values[key]
        return self.name(keys[0]), (*self.path, keys[0]), None

    def get(self, *keys: str, default: object = None) -> object:
        """The raw value. Prefer the typed getters."""
        value = self._find(keys)[2]
        return default if value is None else value

    def has(self, *keys: str) -> bool:
        """Whether one of the keys holds something."""
        return self._find(keys)[2] is not None

    @overload
    def integer(self, *keys: str, minimum: int = 0, maximum: int = LARGEST_INTEGER) -> int: ...

    @overload
    def integer(self, *keys: str, default: int, minimum: int = 0, maximum: int = LARGEST_INTEGER) -> int: ...

    @overload
    def integer(self, *keys: str, default: None, minimum: int = 0, maximum: int = LARGEST_INTEGER) -> int | None: ...

    def integer(
        self, *keys: str, default: object = _UNSET, minimum: int = 0, maximum: int = LARGEST_INTEGER
    ) -> int | None:
        """A whole number between the bounds. Without a default the key must be there.

        Raises ConfigError naming the key: missing, NaN, negative, a float, a bool or text.
        """
        name, _, value = self._find(keys)
        if value is None and default is not _UNSET:
            return default  # type: ignore[return-value]
        return whole_number(name, value, minimum=minimum, maximum=maximum)

    def integers(
        self, *keys: str, minimum: int = 0, maximum: int = LARGEST_INTEGER, count: int | None = None
    ) -> tuple[int, ...] | None:
        """A list of whole numbers, of ``count`` entries when given; None when missing."""
        name, _, value = self._find(keys)
        if value is None:
            return None
        items = _list_of(name, value, count)
        return tuple(
            whole_number(f"{name}[{i}]", item, minimum=minimum, maximum=maximum) for i, item in enumerate(items)
        )

    def per_layer(
        self, *keys: str, count: int, default: int | None = None, minimum: int = 0, maximum: int = LARGEST_INTEGER
    ) -> tuple[int, ...] | None:
        """One whole number per layer, from a number (the same everywhere) or a list of ``count``."""
        value = self._find(keys)[2]
        if value is None:
            return None if default is None else (default,) * count
        if isinstance(value, list | tuple):
            return self.integers(*keys, minimum=minimum, maximum=maximum, count=count)
        return (self.integer(*keys, minimum=minimum, maximum=maximum),) * count

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A true or false."""
        name, _, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(name, "true or false", plain(value), hint=_FIX)
        return value

    @overload
    def string(self, *keys: str, default: str) -> str: ...

    @overload
    def string(self, *keys: str, default: None = None) -> str | None: ...

    def string(self, *keys: str, default: str | None = None) -> str | None:
        """A text."""
        name, _, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(name, "a text", plain(value), hint=_FIX)
        return value

    def strings(self, *keys: str, count: int | None = None) -> tuple[str, ...] | None:
        """A list of texts, of ``count`` entries when given; None when missing."""
        name, _, value = self._find(keys)
        if value is None:
            return None
        items = _list_of(name, value, count)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise ConfigError(f"{name}[{i}]", "a text", plain(item), hint=_FIX)
        return tuple(str(item) for item in items)

    def rational(self, *keys: str, default: Fraction | None = None) -> Fraction | None:
        """A finite number from 0, exactly as written (1.3 is 13/10): multipliers and expansion factors."""
        name, _, value = self._find(keys)
        return default if value is None else exact_number(name, value)

    def rationals(self, *keys: str, count: int | None = None) -> tuple[Fraction, ...] | None:
        """A list of finite numbers from 0; None when missing."""
        name, _, value = self._find(keys)
        if value is None:
            return None
        return tuple(exact_number(f"{name}[{i}]", item) for i, item in enumerate(_list_of(name, value, count)))

    def section(self, *keys: str) -> Section | None:
        """A nested dict; None when missing."""
        for key in keys:
            found = self._subsection(key)
            if found is not None:
                return found
        return None

    def _subsection(self, key: str) -> Section | None:
        value = self.values.get(key)
        if value is None:
            return None
        return self._as_section(value, (*self.path, key))

    def _as_section(self, value: object, path: Path) -> Section:
        if not isinstance(value, Mapping):
            raise ConfigError(".".join(map(str, path)), "an object", plain(value), hint=_FIX)
        self.seen.add((*path, HERE))
        return Section(value, path, self.seen)

    def sections(self, *keys: str, count: int | None = None) -> tuple[Section, ...] | None:
        """A list of nested dicts; None when missing."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                items = _list_of(self.name(key), value, count)
                return tuple(self._as_section(item, (*self.path, key, i)) for i, item in enumerate(items))
        return None


def facts_seen(raw: Mapping[str, object], seen: set[Path]) -> object:
    """The parts of a file at these paths, in its own order and nesting."""
    tree: dict[str | int, object] = {}
    for path in sorted(seen, key=len):  # the shorter first: a whole object needs none of its parts
        node: object = tree
        for part in path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node
        if isinstance(node, dict) and path[-1] != HERE:
            node.setdefault(path[-1], _ALL)
    return _copy(raw, tree)


_ALL = "all"


def _copy(value: object, tree: object) -> object:
    if tree == _ALL:
        return value
    assert isinstance(tree, dict)
    if isinstance(value, Mapping):
        return {key: _copy(below, tree[key]) for key, below in value.items() if key in tree}
    if isinstance(value, list | tuple):
        return [_copy(item, tree.get(i, {})) for i, item in enumerate(value)]
    return value


def plain(value: object) -> object:
    """A value that an error can show: objects and lists are described, not printed."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}"
    return value


def whole_number(name: str, value: object, *, minimum: int = 0, maximum: int = LARGEST_INTEGER) -> int:
    """The value as a whole number between the bounds. Raises ConfigError naming the key."""
    expected = (
        f"a whole number from {minimum:,}"
        if maximum == LARGEST_INTEGER
        else f"a whole number {minimum:,} to {maximum:,}"
    )
    if value is None:
        raise ConfigError(name, expected, hint=_WHOLE_FILE)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigError(name, expected, plain(value), hint=_FIX)
    return value


def exact_number(name: str, value: object) -> Fraction:
    """The value as an exact non-negative number. Raises ConfigError naming the key."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(name, "a number from 0", plain(value), hint=_FIX)
    if not 0 <= value <= LARGEST_INTEGER:  # NaN fails both
        raise ConfigError(name, "a number from 0", plain(value), hint=_FIX)
    return Fraction(str(value))


def _list_of(name: str, value: object, count: int | None) -> list[object]:
    if not isinstance(value, list | tuple):
        raise ConfigError(name, "a list", plain(value), hint=_FIX)
    if count is not None and len(value) != count:
        raise ConfigError(name, f"{count:,} entries, one per layer", f"{len(value):,} entries", hint=_FIX)
    return list(value)
