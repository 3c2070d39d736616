"""The only table of causes of failed pushes and fetches: the messages that show each cause, and what helps.

Advice belongs to a recognized cause, and is checked against the surroundings first. Without a cause, the host's own
sentence stands alone.
"""

import re
from dataclasses import dataclass

from bridge.bus.hosts import advice
from bridge.bus.hosts.advice import Help
from bridge.common.advice import TRY_AGAIN, Advice
from bridge.errors import ProcessError

# Names and addresses prove nothing: a folder may be called `denied`.
_NAMES = re.compile(r"[a-z+]+://[^\s']*|'/[^'\n]*'|^(?:To .*|.\t[^\t\n]*\t)|-> \S+(?= \()", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """A cause: the code for programs, the words by which it is recognized, a sentence about it, and what helps."""

    code: str
    words: str
    sentence: str
    help: Help
    # Whether the host refused the push; otherwise something between client and host failed.
    is_refusal: bool = False


def find(error: ProcessError, *, is_push: bool) -> Cause | None:
    """Return the cause of a failure, or None if the messages of git and the host match no known cause."""
    output = _NAMES.sub("", error.output())
    causes = (pair for pair in _COMPILED if is_push or not pair[0].is_refusal)
    return next((cause for cause, pattern in causes if pattern.search(output)), None)


_ALONE = advice.constant(None)
_LATER = advice.constant(Advice(TRY_AGAIN, " later."))

# Refusals come first, because git adds general sentences to what the host said. In each part, the first match counts.
_CAUSES = (
    Cause(
        "unreachable",
        r"transport '[^']*' not allowed",
        "git's settings forbid the address of {name}",
        advice.constant("Use HTTPS or SSH, or see protocol.allow in git-config(1)."),
    ),
    # Causes that lie in the commits: another branch name does not help.
    Cause(
        "host_rule",
        r"verified signatures?|must be signed|signed with a|unsigned commit|unverified commit|signature required",
        "only signed commits may be pushed there",
        advice.exempt,
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"cannot push commits for|committer'?s? e-?mail|author'?s? e-?mail|commit author|expected committer"
        r"|invalid (?:committer|author)|GH007|private email|e-?mail address .{1,200} (?:is not registered"
        r"|not verified)",
        "the host refuses the commits' e-mail address",
        advice.exempt,
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"commit message|Change-Id|Signed-off-by|issue key",
        "the host requires another form of commit messages",
        advice.exempt,
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"\bsecrets?\b|PUSH PROTECTION|TF402\w+ .{0,200}credential",
        "the host found a secret in the commits",
        advice.constant("Remove it from the commits of the request, and revoke it."),
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"LFS objects? (?:are|is) missing|unknown Git LFS object|GH008",
        "files in Git LFS are missing there",
        advice.large_files,
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"size limit|file size|too large|larger than|exceeds? (?:the )?(?:quota|maximum|limit)|\bquota\b"
        r"|disk (?:space|full)|returned error: 413|HTTP 413|GH001|No space left on device|maximum allowed size",
        "there is no room for it",
        advice.constant("Free some room there, or raise the limit."),
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"without .?workflows?.? scope|workflow scope",
        "the token may not push workflows",
        advice.constant(
            "Use a token that may change workflows, or request a commit without changes to them."
        ),
        is_refusal=True,
    ),
    # Causes that lie in the repository or the account.
    Cause(
        "host_rule",
        r"archived|repository (?:is|has been) (?:disabled|locked|closed)|read-only (?:mode|mirror)|is read-only"
        r"|frozen repository",
        "the repository takes no pushes",
        advice.constant("Use another bus, or open this one again."),
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"SAML|single sign-on|\bSSO\b",
        "the organization wants a single sign-on",
        advice.constant(
            "Authorize the token or the SSH key for the organization, at the address that the host names."
        ),
        is_refusal=True,
    ),
    Cause(
        "host_rule",
        r"account (?:is|has been|was) |verify your e-?mail|terms of (?:service|use)",
        "there is a problem with the account",
        _ALONE,
        is_refusal=True,
    ),
    Cause(
        "no_push_right",
        r"deletion prohibited|deny(?:ing)? (?:ref )?deletion|cannot delete|not allowed to delete"
        r"|delet\w+ .{0,60}not permitted",
        "branches may not be deleted there",
        advice.constant("Whoever administers the remote can permit the deletion of request branches."),
        is_refusal=True,
    ),
    # About the branch's name.
    Cause(
        "no_push_right",
        r"GH006|protected (?:branch|ref)|is protected|creations? being restricted|through (?:a )?pull request"
        r"|branch name|TF402455|prohibited by Gerrit|hidden ref|funny ref|(?:create|modify) a branch"
        r"|to (?:create|update) branch"
        r"|create (?:is )?not (?:permitted|allowed)|not permitted: (?:create|update)",
        "its rules protect this branch name",
        advice.prefix,
        is_refusal=True,
    ),
    Cause(
        "no_push_right",
        r"TF401027|denied to |access (?:.{1,80} )?not granted|(?:not|n't) (?:have|allowed|permitted|authorized)\b"
        r"|privilege scopes|marked as read[- ]only|insufficient (?:scope|permission|privilege)"
        r"|^ERROR: Permission|read-only key"
        r"|deploy key|prohibited|returned error: 403|HTTP 403",
        "this account may not push there",
        advice.right,
        is_refusal=True,
    ),
    Cause(
        "no_push_right",
        r"hook declined|unpacker error|\[remote rejected\] \([^\n]*\)$",
        "its rules or hooks forbid it",
        advice.constant("Whoever administers the remote knows its rules and hooks."),
        is_refusal=True,
    ),
    # Between the two.
    Cause(
        "unreachable",
        r"^fatal: unable to access .*(?:certificate|SSL[ :]|schannel|TLS)|server certificate verification",
        "cannot verify the certificate of {name}'s server",
        advice.certificate,
    ),
    Cause("unreachable", r"returned error: 30[12378]\b", "{name} redirects to another address", advice.moved),
    Cause(
        "unreachable",
        r"407|proxy CONNECT|resolve proxy|from proxy",
        "the proxy in front of {name} refuses",
        advice.proxy,
    ),
    Cause(
        "remote_failed",
        r"returned error: 429|too many requests|rate limit",
        "{name} gets too many requests",
        _LATER,
    ),
    Cause(
        "remote_failed", r"returned error: 5\d\d", "the server of {name} reports an internal error", _LATER
    ),
    Cause(
        "unreachable",
        r"dubious ownership|safe\.directory",
        "git does not trust the folder of {name}",
        advice.ownership,
    ),
    Cause(
        "unreachable",
        r"Permission denied \(|Too many authentication failures",
        "{name} does not know this SSH key",
        advice.ssh_key,
    ),
    Cause(
        "unreachable",
        r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED",
        "SSH does not know the host key of {name}, or knows a different one",
        advice.constant(
            "Compare the key with the one that the host publishes; then enter it in known_hosts with: ssh-keyscan HOST"
        ),
    ),
    Cause(
        "unreachable",
        r"kex_exchange_identification|banner exchange|Connection (?:closed|reset) by ",
        "the SSH server of {name} ended the connection",
        advice.constant(Advice(TRY_AGAIN, "; it may limit connections, or a firewall ends them.")),
    ),
    Cause(
        "unreachable",
        r"cannot run .*: No such file|unable to fork",
        "git cannot start the program that connects to {name}",
        advice.constant("Install OpenSSH, or correct GIT_SSH, GIT_SSH_COMMAND or core.sshCommand."),
    ),
    Cause(
        "unreachable",
        r"unable to find remote helper|is not a git command",
        "this git does not support the scheme of {name}'s address",
        advice.constant(
            "Check the scheme of the address. For HTTP, git needs its curl helper, which some systems ship"
            " as a separate package."
        ),
    ),
    Cause(
        "unreachable",
        r"authentication failed|could not read (?:username|password)|terminal prompts disabled"
        r"|invalid (?:username|credentials)"
        r"|returned error: 401|HTTP 401|access denied",
        "{name} wants a user and a token",
        advice.credentials,
    ),
    Cause(
        "remote_failed",
        r"Could not resolve host|Failed to connect|Connection (?:refused|timed out)|connect to host|No route to host"
        r"|Network is unreachable|unable to (?:look up|connect to)|Operation (?:timed out|too slow)",
        "nobody answers at the address of {name}",
        advice.network,
    ),
    Cause(
        "unreachable",
        r"could not read|does not appear to be a git repository|not found|no DAV locking|returned error: 4(?:04|10)",
        "cannot reach {name}",
        advice.how_to_check,
    ),
)
_COMPILED = tuple((cause, re.compile(cause.words, re.IGNORECASE | re.MULTILINE)) for cause in _CAUSES)
