"""How often a runner looks at the bus."""

from __future__ import annotations

import threading

import pytest

from runner.context import open_runner
from runner.policy import load_policy
from runner.serve import loop
from runner.serve.poll import Poller

pytestmark = pytest.mark.bus


def test_a_push_to_a_bus_on_this_machine_is_noticed_before_the_next_poll_is_due(runners, client, monkeypatch):
    polled = threading.Event()
    poll = Poller.poll

    def tell(self, *args):
        worked = poll(self, *args)
        polled.set()
        return worked

    monkeypatch.setattr(Poller, "poll", tell)
    monkeypatch.setattr(loop, "PAUSE_GROWTH", 1e9)
    policy = load_policy(runners.policy(bus={"idle_poll_s": 3600}))
    with open_runner(policy, lambda _: None) as context:
        requester = threading.Thread(target=lambda: polled.wait(60) and client.run("noop"))
        requester.start()
        end = threading.Timer(120, context.stop.set)
        end.start()

        assert loop.serve(context, limit=1) == 1

        end.cancel()
        requester.join()
