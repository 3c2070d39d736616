"""Decides which unsigned answers stay as they are after an operator began to list the runners' keys."""

from __future__ import annotations

import time

from bridge.bus import branch_names
from bridge.bus.history import RequestBranch
from runner.context import RunnerContext


def answered_before_keys(context: RunnerContext, view: RequestBranch) -> bool:
    """Return whether an unsigned answer stays: this runner gave it, or its request is too old to run.

    Answers from before ``trust.runners`` was set are unsigned. Answering their requests again would only hide them.
    """
    if view.unsigned is None or not view.unsigned.is_final or view.current_state.is_final:
        return False
    record = context.ledger.entry(view.branch)
    if record is not None and record.published is not None:
        return True
    parsed = branch_names.parse_branch(view.branch)
    age_s = time.time() - branch_names.nonce_time(parsed.nonce) if parsed else 0.0
    return age_s > context.policy.limits.max_age_s and not context.clock.is_doubtful()
