"""A pytest plugin: notes which tests ran, and leaves them out of a later run.

pytest -p tests.ran --ran-to=FILE        notes them
pytest -p tests.ran --not-in=FILE        runs the others: those that were not chosen, or skipped for want of something
pytest -p tests.ran --none-skipped       fails if a test is skipped, on a machine that has all that they need
"""

from pathlib import Path

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("ran")
    group.addoption(
        "--ran-to", type=Path, metavar="FILE", help="Write the ids of the tests that ran to FILE."
    )
    group.addoption("--not-in", type=Path, metavar="FILE", help="Leave out the tests that FILE names.")
    group.addoption("--none-skipped", action="store_true", help="Fail if a test is skipped.")


def pytest_configure(config):
    if config.getoption("none_skipped"):
        config.pluginmanager.register(NoneSkipped())
    if file := config.getoption("ran_to"):
        if not hasattr(config, "workerinput"):  # each worker of pytest-xdist adds its own lines
            file.write_text("", encoding="utf-8")
        config.pluginmanager.register(Notes(file))


def pytest_collection_modifyitems(config, items):
    file = config.getoption("not_in")
    if file is None:
        return
    ran = set(file.read_text(encoding="utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ran])
    items[:] = [item for item in items if item.nodeid not in ran]


class NoneSkipped:
    """Makes a run fail in which tests were skipped."""

    def __init__(self):
        self.skipped = []

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session):
        if self.skipped:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for nodeid in self.skipped:
            terminalreporter.write_line(f"skipped, which --none-skipped forbids: {nodeid}")


class Notes:
    """Adds the id of each test that ran to a file."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and (not report.skipped or hasattr(report, "wasxfail")):
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")
