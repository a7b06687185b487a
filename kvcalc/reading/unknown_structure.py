"""Keys that change what a layer caches in a way this reader does not know: refused by name."""

from __future__ import annotations

import re

from kvcalc.errors import ConfigError
from kvcalc.reading.config import Config, plain

_KNOWN = frozenset(
    """compress_ratios compress_rates compress_rope_theta linear_attn_config linear_attn_alpha_factor
    linear_attn_beta_factor layernorm_linear_attention_alpha layernorm_linear_attention_beta
    sparse_attention_config index_kpool index_kpool_always_select_tail""".split()
)
_REFUSED = frozenset(["block_types", "kv_source_layer_ids", "indexer_budget", "kv_share_layers"])
_SUSPICIOUS = re.compile(
    r"(^|_)(lru|retention|recurrent|recurrence|loops?|cycles?|nsa|moba|hyena|yoco|kpool|compress\w*|sparse_att\w*"
    r"|linear_att\w*|[xsm]lstm|hgrn|gla|deltanet|ttt)(_|$)",
    re.IGNORECASE,
)


def refuse_unknown_structure(config: Config) -> None:
    """Raises ConfigError for a key that is in force and whose effect on the cache is unknown."""
    for key, value in config.text.items():
        unknown = key in _REFUSED or (key not in _KNOWN and _SUSPICIOUS.search(key))
        if unknown and value not in (None, False, 0, 1, "", [], {}):
            raise ConfigError(
                config.name(key),
                "a structure this calculator knows",
                plain(value),
                hint="Its cache size is unknown, so no number is shown.",
            )
