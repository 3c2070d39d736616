"""Request branches are named so that agents may push them and runners can take the names apart again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.bus import branch_names
from bridge.bus.branch_names import Namespace, detect_namespace, parse_branch
from bridge.errors import UsageError
from tests.properties import examples


@pytest.mark.parametrize(
    ("current", "prefix", "suffix"),
    [
        ("main", "mac-bridge/", ""),
        (None, "mac-bridge/", ""),
        ("feature/x", "mac-bridge/", ""),
        ("AgentMemory/foo-b876", "AgentMemory/mac-bridge-", "-b876"),
        ("AgentMemory/foo-bar-12345678", "AgentMemory/mac-bridge-", "-12345678"),
        ("AgentMemory/foo-toolongsuffix", "mac-bridge/", ""),
        ("AgentMemory/foo-abc", "mac-bridge/", ""),
        ("AgentMemory/foo-B876", "mac-bridge/", ""),
        ("AgentMemory/-b876", "mac-bridge/", ""),
        ("AgentMemory/foo-b876\n", "mac-bridge/", ""),
        ("agentmemory/foo-b876", "mac-bridge/", ""),
        ("claude/some-work", "claude/mac-bridge-", ""),
        ("copilot/fix-7", "copilot/mac-bridge-", ""),
        ("claude", "mac-bridge/", ""),
        ("me/claude/x", "mac-bridge/", ""),
    ],
)
def test_the_branch_that_is_checked_out_decides_where_to_push(current, prefix, suffix):
    assert detect_namespace(current) == Namespace(prefix, suffix)


@pytest.mark.parametrize(
    ("current", "given", "expected"),
    [
        ("main", {"prefix": "team/"}, Namespace("team/", "")),
        ("main", {"suffix": "-b876"}, Namespace("mac-bridge/", "-b876")),
        ("AgentMemory/foo-b876", {"prefix": "team/"}, Namespace("team/", "")),
        ("AgentMemory/foo-b876", {"suffix": ""}, Namespace("AgentMemory/mac-bridge-", "")),
        ("AgentMemory/foo-b876", {"suffix": "-c123"}, Namespace("AgentMemory/mac-bridge-", "-c123")),
        ("claude/x", {"prefix": "mac-bridge/", "suffix": "-z"}, Namespace("mac-bridge/", "-z")),
    ],
)
def test_what_is_said_outright_wins(current, given, expected):
    assert detect_namespace(current, **given) == expected


@pytest.mark.parametrize(
    "prefix",
    [
        "", "mac-bridge", "/", "/mac-bridge/", "-x/", ".x/", "a//", "a/../b/", "a..b/", "refs/heads/", "a b/",
        "a/$(id)/", "a;b/", "a/\n", "a/\u202e/", "~/", "a^/", "a:b/", "a\\b/", "*/", "ä/", "a/.b/", "a/-b/", "team/mb-",
        "team/x.y-",
        "mac-bridge-", "team/mac-bridge", "a.lock/", "a./",
    ],
)  # fmt: skip
def test_a_prefix_that_git_or_the_runner_would_not_take_is_refused(prefix):
    with pytest.raises(UsageError, match="cannot begin a request branch"):
        detect_namespace("main", prefix=prefix)


@pytest.mark.parametrize(
    "suffix", ["b876", "-", "-B876", "--x", "-a-b", "-a/b", "-a.b", "-$(id)", "-a\n", "-" + "a" * 33, " -a"]
)
def test_a_suffix_that_could_not_be_taken_apart_is_refused(suffix):
    with pytest.raises(UsageError, match="cannot end a request branch"):
        detect_namespace("main", suffix=suffix)


@pytest.mark.parametrize(
    "branch",
    [
        "main", "mac-bridge/noop", "mac-bridge/noop-1700000000", "noop-1700000000-abc123", "",
        "mac-bridge/noop-1700000000-abc123\n", "mac-bridge/noop-1700000000-ABC123", "mac-bridge/-1700000000-abc123",
        "mac-bridge/noop-1700000000-abc123-", "mac-bridge/noop-1700000000-abc123-x-y", "/noop-1700000000-abc123",
        "-x/noop-1700000000-abc123", ".x/noop-1700000000-abc123", "a/../noop-1700000000-abc123",
        "a..b/noop-1700000000-abc123", "mac-bridge/$(id)-1700000000-abc123", "mac-bridge/a;b-1700000000-abc123",
        "mac-bridge/\u202enoop-1700000000-abc123",
        "mac-bridge/noop-\u0661\u0667-abc123", "mac-bridge/no op-1700000000-abc123",
    ],
)  # fmt: skip
def test_what_is_not_a_request_branch_is_not_taken_for_one(branch):
    assert parse_branch(branch) is None


@pytest.mark.parametrize(
    ("branch", "safe"),
    [
        ("mac-bridge/noop", True), ("A.b_c/d-e", True), ("", False), ("-x", False), ("/x", False), (".x", False),
        ("a..b", False), ("$(id)", False), ("a;b", False), ("a b", False), ("a\nb", False), ("a\u202eb", False),
        ("a`b", False), ("a|b", False), ("a\x1bb", False), ("ä", False),
    ],
)  # fmt: skip
def test_a_branch_is_safe_when_nothing_gives_its_characters_a_meaning(branch, safe):
    assert branch_names.is_safe(branch) is safe


preset_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True).filter(
    lambda name: "mac-bridge-" not in name
)
namespaces = st.builds(
    Namespace,
    st.from_regex(r"([A-Za-z0-9_][A-Za-z0-9_-]{0,8}/){1,3}((x-|)mac-bridge-)?", fullmatch=True).filter(
        lambda prefix: not prefix.startswith("refs/")
    ),
    st.from_regex(r"(-[a-z0-9]{1,32})?", fullmatch=True),
)


@pytest.mark.long
@examples(200)
@given(namespaces, preset_names)
def test_a_name_that_is_made_is_taken_apart_into_what_it_was_made_of(namespace, preset):
    nonce = branch_names.new_nonce()
    parsed = parse_branch(namespace.branch(preset, nonce))
    assert parsed == branch_names.BranchName(namespace.prefix, preset, nonce, namespace.suffix)


@examples(200)
@given(st.text(max_size=60))
def test_taking_any_text_apart_does_no_harm(text):
    assert parse_branch(text) is None


@examples(50)
@given(namespaces, preset_names)
def test_git_accepts_every_name_that_is_made(namespace, preset):
    branch = namespace.branch(preset, branch_names.new_nonce())
    assert branch_names.is_safe(branch)
    assert not any(part.endswith((".lock", ".")) or part.startswith(".") for part in branch.split("/"))


def test_a_nonce_says_when_it_was_made_and_is_made_once():
    nonce = branch_names.new_nonce(1700000000.9)
    assert branch_names.NONCE.fullmatch(nonce)
    assert branch_names.nonce_time(nonce) == 1700000000
    assert branch_names.new_nonce(1700000000) != nonce


@pytest.mark.parametrize(
    ("branch", "taken"),
    [
        ("mac-bridge/noop-1", True),
        ("AgentMemory/mac-bridge-noop-1-b876", True),
        ("claude/mac-bridge-noop-1", True),
        ("copilot/mac-bridge-noop-1", True),
        ("main", False),
        ("claude/noop-1", False),
        ("AgentMemory/foo-b876", False),
        ("x/mac-bridge/noop-1", False),
        ("MAC-BRIDGE/noop-1", False),
    ],
)
def test_the_default_patterns_take_the_default_namespaces_and_no_others(branch, taken):
    assert branch_names.matches(branch, branch_names.DEFAULT_PATTERNS) is taken


@pytest.mark.parametrize("current", ["main", "AgentMemory/foo-b876", "claude/x", "copilot/x"])
def test_every_namespace_that_is_detected_falls_under_the_default_patterns(current):
    branch = detect_namespace(current).branch("noop", branch_names.new_nonce())
    assert branch_names.matches(branch, branch_names.DEFAULT_PATTERNS)
