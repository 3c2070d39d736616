"""A report of a cache under one of its other names is judged as under its own."""

from __future__ import annotations

import pytest

from bridge.gate import check_report
from bridge.gate.command_line import config_mismatches
from tests.bridge.gate import reports
from tests.bridge.reports.test_cache_spec import ALIASES

KV_QUANT = ("python3", "-P", "-m", "engine", "eval", "kv-quant")


@pytest.mark.parametrize(("text", "shortest"), ALIASES.items())
def test_the_command_line_may_use_another_name(text, shortest):
    report = {"kind": reports.kinds.KV_QUANT, "config": {"caches": [shortest, "affine@4g64"]}}

    assert not [*config_mismatches(report, [[*KV_QUANT, "--caches", f"affine@4g64,{text}"]])]
    assert [*config_mismatches(report, [[*KV_QUANT, "--caches", f"e8v@6.25:fast,{text}"]])]


def test_an_older_report_may_configure_another_name():
    report = reports.BUILDERS[reports.kinds.KV_QUANT]()
    candidates = [arm["cache"] for arm in report["arms"] if arm["role"] == "candidate"]
    cache = next(each for each in candidates if each.startswith("e8v@"))
    others = [each for each in candidates if each != cache]

    def codes(*caches):
        changed = report | {"config": report["config"] | {"caches": [*caches, *others]}}
        return {fault.code for fault in check_report(changed)} - {"NO_RUN"}

    assert codes(cache) == codes(f"{cache}:normal") == codes(f"k={cache},v={cache}") == set()
    assert codes("e8v@6.25:best") == {"NOT_COVERED"}
