"""Files that people paste and that are not a language model: said what they are, and what to paste instead."""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.errors import ConfigError
from kvcalc.reading.config import LAYER_COUNT_KEYS, plain

_PASTE = "Paste the model's config.json."
_ENCODERS = frozenset(
    """albert align altclip audio-spectrogram-transformer beit bert bert-generation big_bird camembert canine
    chinese_clip clap clip clip_text_model clip_vision_model clipseg convbert convnext data2vec-audio data2vec-text
    data2vec-vision deberta deberta-v2 deit detr dinov2 dinov3_vit distilbert dpr electra ernie ernie_m esm eurobert
    flaubert flava fnet funnel gte hubert jina_bert layoutlm layoutlmv2 layoutlmv3 longformer luke markuplm mobilebert
    modernbert mpnet mra neobert nezha new nomic_bert nystromformer qdqbert rembert roberta roberta-prelayernorm
    roformer sam segformer siglip siglip2 siglip_text_model siglip_vision_model squeezebert swin tapas unispeech vit
    vit_mae wav2vec2 wav2vec2-bert wavlm xclip xlm-roberta xlm-roberta-xl xmod yoso""".split()
)
_SAMPLING_KEYS = ("do_sample", "temperature", "top_p", "top_k", "max_new_tokens", "repetition_penalty")


def refuse_what_is_not_a_model(raw: Mapping[str, object]) -> None:
    """Raises ConfigError when the file is some other known thing."""
    named = {key for key, value in raw.items() if value is not None}
    _refuse_encoder(raw)
    if named & {"_class_name", "_diffusers_version"}:
        key = "_class_name" if "_class_name" in named else "_diffusers_version"
        raise ConfigError(
            key,
            "a causal language model",
            plain(raw[key]),
            hint="This is part of a diffusers image pipeline, which has no KV cache. " + _PASTE,
        )
    if any(raw.get(key) is not None for key in LAYER_COUNT_KEYS):
        return
    if "peft_type" in named or "base_model_name_or_path" in named:
        base = plain(raw.get("base_model_name_or_path"))
        raise ConfigError(
            "peft_type",
            "a whole model",
            "a PEFT adapter",
            hint=f"Paste the config.json of its base model (base_model_name_or_path: {str(base)[:80]}).",
        )
    if isinstance(raw.get("encoder"), Mapping) and isinstance(raw.get("decoder"), Mapping):
        raise ConfigError(
            "decoder",
            "one language model",
            "an encoder and a decoder side by side",
            hint="Paste the config.json of the decoder alone; the encoder's tokens are then not counted.",
        )
    if "model_type" not in named:
        _refuse_side_file(raw, named)


def _refuse_encoder(raw: Mapping[str, object]) -> None:
    model_type = raw.get("model_type")
    architectures = raw.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    encoder = isinstance(model_type, str) and model_type in _ENCODERS and raw.get("is_decoder") is not True
    masked = isinstance(first, str) and first.endswith(("ForMaskedLM", "ForImageClassification"))
    if encoder or (masked and "llava" not in str(model_type).lower()):
        raise ConfigError(
            "model_type" if encoder else "architectures",
            "a causal or encoder-decoder language model",
            plain(model_type if encoder else first),
            hint="This is an encoder-only model: it reads its whole input at once and keeps no KV cache.",
        )


def _refuse_side_file(raw: Mapping[str, object], named: set[str]) -> None:
    quantization = raw.get("quantization")
    if isinstance(quantization, Mapping) and ("producer" in named or "quant_algo" in quantization):
        what, key = "a ModelOpt hf_quant_config.json", "quantization"
        _refuse(key, what, "It says how the weights are stored, not the model's shape. " + _PASTE)
    if "weight_map" in named:
        _refuse("weight_map", "a safetensors index", "It lists files, not the model's shape. " + _PASTE)
    if named & {"tokenizer_class", "added_tokens_decoder", "chat_template"}:
        _refuse("tokenizer_class", "a tokenizer_config.json", _PASTE)
    if named & {"image_processor_type", "feature_extractor_type", "processor_class"}:
        _refuse("image_processor_type", "a preprocessor_config.json", _PASTE)
    if "_from_model_config" in named or len(named & set(_SAMPLING_KEYS)) > 1:
        _refuse("generation_config", "a generation_config.json", _PASTE)
    if named & {"zero_optimization", "per_device_train_batch_size", "train_batch_size"}:
        _refuse("config", "a training configuration", _PASTE)
    if any(key.startswith(("general.", "tokenizer.ggml")) for key in named):
        _refuse("general.architecture", "GGUF metadata", "Paste the config.json of the original model.")


def _refuse(key: str, what: str, hint: str) -> None:
    raise ConfigError(key, "a model configuration", what, hint=hint)
