"""Puts together what serves requests. Only this module and the loop hold the whole context; a class gets its parts."""

from functools import partial

from runner.context import RunnerContext
from runner.serve.answer import Answers
from runner.serve.dispatch import Dispatcher, PendingAnswers
from runner.serve.execute import Executor
from runner.serve.lease import Leaving
from runner.serve.poll import Poller
from runner.serve.scheduler import Scheduler
from runner.serve.steps.step_runner import JobHost
from runner.serve.tracked import Tracker
from runner.serve.watch_job import Keepalive
from runner.upkeep.answer_notes import AnswerNotes
from runner.upkeep.chores import Chores
from runner.upkeep.retention import Sweeper


class Composer:
    """Hands each class the parts of this runner that it may touch."""

    def __init__(self, context: RunnerContext) -> None:
        self._context, self._tell = context, context.operator.tell

    def answers(self) -> Answers:
        """Return what answers requests."""
        own = self._context
        return Answers(own.author, own.machine, own.operator, own.process.stop, own.policy.state)

    def pending_answers(self) -> PendingAnswers:
        """Return what pushes the answers that wait in the ledger."""
        own = self._context
        return PendingAnswers(self.answers(), own.bus, own.ledger, own.process.heartbeat, self._tell)

    def notes(self) -> AnswerNotes:
        """Return what notes answers on the bus."""
        own = self._context
        return AnswerNotes(own.to_note, own.author, own.presets, self._tell)

    def sweeper(self) -> Sweeper:
        """Return what removes old answers from the bus."""
        own = self._context
        return Sweeper(
            own.bus, own.ledger, own.keys.reader, own.clock, own.policy.archive, own.policy.limits.max_age_s, self._tell
        )  # fmt: skip

    def chores(self) -> Chores:
        """Return what does the maintenance."""
        return Chores(self.sweeper(), self._context.policy.retention, self.notes(), self._tell)

    def dispatcher(self) -> Dispatcher:
        """Return what carries out decisions."""
        own, answers = self._context, self.answers()
        leaving = Leaving(own.author, own.others, own.presets, own.announcer.is_listed, self._tell)
        host = JobHost(
            own.policy, own.machine, own.keys, own.identity.id, lambda: own.secrets, own.turn, own.operator.observer,
            own.operator.status_file, own.update_operator_mode,
        )  # fmt: skip
        keepalive = partial(Keepalive, own.process, own.forwarder, own.others, own.policy)
        executor = Executor(
            own.author, host, self._tell, own.announcer, own.spread, answers, leaving, keepalive, own.to_note
        )
        return Dispatcher(
            own.author, own.policy, own.presets, own.others, own.clock, own.machine.fitness, own.turn, own.has_bus,
            answers, leaving, self._tell, executor.execute,
        )  # fmt: skip

    def poller(self) -> Poller:
        """Return what polls the bus."""
        own = self._context
        tracker = Tracker(own.policy.state, self._tell)
        scheduler = Scheduler(
            self.dispatcher(), tracker, own.process, own.spread, own.operator.orders.may_take
        )
        return Poller(
            own.author,
            own.operator,
            own.forwarder,
            own.clock,
            own.turn,
            tracker,
            scheduler,
            self.pending_answers(),
        )
