"""Command line: a link, a scenario file or flags in; Markdown or JSON out.

python -m kvcalc                                        the default scenario
python -m kvcalc --link 'v=1&model=...'                 a shared link, or the whole address
python -m kvcalc --scenario scenario.json --json        a scenario file
python -m kvcalc --config config.json --set gpu=h200-sxm --set tp=8
python -m kvcalc --hub org/name                         a model of the Hugging Face Hub (HF_TOKEN, HF_ENDPOINT)
python -m kvcalc --gguf model.gguf --set engine=llamacpp
python -m kvcalc --model org/name --log engine.log      the estimates replaced by what a start-up log measured
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvcalc import catalogue, export
from kvcalc.enginelog import calibrate, parse
from kvcalc.errors import KvcalcError, Note, ScenarioError
from kvcalc.evaluation import evaluate
from kvcalc.scenario import PASTED, Scenario
from kvcalc.share import from_link, to_link
from kvcalc.sources import from_gguf, from_hub


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when it fits, 1 when it does not, 2 when the input cannot be used."""
    parser = argparse.ArgumentParser(prog="kvcalc", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--link", help="a shared link or its query string")
    source.add_argument("--scenario", type=Path, help="a scenario as JSON")
    source.add_argument("--model", help="a preset id")
    source.add_argument("--config", type=Path, help="a model's config.json")
    source.add_argument("--hub", help="a model's id or address on the Hugging Face Hub")
    source.add_argument("--gguf", type=Path, help="a GGUF file; only its header is read")
    parser.add_argument("--revision", help="branch, tag or commit of --hub")
    parser.add_argument("--log", type=Path, help="an engine's start-up log")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="set a scenario field: a number, on, off, none or text; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of Markdown")
    parser.add_argument("--link-only", action="store_true", help="print the link and stop")
    options = parser.parse_args(arguments)
    if options.revision and not options.hub:
        parser.error("--revision belongs to --hub. Leave it out, or name the model with --hub.")
    try:
        scenario = _calibrated(_scenario(options), options.log)
        report = evaluate(scenario)
        if options.link_only:
            print(to_link(scenario))
        else:
            print(export.to_json(report) if options.json else export.to_markdown(report), end="")
    except KvcalcError as error:
        print(f"kvcalc: {error}", file=sys.stderr)
        return 2
    return 0 if report.fits else 1


def _scenario(options: argparse.Namespace) -> Scenario:
    changes = dict(_setting(text) for text in options.set)
    if options.link:
        opened = from_link(options.link)
        _tell(opened.notes)
        return Scenario(**{**dict(opened.scenario), **changes}) if changes else opened.scenario
    if options.scenario:
        return Scenario(**{**dict(Scenario.from_json(_text(options.scenario))), **changes})
    if options.config:
        spec = catalogue.read_model(options.config)
        return Scenario(model=PASTED, model_facts=spec.sizing_facts, model_label=spec.label, **changes)
    if options.hub or options.gguf:
        loaded = from_hub(options.hub, revision=options.revision) if options.hub else from_gguf(options.gguf)
        read_at = (Note(field="model", text=f"{loaded.label} at commit {loaded.revision}."),) if loaded.revision else ()
        _tell((*read_at, *loaded.notes))
        return loaded.scenario(**changes)
    if options.model:
        return Scenario(model=options.model, **changes)
    return Scenario(**{"model": Scenario.default().model, **changes})


def _calibrated(scenario: Scenario, log: Path | None) -> Scenario:
    """The scenario with what a start-up log measured."""
    if log is None:
        return scenario
    found = calibrate(scenario, parse(_text(log, field="--log")))
    _tell(found.notes)
    return found.scenario


def _tell(notes: Iterable[Note]) -> None:
    for note in notes:
        print(f"kvcalc: {note.field}: {note.text}", file=sys.stderr)


def _text(path: Path, field: str = "scenario") -> str:
    try:
        return path.read_text(encoding="utf-8", errors="strict" if field == "scenario" else "replace")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(field, "a readable file", str(path), hint="Check the path.") from error


def _setting(text: str) -> tuple[str, Any]:
    """One FIELD=VALUE: whole numbers, on/off (true/false) and none are read as such, the rest is text."""
    field, mark, value = text.partition("=")
    if not mark or field not in Scenario.model_fields:
        names = ", ".join(Scenario.model_fields)
        raise ScenarioError("--set", f"FIELD=VALUE with one of {names}", text, hint="Write, for example, tp=4.")
    special = {"on": True, "off": False, "true": True, "false": False, "none": None}
    if value in special:
        return field, special[value]
    return field, int(value) if value.removeprefix("-").isdecimal() else value


if __name__ == "__main__":
    sys.exit(main())
