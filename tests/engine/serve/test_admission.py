"""Requests are admitted by what they may take: the budget holds, and nothing waits for ever."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.serve.world import backends, serving

BUDGET = 48 << 20
PAGES = 16 << 20  # what the allocator may keep in pieces
WORDS = "import os\nimport sys\n\n\ndef main(argv):\n    return os.path.join(*argv)\n" * 12


@pytest.fixture(scope="module", params=backends())
def budgeted(tmp_path_factory, request):
    options = (
        "--backend",
        request.param,
        "--memory-budget",
        "48MB",
        "--prefix-cache",
        "256MB",
        "--max-active",
        "8",
    )
    with serving(tmp_path_factory.mktemp("budget"), *options) as server:
        yield server


def ask(server, i, **fields):
    body = {"model": "tiny", "prompt": f"# {i}\n{WORDS}", "max_tokens": 24, "temperature": 0, **fields}
    return server.http.post("/v1/completions", json=body)


@pytest.mark.long
def test_peak_stays_within_the_budget(budgeted):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(budgeted, i), range(12)))
    assert [answer.status_code for answer in answers] == [200] * 12
    stats = budgeted.stats()
    if budgeted.backend == "mlx":  # torch keeps no prefixes, and counts no arrays on a CPU
        assert stats["mlx_peak_bytes"] <= 1.05 * BUDGET
        assert stats["models"]["tiny"]["weight_bytes"] + stats["prefixes"]["bytes"] <= BUDGET
    together = [answer.json()["x_kakeya"]["together"] for answer in answers]
    assert 1 <= max(together) < 8  # some had to wait for memory although eight may run


@pytest.mark.long
def test_peak_stays_within_the_budget_with_files_too(tmp_path):
    options = ("--memory-budget", "48MB", "--max-active", "4", "--prefix-store", str(tmp_path / "store"))
    with serving(tmp_path, *options) as server:
        cold = [ask(server, i).json() for i in range(3)]
    with serving(tmp_path, *options) as server:
        with ThreadPoolExecutor(3) as pool:
            warm = [answer.json() for answer in pool.map(lambda i: ask(server, i), range(3))]
        assert server.stats()["mlx_peak_bytes"] <= 1.05 * BUDGET
        assert server.stats()["prefix_store"]["hit"] > 0
    for first, again in zip(cold, warm, strict=True):
        assert again["choices"][0]["text"] == first["choices"][0]["text"]
        assert again["x_kakeya"]["cached_tokens"] > first["x_kakeya"]["cached_tokens"]


@pytest.mark.long
def test_process_grows_by_no_more_than_it_accounts_for(budgeted):
    """The kernel's own figure: what requests add to the process is within what they may take together."""
    ask(budgeted, 0)
    before = budgeted.stats()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: ask(budgeted, 100 + i), range(24)))
    after = budgeted.stats()
    weights = before["models"]["tiny"]["weight_bytes"]
    assert after["process_bytes"] - before["process_bytes"] <= 1.05 * (BUDGET - weights) + PAGES


@pytest.mark.long
def test_what_can_never_fit_is_refused(budgeted):
    refused = ask(budgeted, 0, max_tokens=3500)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "memory_budget"
    assert (
        ask(
            budgeted, 0, max_tokens=3500, x_kakeya={"cache": "e8v@4.25", "draft": "none"}, stop="e"
        ).status_code
        == 200
    )
