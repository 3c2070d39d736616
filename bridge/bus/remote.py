"""The user's remote as a bus: fetch request branches into private refs, push commits by id."""

import random
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from heapq import nlargest

from bridge.bus import branch_names, exact_refs, history, objects, presence, remote_errors
from bridge.bus.hosts.address import Kind, parse
from bridge.bus.hosts.push_end import PushEnd, PushError
from bridge.bus.known.sightings import Ancestry, Dates, OwnWrites, Sightings, shared
from bridge.bus.known.skipped_commits import SkippedCommits
from bridge.common import environment, limits
from bridge.common.advice import REMOTE, TRY_AGAIN, Advice, command
from bridge.errors import GitError, InfrastructureError, ProcessError, UsageError
from bridge.system import git_output
from bridge.system.deadline import pause, time_left, within
from bridge.system.git import Git
from bridge.system.git_output import refuses_objects

# References below this are neither branches nor tags, so users do not list, merge or push them by habit.
PRIVATE = "refs/kakeya/"
# The same for buses that have a place of their own, because the settings list several.
_PLACES, _PLACES_OF_RUNNERS = "refs/kakeya-bus/", "refs/kakeya-bus-runners/"

# Do not start a fetch of branches with less time than this.
_SHORTEST_S = 0.5
# A branch that needs at least this long alone is slow, and is left out for a while.
_SLOW_S = 2.0
# If a fetch of several branches fails, it is split into this many parts.
_PARTS = 8
# How often a branch is fetched again if other commands in the same clone fetch it too, and the longest pause.
_TRIES = 8
PAUSE_S = 0.3

# Runners do not serve SHA-256 repositories.
_ID_DIGITS = 40

# If the reply to a push is lost, look at the branch after this many seconds: the server may still be working.
LOOKS_S = (0.0, 1.0, 3.0)
# If the server says that a branch has moved, look until that shows, which may take as long as readings lag.
_LOOKS_PAST_S = (0.0, 0.5, 1.0, *(2.0,) * 30)


@dataclass(frozen=True)
class Remote:
    """A remote of the user's repository."""

    git: Git
    name: str
    # Where fetched branches are recorded. Two processes that write the same references disturb each other.
    private: str = PRIVATE
    # Where fetched records of runners are recorded.
    presences: str = presence.REFS
    # Whether git found that the file system of this clone ignores case, as on macOS.
    ignores_case: bool = False

    @classmethod
    def of(cls, git: Git, name: str, place: str = "") -> "Remote":
        """Return the remote with a name or a URL; UsageError if there is none.

        With ``place``, what is fetched is recorded apart from what is fetched from other remotes.
        """
        known = git_output.lines(git("remote").stdout)
        is_address = ("/" in name or parse(name).kind is not Kind.FOLDER) and not name.startswith("-")
        if name not in known and not is_address:
            fix: str = "Add one with: git remote add origin URL"
            if known:
                fix = Advice(
                    f"Remotes here: {', '.join(known)}. Choose one with ",
                    REMOTE,
                    ", or for all commands: git config kakeya.bus NAME",
                )
            raise UsageError(f"this repository has no remote {name!r}", fix=fix)
        if name in known and "=" not in name:
            # A mirror would push all branches, with force, and git refuses to push a single one from it.
            git = replace(git, options=(*git.options, "-c", f"remote.{name}.mirror=false"))
        query = ("config", "-z", "--get-regexp", r"^(http\.(.*\.)?extraheader|core\.ignorecase)$")
        settings = git_output.settings(git(*query, ok=(0, 1, 128)).stdout)
        if any(key.startswith("http.") for key, _ in settings):
            # Git sends such a header, and the token in it, to any server that the first one redirects to.
            git = replace(git, options=(*git.options, "-c", "http.followRedirects=false"))
        remote = cls(git, name, ignores_case=("core.ignorecase", "true") in settings)
        if not place:
            return remote
        return replace(remote, private=f"{_PLACES}{place}/", presences=f"{_PLACES_OF_RUNNERS}{place}/")

    @property
    def url(self) -> str:
        """The URL that is fetched from."""
        return exact_refs.fetch_url(self.git, self.name) or self.name

    @property
    def push_url(self) -> str:
        """The URL for pushes, which ``remote.NAME.pushurl`` or ``url.X.pushInsteadOf`` may change."""
        return self.git("remote", "get-url", "--push", self.name, stdin=b"", ok=(0, 2, 128)).text or self.name

    @property
    def is_verified(self) -> bool:
        """Whether git checks the certificate of the server. Only an HTTPS URL has one."""
        settings = ("config", "--type=bool", "--get-urlmatch", "http.sslVerify", self.url)
        return not (self.git.env.get("GIT_SSL_NO_VERIFY") or self.git.maybe(*settings) == "false")

    def fetch(self, *patterns: str) -> dict[str, str]:
        """Fetch one branch, or the newest requests under patterns, and return ``{branch: commit id}``.

        Only private references are written. If a branch is gone, its reference is deleted. ``fetch_listed`` says which
        branches under patterns are left out.
        """
        if len(patterns) == 1 and "*" not in patterns[0]:
            return self._fetch_one(patterns[0])
        listed = self.list_branches(*patterns)
        gone = self.fetched_branches(*patterns).keys() - listed.keys()
        self.git.delete_refs(self.private + branch for branch in gone)
        newest = nlargest(limits.FETCHED, listed, key=branch_names.age_sort_key)
        return self.fetch_listed({branch: listed[branch] for branch in newest})

    def fetch_named(self, branches: Collection[str]) -> dict[str, str]:
        """Fetch those of the branches that moved, together, and return ``{branch: commit id}`` of all that exist."""
        listed, known = self.list_branches(*branches), self.fetched_branches(*branches)
        self.git.delete_refs(self.private + branch for branch in known.keys() - listed.keys())
        moved = {branch: oid for branch, oid in listed.items() if known.get(branch) != oid}
        tips = known | (self.fetch_listed(moved) if moved else {})
        return {branch: tip for branch, tip in tips.items() if branch in listed}

    def _fetch_one(self, branch: str) -> dict[str, str]:
        try:
            tip = self._fetch_into_place(branch) if branch_names.is_safe(branch) else None
        except ProcessError as error:
            raise self._explain(error) from error
        if tip is None:
            self.git("update-ref", "-d", self.private + branch)
            return {}
        self.sightings.record({branch: tip})
        self._skipped.remove([tip])
        self._skipped.drop_references({branch: tip}, self.private)
        return {branch: tip}

    def _fetch_into_place(self, branch: str) -> str | None:
        for tries_left in reversed(range(_TRIES)):
            listed = exact_refs.find_branch(self.git, self.name, branch)
            tip = self.sightings.judge_one(branch, listed)
            if tip is None or self.fetched_branches(branch).get(branch) == tip:
                return tip
            if len(tip) != _ID_DIGITS:
                raise remote_errors.sha256_remote_error(self.name)
            if tip != listed:
                self._set_private(branch, tip)
                return tip
            try:
                exact_refs.fetch(self.git, self.name, {self.private + branch: tip})
            except GitError as error:
                # A deleted branch blocks the name, another command in this clone records the same branch, or
                # it moved since it was listed.
                output = error.output()
                can_retry = self._make_way([branch]) or remote_errors.is_transient(output)
                if can_retry and not tries_left and (known := self.sightings.tip(branch)):
                    # Another copy of the bus listed a commit that this one does not have yet.
                    return known
                if not (can_retry and tries_left):
                    raise
                pause(random.uniform(0.0, PAUSE_S * (_TRIES - tries_left)))  # noqa: S311 - no secret
            else:
                return tip
        raise AssertionError("the last try returns or raises")

    def list_branches(self, *patterns: str) -> dict[str, str]:
        """Return ``{branch: commit id}`` of the server's branches under the patterns that may be requests."""
        branches: dict[str, str] = {}
        try:
            for ref, oid in exact_refs.each_ref(self.git, self.name, "--heads"):
                if len(oid) != _ID_DIGITS:
                    raise remote_errors.sha256_remote_error(self.name)
                branch = ref.removeprefix(exact_refs.HEADS)
                is_wanted = branch_names.matches(branch, patterns) and branch_names.is_safe(branch)
                if is_wanted and len(branches) < limits.BRANCHES:
                    branches[branch] = oid
        except ProcessError as error:
            raise self._explain(error) from error
        if len(branches) < limits.BRANCHES:
            branches = self.sightings.judge(branches, lambda name: branch_names.matches(name, patterns))
        if not self.ignores_case:
            return branches
        # Of branches whose references differ only by case, the one in lower case is taken.
        chosen = {branch.lower(): branch for branch in sorted(branches)}
        return {branch: oid for branch, oid in branches.items() if chosen[branch.lower()] == branch}

    def fetch_listed(self, listed: Mapping[str, str]) -> dict[str, str]:
        """Fetch listed branches by their ids, and return the fetched ones: a branch may be gone or damaged.

        Branches with a commit beyond the limits are left out, and not fetched again. Branches that take too long are
        left out too, because one branch may stand for gigabytes; see ``left_out``.
        """
        wanted = self._skipped.without(listed) if listed else {}
        late: dict[str, str] = {}
        with within(limits.LISTED_S):
            tips = self._try_listed(wanted, late)
            decided = tips.keys() | late.keys()
            missing = {branch: oid for branch, oid in wanted.items() if branch not in decided}
            if missing and time_left() > _SHORTEST_S and self._make_way(missing):
                tips |= self._try_listed(missing, late)
        self.unfetched.difference_update(tips)
        unfetched = wanted.keys() - tips.keys() - late.keys()
        self.unfetched.update(unfetched)
        # One copy of the bus may list a commit that another copy does not have yet: then show the last known
        # commit.
        known = {branch: tip for branch in unfetched if (tip := self.sightings.tip(branch))}
        older = {branch: tip for branch, tip in known.items() if tip != wanted[branch]}
        with within(limits.LISTED_S):
            for branch in self._skipped.drop_references(tips, self.private, late):
                del tips[branch]
        self._skipped.add_slow(late)
        self.sightings.record(tips)
        return older | tips

    @property
    def skipped(self) -> list[str]:
        """The branches that this process left out because their commits arrived too slowly, now or earlier."""
        return sorted(self._skipped.slow_branches)

    @cached_property
    def unfetched(self) -> set[str]:
        """The branches that the server listed to this process, and whose commits could not be fetched."""
        return set()

    def _try_listed(self, listed: Mapping[str, str], late: dict[str, str]) -> dict[str, str]:
        """Fetch branches together or, if that fails, in parts, while there is time. Slow ones are added to ``late``."""
        remaining = time_left()
        if not listed or remaining < _SHORTEST_S:
            return {}
        commits = {f"{self.private}{branch}": oid for branch, oid in listed.items()}
        try:
            # Each part gets a share of the time; later parts share what is left.
            exact_refs.fetch(self.git, self.name, commits, timeout=remaining / 3)
        except GitError as error:
            if len(listed) == 1:
                if error.returncode is None and remaining / 3 >= _SLOW_S:
                    late |= listed
                if refuses_objects(error.stderr):
                    self._skipped.add_large(listed.values())
                return {}
            pairs = list(listed.items())
            came: dict[str, str] = {}
            for i in range(_PARTS):
                came |= self._try_listed(dict(pairs[i::_PARTS]), late)
            return came
        return dict(listed)

    @cached_property
    def _skipped(self) -> SkippedCommits:
        return SkippedCommits(self.git)

    @cached_property
    def sightings(self) -> Sightings:
        """What this process knows about the remote's branches: a reading may be older."""
        order = (Dates if self.private == self.presences else Ancestry)(self.git)
        make = partial(Sightings, order, self._ask_primary)
        return shared(self.git, self.url, self.push_url, self.private, make)

    def _ask_primary(self, known: Mapping[str, str]) -> dict[str, str | None]:
        quiet = replace(self.git, env=environment.without_prompts(self.git.env))
        return exact_refs.ask_primary(quiet, self.name, known)

    def _wrote(self, branch: str, commit: str, *, deleted: bool = False) -> None:
        """Record a push that arrived, for this process and for the next commands in this clone."""
        if self.sightings.grace_s:
            if deleted:
                self.sightings.record_deletion({branch: commit})
            else:
                self.sightings.record({branch: commit}, own=True)
            OwnWrites(self.git, self.url).note(branch, commit, deleted=deleted)

    def fetch_presences(self) -> dict[str, str]:
        """Fetch the runners' presence records and return ``{reference: commit id}``, at most ``limits.PRESENCES``.

        If there are more, a random choice is fetched. Like branches, records are fetched by their ids, so that one that
        cannot be fetched, or is no record, does not stop the others.
        """
        try:
            with within(limits.PRESENCE_S):
                each = exact_refs.each_ref(self.git, self.name)
                records = (record for record in each if presence.is_ref(record[0]))
                listed = dict(nlargest(limits.PRESENCES, records, key=lambda _: random.random()))  # noqa: S311 - no secret
                own = replace(self, private=self.presences)
                named = {ref.removeprefix(presence.REFS): oid for ref, oid in listed.items()}
                if len(listed) < limits.PRESENCES:
                    named = own.sightings.judge(named)
                listed = {f"{presence.REFS}{name}": oid for name, oid in named.items()}
                known = self.fetched_presences()
                self.git.delete_refs(
                    ref.replace(presence.REFS, self.presences, 1) for ref in known.keys() - listed.keys()
                )
                new = {ref.removeprefix(presence.REFS): oid for ref, oid in listed.items() - known.items()}
                own.fetch_listed(new)
                here = self.fetched_presences()
                return {ref: oid for ref, oid in here.items() if listed.get(ref) == oid}
        except GitError as error:
            raise self._explain(error) from error

    def fetched_presences(self) -> dict[str, str]:
        """Return the presence records of the last fetches, without asking the server."""
        here = self.git.refs(self.presences)
        return {f"{presence.REFS}{ref.removeprefix(self.presences)}": oid for ref, oid in here.items()}

    def fetched_branches(self, *patterns: str) -> dict[str, str]:
        """Return the branches of the last fetches, without asking the server."""
        if len(patterns) == 1 and "*" not in patterns[0]:
            tip = objects.resolve(self.git, self.private + patterns[0])
            return {patterns[0]: tip} if tip and branch_names.is_safe(patterns[0]) else {}
        # In a refspec `*` matches slashes too; in a pattern of for-each-ref it does not.
        folders = [self.private + pattern.partition("*")[0].rpartition("/")[0] for pattern in patterns]
        branches = {ref.removeprefix(self.private): oid for ref, oid in self.git.refs(*folders).items()}
        return {branch: oid for branch, oid in branches.items() if branch_names.matches(branch, patterns)}

    def _make_way(self, branches: Collection[str]) -> bool:
        """Delete references to branches that must be gone, as git cannot hold ``a/b`` beside ``a``. Whether any was."""
        known = [ref.removeprefix(self.private) for ref in self.git.refs(self.private)]
        folders, wanted = branch_names.folders, set(branches)
        above = {folder for branch in branches for folder in folders(branch)}
        blocking = [name for name in known if name in above or wanted.intersection(folders(name))]
        self.git.delete_refs(self.private + branch for branch in blocking)
        return bool(blocking)

    def push(self, branch: str, commit: str, *, expect: str | None, is_own: bool = False) -> bool:
        """Set a branch to a commit if it is still at ``expect`` (None: does not exist). Returns whether it was set.

        If the server's reply is lost, the branch is fetched to find out whether the push succeeded. ``is_own``: the
        branch is one of the user's, so git's record of it in ``git branch -r`` stays.

        Raises:
            RefusedError: the server refuses the push.
            InfrastructureError: the server cannot be reached; with code ``unsure`` if the push may have succeeded.
        """
        ref = f"refs/heads/{branch}"
        try:
            exact_refs.push(self.git, self.name, {ref: commit}, {ref: expect})
        except PushError as error:
            if not self._has_arrived(error, ref, commit, expect):
                return False
        self._wrote(branch, commit)
        # After a push to a named remote, git shows the branch in `git branch -r`, which the user should not see.
        self._set_private(branch, commit, "" if is_own else f"delete refs/remotes/{self.name}/{branch}\n")
        return True

    def _set_private(self, branch: str, commit: str, more: str = "") -> None:
        """Record a fetched commit as a branch's tip, and apply the further reference updates ``more`` if possible."""
        lines = f"update {self.private}{branch} {commit}\n{more}"
        if self.git("update-ref", "--stdin", stdin=lines, ok=(0, 128)).returncode != 0:
            # An address is no valid remote name, so git recorded nothing; or a deleted branch blocks the name.
            self._make_way([branch])
            self.git("update-ref", self.private + branch, commit)
            self.git("update-ref", "-d", f"refs/remotes/{self.name}/{branch}", ok=(0, 1, 128))

    def try_push(self, branch: str, commit: str) -> None:
        """Do everything of a push except sending, and raise as ``push`` does. Conflicts of names are in the listing."""
        try:
            above = exact_refs.find_branches(self.git, self.name, branch_names.folders(branch).__contains__)
            exact_refs.push(self.git, self.name, {f"refs/heads/{branch}": commit}, {}, "--dry-run")
        except GitError as error:
            raise self._explain(error, branch) from error
        for other in above:
            raise remote_errors.name_conflict_error(branch, other)

    def delete(self, branch: str, *, expect: str) -> bool:
        """Delete a branch if it is still at ``expect``. Returns whether it was deleted."""
        ref = f"refs/heads/{branch}"
        others = [f"refs/heads/{name}" for name in self.list_branches(f"{branch}*") if name != branch]
        try:
            exact_refs.delete(self.git, self.name, {ref: expect}, others=others)
        except PushError as error:
            if not self._has_arrived(error, ref, None, expect):
                return False
        self._wrote(branch, expect, deleted=True)
        self.git("update-ref", "-d", self.private + branch)
        return True

    def _has_arrived(self, error: PushError, ref: str, commit: str | None, expect: str | None) -> bool:
        """Return whether a push that git reports as failed arrived. Only if git does not tell, the branch is fetched.

        ``commit`` is what was pushed upon ``expect``; None: a deletion. Raises as ``push`` does.
        """
        branch = ref.removeprefix(exact_refs.HEADS)
        end = error.end(ref)
        if end is PushEnd.ACCEPTED:
            return True
        if error.is_overtaken(ref):
            return self._shows_past(branch, commit, expect)
        if end is not PushEnd.UNKNOWN:
            raise self._explain(error, branch) from error
        with suppress(InfrastructureError), within(limits.TIP_S):
            for wait_s in LOOKS_S:
                pause(wait_s)
                if self._shows(branch, commit):
                    return True
        if commit and self.sightings.grace_s:
            # Perhaps the copies of the bus lag. The primary accepts the same push again, even if it has
            # already arrived.
            try:
                exact_refs.push(self.git, self.name, {ref: commit}, {ref: expect}, timeout=limits.TIP_S)
            except PushError as second:
                if second.is_overtaken(ref):
                    return self._shows_past(branch, commit, expect)
            else:
                return True
        message = f"the reply of {self.name} to the push of {branch} is lost"
        fix = Advice("It may have arrived nevertheless: ", command("list"), " tells once the remote answers.")
        raise InfrastructureError(message, fix=fix, code="unsure", quoting=error.summary()) from error

    def _shows(self, branch: str, commit: str | None) -> bool:
        """Return whether a branch is at a commit or, with None, whether the branch is gone."""
        tip = self.fetch(branch).get(branch)
        return tip == commit or bool(tip and commit and history.is_ancestor(self.git, commit, tip))

    def _shows_past(self, branch: str, commit: str | None, expect: str | None) -> bool:
        """Return whether a branch that has moved from ``expect`` is at a commit, once the server shows its tip."""
        self.sightings.record_refusal(branch, expect)
        if commit and self.sightings.grace_s and self._ask_primary({branch: commit}).get(branch) == commit:
            return True
        with suppress(InfrastructureError), within(limits.TIP_S + self.sightings.grace_s):
            for wait_s in _LOOKS_PAST_S:
                pause(wait_s)
                if self._shows(branch, commit):
                    return True
                if not self.sightings.is_overtaken(branch):
                    return False
        if expect is None:
            message = (
                f"{branch} exists on {self.name} already, and {self.name} does not show yet what is on it"
            )
            raise InfrastructureError(message, fix=Advice(TRY_AGAIN, "."), code="unsure")
        return False

    def _explain(self, error: ProcessError, branch: str | None = None) -> Exception:
        return remote_errors.explain(error, self.git, self.name, branch)
