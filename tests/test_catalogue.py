"""The catalogue: laws every GPU row keeps, names that resolve, and presets that all read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import catalogue, data, hardware
from kvcalc.errors import CatalogueError, ConfigError, ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.units import GB, GIB, MIB

GPUS = catalogue.gpus()
GPU_IDS = [spec.id for spec in GPUS]
PRESET_IDS = catalogue.preset_ids()
ROW = """[[gpus]]
id = "test-1gb"
name = "Test 1GB"
aliases = []
vendor = "Test"
family = "Test"
form_factor = "PCIe"
memory_mib = 1024
bandwidth_gb_s = 100
bf16_tflops = 10
link = "pcie"
max_gpus_per_node = 1
release_year = 2026
confidence = "low"
sources = ["a test"]
checked = "2026-11-30"
"""


# GPUs: laws


@pytest.mark.parametrize("spec", GPUS, ids=GPU_IDS)
def test_a_row_says_where_its_figures_come_from(spec: GpuSpec) -> None:
    assert spec.sources
    assert all(len(source) > 10 for source in spec.sources)
    assert date.fromisoformat(spec.checked) <= date.today()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", spec.id)


@pytest.mark.parametrize("spec", GPUS, ids=GPU_IDS)
def test_dense_matrix_rate_over_bandwidth_is_that_of_a_real_chip(spec: GpuSpec) -> None:
    """A sparse rate, a rate per module or a bandwidth in the wrong unit falls outside this band."""
    assert spec.bf16_flops_per_s is not None
    assert 20 <= spec.bf16_flops_per_s / spec.stated_bandwidth_bytes_per_s <= 1000


@pytest.mark.parametrize("spec", GPUS, ids=GPU_IDS)
def test_a_narrower_format_is_not_slower(spec: GpuSpec) -> None:
    rates = [rate for rate in (spec.bf16_flops_per_s, spec.fp8_flops_per_s, spec.fp4_flops_per_s) if rate is not None]
    assert all(wide <= narrow for wide, narrow in pairwise(rates))


@pytest.mark.parametrize("spec", GPUS, ids=GPU_IDS)
def test_a_process_never_sees_more_than_the_driver_has(spec: GpuSpec) -> None:
    least = 0.7 if spec.unified_memory else 0.95
    assert least * spec.memory_bytes <= spec.usable_bytes <= spec.memory_bytes


@pytest.mark.parametrize("spec", [spec for spec in GPUS if re.search(r"\d+GB", spec.name)], ids=lambda spec: spec.id)
def test_the_driver_reports_about_what_the_name_says(spec: GpuSpec) -> None:
    """Names count in units of 10**9 to 2**30; ECC takes up to a sixteenth, a reserve a little more."""
    match = re.search(r"(\d+)GB", spec.name)
    assert match
    named = int(match[1])
    assert 0.9 * named * GB <= spec.memory_bytes <= named * GIB


def test_the_list_goes_family_by_family_with_the_common_ones_first() -> None:
    families = [spec.family for spec in GPUS]
    assert len(set(families)) == 1 + sum(one != other for one, other in pairwise(families))
    assert GPU_IDS[0] == "h100-sxm-80gb"


# GPUs: names


@pytest.mark.parametrize("spec", GPUS, ids=GPU_IDS)
def test_every_spelling_finds_its_row(spec: GpuSpec) -> None:
    for name in (spec.id, spec.name, *spec.aliases):
        assert catalogue.gpu(name) is spec
        assert catalogue.gpu(name.upper().replace(" ", "_")) is spec


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", "h100-sxm-80gb"),
        ("h100 pcie", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("DGX Spark", "gb10"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_what_people_and_drivers_write_is_understood(name: str, found: str) -> None:
    assert catalogue.gpu(name).id == found


def test_a_spec_is_returned_as_it_is() -> None:
    custom = GpuSpec.custom(memory_bytes=GIB)
    assert catalogue.gpu(custom) is custom


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_other_text_is_refused_with_at_most_eight_names(name: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        catalogue.gpu("no gpu " + name)
    assert refused.value.field == "gpu"
    assert refused.value.hint.count(", ") < 8


def test_a_name_that_stands_in_two_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = ROW.replace("test-1gb", "test-2gb").replace("Test 1GB", "Test 2GB").replace("[]", '["test_1gb"]')
    (tmp_path / "gpus.toml").write_text(ROW + second)
    monkeypatch.setattr(data, "DATA_FOLDER", tmp_path)
    monkeypatch.setattr(catalogue, "load_gpus", hardware.load_gpus.__wrapped__)
    with pytest.raises(CatalogueError, match=r"test-2gb.*shared with test-1gb"):
        catalogue._gpus_by_key.__wrapped__()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("bandwidth_gb_s", "bandwith_gb_s"), r"gpus\.toml \[gpus\.test-1gb\.bandwi"),
        (('family = "Test"\n', ""), r"\[gpus\.test-1gb\.family\]: expected this key, got nothing"),
        (("release_year", "colour = 3\nrelease_year"), r"\[gpus\.test-1gb\.colour\]: expected no such key, got 3"),
        (('id = "test-1gb"\n', ""), r"\[gpus\.0\.id\]: expected this key"),
        (("memory_mib = 1024\n", ""), r"\[test-1gb\]: expected memory_mib or usable_gib"),
        (("memory_mib = 1024", 'memory_mib = "1 GiB"'), r"gpus\.test-1gb\.memory_mib"),
        (('link = "pcie"', 'link = "string"'), r"gpus\.test-1gb\.link"),
        (("release_year = 2026", ""), r"gpus\.test-1gb\.release_year"),
    ],
)
def test_a_bad_row_is_refused_by_file_and_key(
    change: tuple[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpus.toml").write_text(ROW.replace(*change))
    monkeypatch.setattr(data, "DATA_FOLDER", tmp_path)
    with pytest.raises(CatalogueError, match=says):
        hardware.load_gpus.__wrapped__()


def test_capacity_rounds_down_and_either_figure_stands_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "DATA_FOLDER", tmp_path)
    (tmp_path / "gpus.toml").write_text(ROW)
    assert hardware.load_gpus.__wrapped__()[0].usable_bytes == 1024 * MIB
    (tmp_path / "gpus.toml").write_text(ROW.replace("memory_mib = 1024", 'usable_gib = "0.99"'))
    spec = hardware.load_gpus.__wrapped__()[0]
    assert spec.memory_bytes == spec.usable_bytes == 99 * GIB // 100


# GPUs: typed by hand


def test_a_custom_gpu_needs_its_memory_alone_and_then_has_no_times() -> None:
    spec = GpuSpec.custom(memory_bytes=24 * GIB)
    assert (spec.usable_bytes, spec.bf16_flops_per_s) == (24 * GIB, None)
    with pytest.raises(ScenarioError, match=r"^gpu\.bandwidth_bytes_per_s: expected a memory bandwidth, got nothing"):
        _ = spec.stated_bandwidth_bytes_per_s
    timed = GpuSpec.custom(memory_bytes=24 * GIB, bandwidth_bytes_per_s=900 * GB)
    assert timed.stated_bandwidth_bytes_per_s == 900 * GB


@pytest.mark.parametrize("field", ["memory_bytes", "usable_bytes", "bandwidth_bytes_per_s", "bf16_flops_per_s"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "80"])
def test_a_custom_gpu_with_an_impossible_figure_is_refused_by_its_name(field: str, value: object) -> None:
    figures: dict[str, object] = {"memory_bytes": GIB, field: value}
    with pytest.raises(ScenarioError, match=rf"^gpu\.{field}: expected a whole number from 1"):
        GpuSpec.custom(**figures)  # type: ignore[arg-type]


def test_usable_memory_may_equal_the_memory_and_not_exceed_it() -> None:
    assert GpuSpec.custom(memory_bytes=GIB, usable_bytes=GIB).usable_bytes == GIB
    with pytest.raises(ScenarioError, match=r"^gpu\.usable_bytes: expected at most memory_bytes"):
        GpuSpec.custom(memory_bytes=GIB, usable_bytes=GIB + 1)


# Model presets


@pytest.mark.parametrize("preset_id", PRESET_IDS)
def test_a_preset_reads_and_its_facts_are_all_it_needs(preset_id: str) -> None:
    found, spec = catalogue.preset(preset_id), catalogue.model(preset_id)
    assert (spec.label, spec.num_layers > 0) == (found.label, True)
    assert sorted(layer for group in spec.layer_groups for layer in group.layers)[0] == 0
    again = catalogue.read_model(spec.sizing_facts)
    assert again.layer_groups == spec.layer_groups
    assert again.tensors == spec.tensors
    assert again.quantization == spec.quantization


@pytest.mark.parametrize("found", catalogue.model_presets(), ids=PRESET_IDS)
def test_a_preset_says_where_it_was_read(found: catalogue.ModelPreset) -> None:
    assert len(found.source) > 10
    assert date.fromisoformat(found.checked) <= date.today()
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", found.id)


def test_labels_are_unique_and_common_models_are_there() -> None:
    labels = [found.label for found in catalogue.model_presets()]
    assert len(set(labels)) == len(labels)
    assert {"meta-llama/Llama-3.3-70B-Instruct", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b"} <= set(PRESET_IDS)


def test_a_preset_named_after_its_storage_is_stored_so() -> None:
    """A copy of a config without its quantisation block would make an FP8 checkpoint weigh twice as much."""
    named = [name for name in PRESET_IDS if re.search(r"FP8|NVFP4|AWQ|GPTQ|gpt-oss", name)]
    assert len(named) > 10
    assert [name for name in named if not catalogue.model(name).quantization.is_quantized] == []


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Llama-3.3-70B-Instruct",
        "META-LLAMA/llama-3.3-70b-instruct",
        "meta-llama--Llama-3.3-70B-Instruct",
        "llama 3.3 70b instruct",
    ],
)
def test_a_preset_answers_to_its_hub_id_its_file_and_its_short_name(name: str) -> None:
    assert catalogue.preset(name).id == "meta-llama/Llama-3.3-70B-Instruct"
    assert catalogue.read_model(name) is catalogue.model("meta-llama/Llama-3.3-70B-Instruct")


def test_an_unknown_preset_is_refused_with_the_nearest_ids() -> None:
    with pytest.raises(CatalogueError, match=r"^model: expected .*got 'meta-llama/Llama-3.3-71B-Instruct'.*70B"):
        catalogue.preset("meta-llama/Llama-3.3-71B-Instruct")
    with pytest.raises(ConfigError, match=r"^model: expected .*Llama-3.3-70B"):
        catalogue.read_model("meta-llama/Llama-3.3-71B-Instruct")


def test_a_preset_whose_id_is_not_its_file_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one--two.toml"
    path.write_text('id = "one/three"\nlabel = "x"\nsource = "a test"\nchecked = "2026-11-30"\n[config]\n')
    monkeypatch.setattr(catalogue, "_preset_files", lambda: {"one/two": path})
    with pytest.raises(CatalogueError, match=r"one--two\.toml \[id\]: expected .*one/two, got 'one/three'"):
        catalogue._load_preset.__wrapped__("one/two")


# Whatever a user holds


def test_a_dict_its_text_and_its_file_give_the_same_model(tmp_path: Path) -> None:
    config = catalogue.preset("meta-llama/Llama-3.1-8B-Instruct").config
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8-sig")
    from_dict = catalogue.read_model(config)
    assert catalogue.read_model(json.dumps(config)) == from_dict
    assert catalogue.read_model(path) == from_dict


def test_files_that_are_no_config_are_refused_plainly(tmp_path: Path) -> None:
    gguf, huge = tmp_path / "model.gguf", tmp_path / "huge.json"
    gguf.write_bytes(b"GGUF\x03\x00")
    huge.write_bytes(b" " * (4 * MIB + 1))
    for path, says in [
        (tmp_path, "a file"),
        (tmp_path / "missing.json", "a readable file"),
        (gguf, "GGUF"),
        (huge, "at most 4 MiB"),
    ]:
        with pytest.raises(ConfigError, match=says):
            catalogue.read_model(path)


@pytest.mark.parametrize("name", ["/models/llama/config.json", "Model.GGUF"])
def test_a_path_as_text_is_not_opened_and_the_way_out_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^model: expected .* or give it as pathlib\.Path\."):
        catalogue.read_model(name)


@pytest.mark.parametrize("source", ["", "   ", "no such model", None, 7, ["config"]])
def test_anything_else_is_refused_by_the_field_model(source: object) -> None:
    with pytest.raises(ConfigError, match=r"^model: expected"):
        catalogue.read_model(source)  # type: ignore[arg-type]


def test_a_list_is_refused_as_a_config_and_not_looked_up_as_a_name() -> None:
    with pytest.raises(ConfigError, match=r"^config: expected one JSON object, got 'a list'"):
        catalogue.read_model("[1, 2, 3]")


def test_importing_and_listing_ids_opens_no_preset() -> None:
    code = (
        "from kvcalc import catalogue; assert catalogue.preset_ids();"
        "assert catalogue._load_preset.cache_info().currsize == 0"
    )
    root = Path(__file__).resolve().parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
