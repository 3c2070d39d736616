"""Why a push failed: what hosts say, in their own words, and the advice that belongs to each."""

from __future__ import annotations

import pytest

from bridge.bus.hosts import causes
from bridge.bus.hosts.push_end import PushError
from bridge.bus.remote_errors import explain
from bridge.common.advice import Door, printed
from bridge.errors import GitError, InfrastructureError, RefusedError
from bridge.system.git import Git

BRANCH = "mac-bridge/denied-1790000000-abc123"
PREFIX, EXEMPT, RIGHT = "--prefix", "exempt mac-bridge/* from this rule", "the right to push"

# What a host says in a hook, over git's own protocol, and the words that the advice must hold.
RULES = {
    "GitHub, signed": (
        ("error: GH013: Repository rule violations found for refs/heads/x.\n- Commits must have verified "
        "signatures."), EXEMPT),
    "GitLab, signed": ("GitLab: Commit must be signed with a GPG key", EXEMPT),
    "Gitea, signed": ("Gitea: branch mac-bridge/x is protected from unverified commit", EXEMPT),
    "GitHub, private address": ("error: GH007: Your push would publish a private email address.", EXEMPT),
    "GitLab, committer": (
        ("GitLab: You cannot push commits for 'x@x'. You can only push commits if the committer email is "
        "one of your own verified emails."), EXEMPT),
    "GitLab, author": ("GitLab: Author's email 'x@x' does not follow the pattern '@corp'", EXEMPT),
    "Gerrit, committer": ("error: commit 123: invalid committer", EXEMPT),
    "Bitbucket, committer": ("You can only push your own commits in this repository. Expected committer email", EXEMPT),
    "GitLab, message": ("GitLab: Commit message does not follow the pattern 'ABC-[0-9]+'", EXEMPT),
    "Gerrit, message": ("error: commit 123: missing Change-Id in message footer", EXEMPT),
    "GitHub, large file": ("error: GH001: Large files detected.", "room"),
    "GitLab, size": ("GitLab: Your push to this repository would cause it to exceed the size limit", "room"),
    "quota": ("error: your push would exceed the repository's size limit of 10 GB", "room"),
    "Azure, size": ("VS403729: the push was rejected because it is larger than 5 GB", "room"),
    "GitHub, secret": (
        ("GITHUB PUSH PROTECTION\n- Push cannot contain secrets\n- Amazon AWS Access Key "
        "ID - path: README:1"), "Remove it"),
    "Azure, secret": ("VS403654: The push was rejected because it contains one or more secrets.", "Remove it"),
    "GitHub, workflow": (
        ("refusing to allow a Personal Access Token to create or update workflow `x` "
        "without `workflow` scope"), "workflows"),
    "GitHub, files": (
        "error: GH008: Your push referenced at least 1 unknown Git LFS object:", "git lfs push --all origin"),
    "GitLab, files": ("GitLab: LFS objects are missing. Ensure LFS is properly set up", "git lfs push --all origin"),
    "GitHub, archived": ("ERROR: This repository was archived so it is read-only.", "another bus"),
    "GitLab, archived": ("GitLab: You can't push code to an archived project.", "another bus"),
    "GitHub, sign-on": (
        "The organization has enforced SAML SSO. To access this repository, visit the page", "Authorize"),
    "suspended": ("Your account is suspended.", None),
    "no deletion": ("error: denying ref deletion for refs/heads/x", "deletion"),
    "GitHub, protected": ("error: GH006: Protected branch update failed for refs/heads/x.", PREFIX),
    "GitHub, creations": (
        ("error: GH013: Repository rule violations found\n- Cannot create ref due to creations being "
        "restricted."), PREFIX),
    "GitLab, protected": ("GitLab: You are not allowed to push code to protected branches on this project.", PREFIX),
    "GitLab, name": ("GitLab: Branch name does not follow the pattern 'feature/.*'", PREFIX),
    "Gitea, protected": ("Gitea: Not allowed to push to protected branch main", PREFIX),
    "Bitbucket, protected": ("Branch refs/heads/x can only be modified through pull requests.", PREFIX),
    "Bitbucket, create": ("Permission denied to create branch x", PREFIX),
    "Azure, protected": (
        ("TF402455: Pushes to this branch are not permitted; you must use a pull request to update this "
        "branch."), PREFIX),
    "Gerrit, create": ("error: branch refs/heads/x: prohibited by Gerrit: not permitted: create", PREFIX),
    "GitHub, right": ("ERROR: Permission to team/bus.git denied to someone.", RIGHT),
    "GitHub, key": ("ERROR: The key you are authenticating with has been marked as read only.", RIGHT),
    "GitLab, right": ("GitLab: You are not allowed to push code to this project.", RIGHT),
    "GitLab, key": ("GitLab: This deploy key does not have write access to this project.", RIGHT),
    "Azure, right": ("TF401027: You need the Git 'GenericContribute' permission to perform this action.", RIGHT),
    "Bitbucket, scope": ("Your credentials lack one or more required privilege scopes.", RIGHT),
    "a hook of one's own": ("please ask Anna first", "rules and hooks"),
    "nothing": ("", "rules and hooks"),
}  # fmt: skip


@pytest.fixture
def explained(user_git):
    """Return the error for what a failed push printed."""

    def explain_it(stderr, stdout="", branch=BRANCH):
        failed = GitError(("git", "push"), 1, stdout.encode(), stderr.encode())
        return explain(failed, user_git, "origin", branch)

    return explain_it


@pytest.mark.parametrize("name", RULES)
def test_advice_belongs_to_what_the_host_said(explained, name):
    said, words = RULES[name]
    remote = "".join(f"remote: {line}\n" for line in said.splitlines())
    error = explained(
        remote, f"!\t{'1' * 40}:refs/heads/{BRANCH}\t[remote rejected] (pre-receive hook declined)\n"
    )

    assert isinstance(error, RefusedError)
    assert said.splitlines()[-1][:30] in error.message if said else "declined" in error.message
    assert words in error.fix if words else error.fix is None
    assert ("--prefix" in (error.fix or "")) is (words == PREFIX)
    assert error.code == (
        "no_push_right" if words in (PREFIX, RIGHT, "deletion", "rules and hooks") else "host_rule"
    )
    in_workflow = printed(error.fix, Door.ACTION)
    assert ("contents: write" in (in_workflow or "")) is (words in (PREFIX, RIGHT))


LOST = "fatal: Could not read from remote repository."
# What git prints if it reaches nobody, or nobody with whom it can talk.
FAILURES = {
    "fatal: could not read Username for 'https://host': terminal prompts disabled": "wants a user and a token",
    "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://host/x/'": "wants a user and a token",
    "fatal: unable to access 'https://host/x/': CONNECT tunnel failed, response 407": "proxy",
    "fatal: unable to access 'https://host/x/': Received HTTP code 407 from proxy after CONNECT": "proxy",
    "fatal: unable to access 'https://host/x/': Could not resolve proxy: p": "proxy",
    "fatal: unable to access 'https://host/x/': The requested URL returned error: 429": "too many requests",
    "fatal: unable to access 'https://host/x/': The requested URL returned error: 503": "reports an internal error",
    "fatal: unable to access 'https://host/x/': The requested URL returned error: 301": "redirects",
    "fatal: repository 'https://host/x/' not found": "cannot reach",
    "remote: Repository not found.\nfatal: repository 'https://host/x/' not found": "cannot reach",
    "fatal: unable to access 'https://host/x/': Could not resolve host: host": "nobody answers",
    f"ssh: Could not resolve hostname host: Name or service not known\n{LOST}": "nobody answers",
    f"ssh: connect to host h port 22: Connection refused\n{LOST}": "nobody answers",
    "fatal: unable to access 'https://host/x/': SSL certificate problem: self-signed certificate": "cannot verify",
    f"git@host: Permission denied (publickey).\n{LOST}": "does not know this SSH key",
    f"Host key verification failed.\n{LOST}": "host key",
    f"kex_exchange_identification: Connection closed by remote host\n{LOST}": "ended the connection",
    "error: cannot run ssh: No such file or directory\nfatal: unable to fork": "cannot start the program",
    "git: 'remote-nosuch' is not a git command. See 'git --help'.": "does not support the scheme",
    "fatal: unable to find remote helper for 'nosuch'": "does not support the scheme",
    "fatal: transport 'ext' not allowed": "settings forbid",
    "fatal: detected dubious ownership in repository at '/srv/bus.git'": "does not trust",
    "fatal: '/denied/archived/bus.git' does not appear to be a git repository": "cannot reach",
}  # fmt: skip


@pytest.mark.parametrize("stderr", FAILURES)
def test_what_lies_between_has_a_sentence_of_its_own(explained, stderr):
    error = explained(f"{stderr}\n")

    assert isinstance(error, InfrastructureError)
    assert FAILURES[stderr] in error.message
    assert error.fix
    assert "--prefix" not in error.fix


@pytest.mark.parametrize(
    "stderr",
    ["fatal: remote error: Could not check who owns this branch. Try pushing again.", "fatal: something new"],
)
def test_words_of_no_known_cause_stand_alone(explained, stderr):
    error = explained(stderr)

    assert stderr in error.message
    assert error.fix is None


NAMED = "https://host/protected-branch/archived/SAML.git"


@pytest.mark.parametrize("branch", [BRANCH, "quota/secrets-1790000000-abc123"])
def test_names_and_addresses_are_no_words_of_a_host(explained, branch):
    status = f"To {NAMED}\n!\t{'1' * 40}:refs/heads/{branch}\t[remote rejected] (declined)\n"
    error = explained(f"remote: no\nerror: failed to push some refs to '{NAMED}'\n", status, branch)

    assert "rules and hooks" in error.fix


def test_a_fetch_is_not_called_a_refused_push(explained):
    said = "fatal: unable to access 'https://host/x/': The requested URL returned error: 403\n"
    assert "push" not in explained(f"remote: You are not allowed to\n{said}", branch=None).message


def test_advice_names_the_settings_that_count(clone, git, monkeypatch):
    tls = GitError(
        ("git",), 128, b"", b"fatal: unable to access 'https://h/': SSL certificate problem: expired"
    )
    dns = GitError(("git",), 128, b"", b"fatal: unable to access 'https://h/': Could not resolve host: h")
    token = GitError(("git",), 128, b"", b"fatal: Authentication failed for 'https://h/'")
    for variable in (
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "SSL_CERT_FILE",
    ):
        monkeypatch.delenv(variable, raising=False)

    def fix(error):
        return explain(error, Git.of_user(clone), "origin").fix

    assert "git config http.sslCAInfo FILE" in fix(tls)
    assert "proxy" not in fix(dns)
    assert "helper" not in fix(token)
    git(clone, "config", "http.sslCAInfo", "/own/authority.pem")
    git(clone, "config", "http.proxy", "http://proxy.invalid:3128")
    git(clone, "config", "credential.helper", "store --file=/none")
    assert "/own/authority.pem" in fix(tls)
    assert "http.proxy" in fix(dns)
    assert "store --file=/none" in fix(token)
    monkeypatch.setenv("GIT_SSL_CAINFO", "/other.pem")
    assert "GIT_SSL_CAINFO names" in fix(tls)


def test_a_status_alone_names_a_cause():
    failed = GitError(("git", "push"), 1, b"!\tx:refs/heads/x\t[remote rejected] (protected branch)\n", b"")

    assert (
        "protect" in causes.find(PushError(failed, ["refs/heads/x"], has_begun=True), is_push=True).sentence
    )
