"""Unsigned answers from before this host listed its runners' keys: which of them are left alone."""

from __future__ import annotations

import time

from bridge.bus import branch_names
from bridge.bus.history import View
from runner.session import Session


def answered_before_keys(session: Session, view: View) -> bool:
    """Say whether an unsigned answer is left alone: this runner gave it, or its request is too old to be run.

    Answers from before `trust.runners` was set are not signed. To answer their requests again would only hide them.
    """
    if view.unsigned is None or not view.unsigned.is_final or view.stands.is_final:
        return False
    seen = session.ledger.seen(view.branch)
    if seen is not None and seen.published is not None:
        return True
    parsed = branch_names.parse_branch(view.branch)
    age_s = time.time() - branch_names.nonce_time(parsed.nonce) if parsed else 0.0
    return age_s > session.policy.limits.max_age_s and not session.clock.is_doubtful()
