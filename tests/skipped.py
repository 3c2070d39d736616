"""A pytest plugin: notes which tests were skipped, and runs only those of an earlier run.

pytest -p tests.skipped --skips-to=FILE           notes them
pytest -p tests.skipped --only-skipped-in=FILE    runs them, after what they wanted was installed
"""

from pathlib import Path

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("skipped")
    group.addoption(
        "--skips-to", type=Path, metavar="FILE", help="Write the ids of skipped tests and files to FILE."
    )
    group.addoption("--only-skipped-in", type=Path, metavar="FILE", help="Run only what FILE names.")


def pytest_configure(config):
    if file := config.getoption("skips_to"):
        if not hasattr(config, "workerinput"):  # each worker of pytest-xdist adds its own lines
            file.write_text("", encoding="utf-8")
        config.pluginmanager.register(Notes(file))


def pytest_collection_modifyitems(config, items):
    file = config.getoption("only_skipped_in")
    if file is None:
        return
    named = set(file.read_text(encoding="utf-8").splitlines())
    chosen = [item for item in items if {item.nodeid, item.nodeid.partition("::")[0]} & named]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


class Notes:
    """Adds the id of whatever is skipped to a file: a test, or a file whose import asked for it."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.add(report.nodeid)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.add(report.nodeid)

    def add(self, nodeid):
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{nodeid}\n")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Nothing was skipped: nothing to run is no failure then."""
    only = session.config.getoption("only_skipped_in")
    if only and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not only.read_text(encoding="utf-8"):
        session.exitstatus = pytest.ExitCode.OK
