"""How a checkpoint stores its weights: every dialect of quantization_config as rules over module paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kvcalc.reading.config import Config
from kvcalc.reading.section import Section
from kvcalc.tensors import Quantization, QuantRule

_BASES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "bf16",
    "fp32": "bf16",
    "float": "bf16",
}
_IGNORE_KEYS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
_EXPERTS = ("experts",)
_OTHER_EXPERT = re.compile(r"\.experts\.[1-9]\d*\.")
_BLOCK = (128, 128)
_FP8_SCALE_BITS = 32


def read_quantization(config: Config) -> Quantization:
    """What the file declares about its storage; plain 16-bit when it declares nothing.

    Raises ConfigError naming a key of the declaration that cannot be read. A method that is not known is
    taken as 16-bit, as an assumption.
    """
    base = _base_precision(config)
    section = config.section("quantization_config", "compression_config")
    mlx = config.section("quantization")
    beside = config.section("hf_quant_config")
    if beside is not None and (section is None or _leaves_layers_out(section)):
        mlx = beside.section("quantization") or beside
    if mlx is not None and mlx.has("quant_algo", "quantized_layers"):
        section, mlx = mlx, None
    if section is None and mlx is not None and mlx.has("qformat_weight"):
        rule = _fp8_rule(channel=mlx.string("qscheme_weight", default="") == "CHANNEL")  # Mistral's params.json
        return Quantization(method="fp8", base_precision=base, rules=(rule,))
    if section is None:
        return _mlx(mlx, base) if mlx is not None and mlx.has("bits") else Quantization(base_precision=base)
    method = _method(section)
    reader = _METHODS.get(method)
    rules = reader(section) if reader is not None else ()
    if not rules:
        config.assume(
            "quantization_config",
            "16-bit weights",
            f"The quantisation method {method or '(unnamed)'} is not known here; choose a weight precision to size it.",
        )
        return Quantization(method=method or None, base_precision=base, kv_precision=_kv_precision(section))
    if config.string("expert_dtype", default="") == "fp4" and not section.has("quantized_layers"):
        # DeepSeek-V4: the experts' format stands outside quantization_config, which says fp8.
        rules = (QuantRule(weight_format="mxfp4", targets=_EXPERTS), *rules)
    return Quantization(
        method=method,
        base_precision=base,
        rules=rules,
        kept=() if _is_mixed_fp8(section) else _kept(section),
        kv_precision=_kv_precision(section),
    )


def _leaves_layers_out(section: Section) -> bool:
    """Mixed precision whose layers only the file beside it lists: else config.json's own declaration is in force.

    Source: vLLM 0.32 ``model_loader/weight_utils.py`` get_quant_config.
    """
    mixed = section.string("quant_algo", default="").upper() == "MIXED_PRECISION"
    return mixed and not section.has("quantized_layers")


def _base_precision(config: Config) -> str:
    declared = (config.string("dtype", "torch_dtype") or "bfloat16").removeprefix("torch.")
    if declared in ("float32", "fp32", "float"):
        config.assume("torch_dtype", "16-bit weights", "The file says float32; engines load such weights as 16-bit.")
    return _BASES.get(declared, "bf16")


def _method(section: Section) -> str:
    method = section.string("quant_method", default="").lower().replace("-", "_")
    if not method and section.has("quant_algo"):
        return "modelopt"
    if not method and section.flag("load_in_4bit", "load_in_8bit"):
        return "bitsandbytes"
    if not method and section.has("config_groups"):
        return "compressed_tensors"
    return method


def _kept(section: Section) -> tuple[str, ...]:
    patterns: list[str] = []
    for key in _IGNORE_KEYS:
        patterns += section.strings(key) or ()
    dynamic = section.section("dynamic")
    if dynamic is not None:  # GPTQModel: "-:<regex>" leaves modules alone
        patterns += [f"re:{key[2:]}" for key in dynamic.values if key.startswith("-:") and dynamic.get(key) is not None]
    return tuple(patterns)


def _fp8(section: Section) -> tuple[QuantRule, ...]:
    mixed = _quantized_layers(section)
    block = section.integers("weight_block_size", minimum=1, count=2)
    if block is not None:
        return (*mixed, _fp8_rule(block=(block[0], block[1])))
    return (*mixed, _fp8_rule())


def _fp8_rule(
    *, block: tuple[int, int] | None = None, channel: bool = False, targets: tuple[str, ...] = ()
) -> QuantRule:
    scale_bits = _FP8_SCALE_BITS if block or channel else None
    return QuantRule(
        weight_format="fp8",
        block_shape=block,
        group_size=-1 if channel else None,
        scale_bits=scale_bits,
        targets=targets,
    )


def _fbgemm_fp8(section: Section) -> tuple[QuantRule, ...]:
    return (_fp8_rule(channel=True),)


def _mxfp4(section: Section) -> tuple[QuantRule, ...]:
    return (QuantRule(weight_format="mxfp4", targets=_EXPERTS),)


def _gptq(section: Section) -> tuple[QuantRule, ...]:
    bits = section.integer("bits", "w_bit", default=4, minimum=1, maximum=16)
    return (
        QuantRule(
            weight_format="int4",
            bits=bits,
            group_size=_group_size(section),
            zero_bits=bits,
            act_order=section.flag("desc_act"),
        ),
    )


def _awq(section: Section) -> tuple[QuantRule, ...]:
    bits = section.integer("bits", "w_bit", default=4, minimum=1, maximum=16)
    zeros = bits if section.flag("zero_point", default=True) else 0
    return (QuantRule(weight_format="int4", bits=bits, group_size=_group_size(section), zero_bits=zeros),)


def _auto_round(section: Section) -> tuple[QuantRule, ...]:
    bits = section.integer("bits", default=4, minimum=1, maximum=16)
    return (QuantRule(weight_format="int4", bits=bits, group_size=_group_size(section), zero_bits=bits),)


def _group_size(section: Section) -> int:
    value = section.get("group_size", "q_group_size", default=128)
    return -1 if value == -1 else section.integer("group_size", "q_group_size", default=128, minimum=1)


def _bitsandbytes(section: Section) -> tuple[QuantRule, ...]:
    if section.flag("load_in_8bit", "_load_in_8bit"):
        return (QuantRule(weight_format="int8"),)
    return (QuantRule(weight_format="nf4", double_quant=section.flag("bnb_4bit_use_double_quant")),)


def _compressed_tensors(section: Section) -> tuple[QuantRule, ...]:
    groups = section.section("config_groups")
    rules = []
    for key in groups.values if groups is not None else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        if group is not None and weights is not None:
            rules.append(_group_rule(weights, _targets(group.strings("targets") or ())))
    return tuple(rules)


def _targets(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return () if "Linear" in patterns else patterns


def _group_rule(weights: Section, targets: tuple[str, ...]) -> QuantRule:
    bits = weights.integer("num_bits", default=8, minimum=1, maximum=16)
    strategy = weights.string("strategy", default="")
    group_size = weights.integer("group_size", default=None, minimum=-1)
    block = weights.integers("block_structure", minimum=1, count=2)
    if weights.string("type", default="int") == "float":
        if bits == 4:
            return QuantRule(weight_format="nvfp4" if group_size == 16 else "mxfp4", targets=targets)
        if group_size and group_size > 0:
            return QuantRule(weight_format="fp8", group_size=group_size, scale_bits=8, targets=targets)
        if block is not None:
            return _fp8_rule(block=(block[0], block[1]), targets=targets)
        if strategy == "block":
            return _fp8_rule(block=_BLOCK, targets=targets)
        return _fp8_rule(channel=strategy == "channel", targets=targets)
    zeros = 0 if weights.flag("symmetric", default=True) else bits
    if bits == 8 and not group_size:
        return QuantRule(weight_format="int8", zero_bits=zeros, targets=targets)
    return QuantRule(
        weight_format="int4",
        bits=bits,
        group_size=group_size or -1,
        zero_bits=zeros,
        act_order=weights.get("actorder") in ("group", True),
        targets=targets,
    )


def _modelopt(section: Section) -> tuple[QuantRule, ...]:
    algorithm = section.string("quant_algo", default="").upper()
    if algorithm == "MIXED_PRECISION":
        return _quantized_layers(section) or _compressed_tensors(section)
    rule = _algorithm_rule(algorithm, section.integer("group_size", default=None, minimum=1), ())
    return (rule,) if rule is not None else _compressed_tensors(section)


def _algorithm_rule(algorithm: str, group_size: int | None, targets: tuple[str, ...]) -> QuantRule | None:
    if "NVFP4" in algorithm:
        return QuantRule(weight_format="nvfp4", group_size=group_size, targets=targets)
    if "MXFP8" in algorithm:
        return QuantRule(weight_format="fp8", group_size=32, scale_bits=8, targets=targets)
    if "MXFP4" in algorithm:
        return QuantRule(weight_format="mxfp4", targets=targets)
    if algorithm.startswith("FP8"):
        block = _BLOCK if "PB" in algorithm or "BLOCK" in algorithm else None
        return _fp8_rule(block=block, channel="PER_CHANNEL" in algorithm, targets=targets)
    if algorithm.startswith("W4A"):
        return QuantRule(weight_format="int4", group_size=group_size or 128, zero_bits=0, targets=targets)
    if algorithm.startswith(("INT8", "W8A")):
        return QuantRule(weight_format="int8", targets=targets)
    return None


def _quantized_layers(section: Section) -> tuple[QuantRule, ...]:
    """modelopt's mixed precision: a format for each listed module, gathered by format."""
    layers = section.section("quantized_layers")
    if layers is None:
        return ()
    by_format: dict[tuple[str, int | None], list[str]] = {}
    for path in layers.values:
        if _OTHER_EXPERT.search(path):  # expert 0 stands for all of them, and keeps tens of thousands out of links
            continue
        entry = layers.section(path)
        if entry is not None:
            key = (entry.string("quant_algo", default="").upper(), entry.integer("group_size", default=None, minimum=1))
            by_format.setdefault(key, []).append(path)
    rules = (_algorithm_rule(algorithm, group, tuple(paths)) for (algorithm, group), paths in by_format.items())
    return tuple(rule for rule in rules if rule is not None)


def _is_mixed_fp8(section: Section) -> bool:
    """An FP8 checkpoint with other formats on listed modules: its ignore list speaks of those formats only."""
    return _method(section) == "fp8" and section.has("quantized_layers")


def _quark(section: Section) -> tuple[QuantRule, ...]:
    whole = section.section("global_quant_config")
    weight = whole.section("weight") if whole is not None else None
    if weight is None:
        return ()
    dtype = weight.string("dtype", default="")
    if dtype.startswith("fp4"):
        return (QuantRule(weight_format="mxfp4"),)
    if dtype.startswith("fp8"):
        return (_fp8_rule(channel=weight.string("qscheme", default="") == "per_channel"),)
    return (QuantRule(weight_format="int8"),) if dtype.startswith("int8") else ()


def _mlx(section: Section, base: str) -> Quantization:
    """MLX: every matrix, embedding and head included; a 16-bit scale and bias per group."""
    kept: list[str] = []
    rules: list[QuantRule] = []
    for key, value in section.values.items():
        if value is False:
            section.flag(key)
            kept.append(key)
        elif isinstance(value, Mapping):
            entry = section.section(key)
            if entry is not None and entry.has("bits"):
                rules.append(_mlx_rule(entry, (key,)))
    return Quantization(
        method="mlx",
        base_precision=base,
        rules=(*rules, _mlx_rule(section, ())),
        kept=tuple(kept),
        quantizes_tables=True,
    )


def _mlx_rule(section: Section, targets: tuple[str, ...]) -> QuantRule:
    mode = section.string("mode", default="affine")
    if mode in ("mxfp4", "nvfp4"):
        return QuantRule(weight_format=mode, targets=targets)
    bits = section.integer("bits", minimum=1, maximum=16)
    group_size = section.integer("group_size", default=64, minimum=1)
    if mode == "mxfp8":
        return QuantRule(weight_format="fp8", group_size=group_size, scale_bits=8, targets=targets)
    return QuantRule(
        weight_format="int4", bits=bits, group_size=group_size, scale_bits=16, zero_bits=16, targets=targets
    )


def _kv_precision(section: Section) -> str | None:
    """The KV format the checkpoint was calibrated for, None when it says nothing."""
    scheme = section.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        nested = section.section("kv_cache_scheme")
        bits = nested.integer("num_bits", default=8, minimum=1, maximum=16) if nested is not None else 8
        if bits == 4:
            return "nvfp4"
        return "int8" if nested is not None and nested.string("type", default="float") == "int" else "fp8"
    for name in (scheme, section.get("kv_cache_quant_algo"), section.get("kv_cache_quant_algorithm")):
        if isinstance(name, str) and name.upper() in _KV_ALGORITHMS:
            return _KV_ALGORITHMS[name.upper()]
    return None


_KV_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}

_METHODS: dict[str, Callable[[Section], tuple[QuantRule, ...]]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm_fp8,
    "mxfp4": _mxfp4,
    "gpt_oss_mxfp4": _mxfp4,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "awq": _awq,
    "awq_marlin": _awq,
    "auto_round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "bitsandbytes_4bit": _bitsandbytes,
    "compressed_tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "quark": _quark,
}
