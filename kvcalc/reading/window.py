"""Sliding window, longest context, and whether there is an encoder: facts that several readers ask for."""

from __future__ import annotations

from kvcalc.reading.config import Config

WINDOW_KEYS = ("sliding_window", "sliding_window_size", "interleaved_sliding_window")
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "seq_length",
    "max_seq_len",
    "max_sequence_length",
    "max_context_length",
    "context_length",
    "model_max_length",
)


def is_encoder_decoder(config: Config) -> bool:
    """Whether the decoder also attends to an encoder's output."""
    return config.flag("is_encoder_decoder")


def has_window(config: Config) -> bool:
    """Whether a sliding window is in force: there, and not switched off."""
    if config.has("use_sliding_window") and not config.flag("use_sliding_window"):
        return False
    if config.has(*WINDOW_KEYS, "window_size"):
        return True
    return "L" in config.string("layer_pattern", default="") and not config.is_null(WINDOW_KEYS[0])


def read_window(config: Config) -> int:
    """Tokens a sliding layer's query sees, itself included. [tokens]"""
    declared = config.integer(*WINDOW_KEYS, "window_size", default=None, minimum=1)
    if declared is None:
        declared = config.class_default(WINDOW_KEYS[0])
    return config.integer(*WINDOW_KEYS, minimum=1) if declared is None else declared


def read_max_context(config: Config) -> int | None:
    """Longest context the file states; None when it states none. [tokens]"""
    keys = ("max_target_positions", *_CONTEXT_KEYS) if is_encoder_decoder(config) else _CONTEXT_KEYS
    return config.integer(*keys, default=None, minimum=1)
