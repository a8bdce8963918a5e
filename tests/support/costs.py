"""The suites by measured cost: tests/costs.json holds the CPU seconds of each test and of the processes that it starts.

A test that took `DEAR_S` or more is slow, and so is a case after the first of its function that took `DEAR_CASE_S` or more, unless
it is marked as representative. Of a function with this mark, the first case is meant. A test without a record is fast until it has
one.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "costs.json"
DEAR_S, DEAR_CASE_S = 0.4, 0.15
BUDGET_S = 420
"""CPU seconds that the fast suite may take, by the file."""
SAME = 0.3
"""Part of a cost by which a measurement must differ to replace it: the file changes where tests do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("costs")
    group.addoption("--record-costs", action="store_true", help=f"write what each test costs to {FILE.name}")
    group.addoption("--hold-budget", action="store_true", help=f"fail if the tests cost more than {BUDGET_S} CPU seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: set[str] = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        dear = DEAR_CASE_S if function in seen else DEAR_S
        if recorded().get(item.nodeid, 0) >= dear and not is_representative(item, seen):
            item.add_marker(pytest.mark.slow)
        seen.add(function)


def is_representative(item: pytest.Item, seen: Container[str]) -> bool:
    """Return whether a case is marked, or its function, of which no case was seen."""
    marks = item.callspec.marks if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    of_function = item.get_closest_marker("representative") and item.nodeid.partition("[")[0] not in seen
    return any(mark.name == "representative" for mark in marks) or bool(of_function)


@cache
def recorded() -> Mapping[str, float]:
    """Give the recorded cost of each test, and of each fixture that serves several, by its name."""
    files = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {f"{file}::{name}": cost for file, costs in files.items() for name, cost in costs.items()}


def write(costs: Mapping[str, float]) -> None:
    """Write the costs, a test on each line."""
    files: dict[str, dict[str, float]] = {}
    for name in sorted(costs):
        file, _, rest = name.partition("::")
        files.setdefault(file, {})[rest] = round(costs[name], 2)
    FILE.write_text(json.dumps(files, indent=0) + "\n", encoding="utf-8")


def over_budget(measured: Mapping[str, float], known: Mapping[str, float]) -> tuple[float, list[str]]:
    """Add up what these tests cost, and name the dearest: those without a record, or if all have one, any.

    A recorded cost counts before a measured one, which depends on what else the machine does.
    """
    costs = {name: known.get(name, measured[name]) for name in measured}
    new = sorted(costs.keys() - known.keys(), key=costs.__getitem__, reverse=True)
    dearest = new or sorted(costs, key=costs.__getitem__, reverse=True)
    return sum(costs.values()), [f"{costs[name]:7.2f} s  {name}" for name in dearest[:20]]


class Measured:
    """A plugin that collects the costs of a session: of all its processes, where pytest-xdist has several."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._costs: dict[str, float] = {}
        self._left_out: set[str] = set()
        """Tests that failed or were skipped: less was measured than they cost. Tests of the soak: no suite pays for them."""
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" or "soak" in report.keywords:
            self._left_out.add(report.nodeid)
        told: dict[str, Any] = dict(report.user_properties)
        if report.when == "teardown" and "cpu_seconds" in told:
            self._costs[report.nodeid] = told["cpu_seconds"]
            for name, cost in told["fixtures"]:
                self._costs[name] = max(cost, self._costs.get(name, 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.getoption("record_costs"):
            self._record()
        if self._config.getoption("hold_budget"):
            total, dearest = over_budget(self._costs, recorded())
            self._lines = [f"costs: {total:.0f} of {BUDGET_S} CPU seconds by {FILE.name} (make test-costs)"]
            if total > BUDGET_S:
                self._lines += ["too many; make some cheaper. The dearest that are new:", *dearest]
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._lines:
            terminalreporter.line(line)

    def _record(self) -> None:
        known = recorded()
        costs = {name: cost for name, cost in known.items() if (FILE.parents[1] / name.partition("::")[0]).exists()}
        for name, cost in self._costs.items():
            old = known.get(name)
            same = old is not None and abs(cost - old) <= max(SAME * old, 0.05)
            if name not in self._left_out and not same:
                costs[name] = cost
        write(costs)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measured(config), "measured costs")
