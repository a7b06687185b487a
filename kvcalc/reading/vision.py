"""How a vision model turns a picture into tokens."""

from __future__ import annotations

from kvcalc.model_spec import ImageTokens
from kvcalc.reading.config import Config
from kvcalc.reading.rows import expression
from kvcalc.reading.towers import vision_images


def image_tokens(config: Config) -> ImageTokens | None:
    """Tokens per picture: by size, fixed, or None for text models and for towers that are not known.

    Source: the processors of transformers 5.24.0, as noted in ``model_presets/tensors/towers.toml``.
    """
    found = vision_images(config)
    if found is None:
        return None
    images, fact = found

    def value(text: str | None) -> int | None:
        return None if text is None else expression(text).value(fact) or None

    return ImageTokens(
        pixels_per_token_side=value(images.side),
        tokens_per_image=value(images.tokens),
        largest_image_tokens=value(images.largest),
    )
