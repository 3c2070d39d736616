"""A sweep before it is sent: its content, its bus, and the group that it begins or continues."""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from bridge.buses import Bus, Buses
from bridge.common import strict_json
from bridge.errors import KakeyaError, UsageError
from bridge.groups.group import Group
from bridge.presets import Checked
from bridge.presets.points import Points, read_points
from bridge.requests import idempotency, request_commit
from bridge.requests.groups.plan import Plan, Plans, digest_of
from bridge.requests.on_branch import carry
from bridge.requests.request_commit import Draft

if TYPE_CHECKING:
    from bridge.client import Client


@dataclass(frozen=True)
class Ask:
    """The common settings of a sweep's requests, besides preset and parameters."""

    ref: str = "HEAD"
    snapshot: bool = False
    lifetime: timedelta = request_commit.DEFAULT_LIFETIME
    labels: Sequence[str] = ()
    requested_by: str | None = None
    sign: bool = False
    idempotency_key: str | None = None
    against: str | None = None
    on_branch: str | None = None
    # Whether earlier answers to the same questions stand for requests.
    reuse: bool = False


@dataclass(frozen=True)
class _Sweep:
    """The full content of a sweep, known before anything is sent."""

    draft: Draft
    values: Sequence[Checked]
    who: str
    # The branch of the session that carries the requests; None: each has its own.
    session: str | None
    digest: str
    # The group's id if it follows from an idempotency key.
    group: str | None

    @classmethod
    def of(cls, client: "Client", preset: str, points: Points, ask: Ask) -> "_Sweep":
        """Return the content of a sweep; UsageError if a value does not fit."""
        git = client.git
        known = client.preset(preset)
        values = [known.check_params(params) for params in points.params]
        who, key = ask.requested_by or request_commit.identity(git).email, ask.idempotency_key
        draft = Draft(known, values[0], ask.ref, ask.snapshot, ask.lifetime, ask.labels, who, ask.against)
        request_commit.check_lifetime(draft.lifetime)
        draft = replace(draft, resolved=request_commit.resolve(git, draft))
        trees = [git.text("rev-parse", f"{commit}^{{tree}}") for commit in draft.resolved or () if commit]
        on_branch = ask.on_branch
        session = None if on_branch is None else carry.session_branch(git, client.remote, on_branch)
        digest = digest_of({
            "key": key, "trees": None if key else trees, "preset": [known.name, known.digest], "points": values,
            "swept": [*points.swept], "ref": ask.ref, "snapshot": ask.snapshot, "against": ask.against,
            "labels": [*ask.labels], "who": who, "sign": ask.sign, "remote": client.remote.url, "session": session,
            "lifetime": None if key else ask.lifetime.total_seconds(),
        })  # fmt: skip
        return cls(draft, values, who, session, digest, key and _keyed_group(client, who, key))

    def find_earlier(self, plans: Plans) -> Plan | None:
        """Return the record of the sweep that this one continues, if there is one."""
        return plans.read(self.group) if self.group else plans.find_open(self.digest)


def choose(buses: Buses, preset: str, texts: Sequence[str], ask: Ask) -> tuple[Bus, Points]:
    """Return a sweep's bus and its points. The bus is the one where the sweep began, or is chosen as for one request.

    Raises:
        UsageError: a value does not fit.
    """
    for bus in buses.buses if buses.several else ():
        with suppress(KakeyaError):
            points = read_points(bus.client.preset(preset), texts)
            sweep = _Sweep.of(bus.client, preset, points, ask)
            if (earlier := sweep.find_earlier(Plans(bus.client.git))) and earlier.digest == sweep.digest:
                return bus, points
    bus = buses.choose(preset, ask.labels, None, ask.requested_by)
    return bus, read_points(bus.client.preset(preset), texts)


def start(bus: Bus, preset: str, points: Points, ask: Ask) -> Group:
    """Return the group of a sweep. No request is sent.

    The same sweep that was interrupted before is continued, and with an idempotency key any earlier one.

    Raises:
        UsageError: the preset is unknown, or something does not fit. Nothing was sent.
    """
    client, plans = bus.client, Plans(bus.client.git)
    sweep = _Sweep.of(client, preset, points, ask)
    earlier = sweep.find_earlier(plans)
    if earlier and earlier.digest != sweep.digest:
        message = f"the idempotency key {ask.idempotency_key!r} was used for another sweep: {earlier.group}"
        fix = "Use a new key, or repeat the first call with the same preset, parameters and ref."
        raise UsageError(message, fix=fix, code="idempotency_conflict")
    if earlier:
        return Group.of(bus, earlier)
    drafts = [replace(sweep.draft, params=each) for each in sweep.values]
    answers = client.find_answers(drafts) if ask.reuse else [None] * len(drafts)
    workload, baseline = sweep.draft.resolved or ("", None)
    plan = Plan(
        group=sweep.group or secrets.token_hex(6), is_keyed=sweep.group is not None, remote=bus.remote,
        digest=sweep.digest, made_at=time.time(), preset=preset, points=[dict(each) for each in sweep.values],
        swept=[*points.swept], ref=ask.ref, snapshot=ask.snapshot, against=ask.against, workload=workload,
        baseline=baseline, lifetime_s=ask.lifetime.total_seconds(), labels=[*ask.labels], requested_by=sweep.who,
        sign=ask.sign, on_branch=sweep.session,
        taken={str(index): answer for index, answer in enumerate(answers) if answer},
    )  # fmt: skip
    plans.write(plan)
    return replace(Group.of(bus, plan), existing=False)


def _keyed_group(client: "Client", who: str, key: str) -> str:
    secret = idempotency.read_secret(client.git)
    idempotency.Key.of(key, who, {}, secret)
    text = strict_json.dumps(["group", who, key]).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()[:12]


def quota_note(client: "Client", count: int, plan: Plan | None) -> str:
    """Return a sentence if the runners' quotas make a sweep wait for hours; otherwise an empty text."""
    try:
        alive = [each.record for each in client.runners() if each.is_alive(time.time())]
    except KakeyaError:
        return ""
    able = [record for record in alive if not plan or record.presets is None or plan.preset in record.presets]
    rates = [record.quota.per_hour if record.quota else None for record in able]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates) or count <= sum(known):
        return ""
    hours = (count - 1) // sum(known)
    rate = f"the runners start {sum(known)} requests of each requester in an hour"
    text = f"{rate}, so the last of {count} waits {hours} h"
    expires_h = plan.lifetime_s / 3600 if plan else math.inf
    if hours >= expires_h:
        text += f"; those that wait longer than {expires_h:g} h expire, so use a longer --expires"
    return text
