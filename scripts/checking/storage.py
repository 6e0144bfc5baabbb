"""The format of `tests/coverage.json`: every file, test and case is spelled once, and referred to by its number.

A line per test module has its time, the number of its tests, and of each function the parameters with the files that
the test is recorded for. The rest of the repository sees tests and cases by file (see `checking.tests.record`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def encode(record: Mapping[str, Any]) -> str:
    """Return the content of the file for a record."""
    files = sorted({*record["tests"], *record["cases"]})
    cases = sorted({case for names in record["cases"].values() for case in names})
    number = {name: str(index) for names in (files, cases) for index, name in enumerate(names)}
    functions: dict[str, dict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for file in sorted(record["tests"]):
        for module, tests in record["tests"][file].items():
            for test in tests:
                function, bracket, parameters = test.partition("[")
                functions[module][function][bracket + parameters].append(number[file])
    modules = {
        module: [*record["modules"].get(module, (0.0, 0)), _joined(functions.get(module, {}))]
        for module in sorted({*record["modules"], *functions})
    }
    of_files = {number[file]: " ".join(number[case] for case in names) for file, names in record["cases"].items()}
    return "\n".join(
        (
            f'{{"commit": {_text(record["commit"])},',
            f'"files": {_lines("[]", map(_text, files))},',
            f'"cases": {_lines("[]", map(_text, cases))},',
            f'"cases_of_files": {_text(of_files)},',
            f'"modules": {_lines("{}", (f"{_text(name)}: {_text(entry)}" for name, entry in modules.items()))}}}',
            "",
        )
    )


def decode(text: str) -> dict[str, Any]:
    """Return the record of a file: modules with time and number of tests, tests and cases by file."""
    content = json.loads(text)
    files: Sequence[str] = content["files"]
    tests: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for module, (_, _, functions) in content["modules"].items():
        for function, by_parameters in functions.items():
            for parameters, numbers in by_parameters.items():
                for number in numbers.split():
                    tests[files[int(number)]].setdefault(module, []).append(function + parameters)
    return {
        "commit": content["commit"],
        "modules": {module: (seconds, count) for module, (seconds, count, _) in content["modules"].items()},
        "tests": {
            file: {module: sorted(names) for module, names in tests[file].items()} for file in files if file in tests
        },
        "cases": {
            files[int(file)]: [content["cases"][int(number)] for number in numbers.split()]
            for file, numbers in content["cases_of_files"].items()
        },
    }


def _joined(functions: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, str]]:
    return {
        function: {parameters: " ".join(numbers) for parameters, numbers in by_parameters.items()}
        for function, by_parameters in functions.items()
    }


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lines(brackets: str, items: Iterable[str]) -> str:
    return brackets[0] + "\n" + ",\n".join(items) + "\n" + brackets[1]
