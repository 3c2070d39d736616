"""What an answer amounts to: every state with every verdict, for everything that a reader may know of who wrote it."""

from __future__ import annotations

from typing import get_args

import pytest

from bridge.bus import wire
from bridge.bus.wire import EXIT_CODES, Gate, State
from bridge.checklist import Check
from bridge.errors import ExitCode
from bridge.verify.verdict import (
    MEANINGS,
    Conclusion,
    SignatureCheck,
    Trust,
    conclude,
    conclude_gate,
    gate_lines,
)

VERDICTS = [*get_args(Gate.model_fields["verdict"].annotation), None]
VOUCHERS = {
    Trust.SIGNED: "signed by mac-1's key",
    Trust.UNPINNED: "signed by a key that is not pinned here",
    Trust.UNSIGNED: "unsigned",
}


def of(state, verdict, trust):
    return Conclusion(state, verdict, trust, "mac-1" if trust is Trust.SIGNED else "")


@pytest.mark.parametrize("state", State)
def test_what_a_check_refuses_is_never_good_in_words_colours_or_codes(state):
    for verdict in VERDICTS:
        shown = of(state, verdict, Trust.REFUSED)

        assert (shown.word, shown.text, shown.judged) == ("does not hold", "does not hold", "")
        assert (shown.grade, shown.exit_code) == ("bad", 1)
        assert shown.verdict_grade != "good"
        assert "ACCEPTED" not in str(shown.as_dict())
        assert (shown.as_dict()["verdict"], shown.as_dict()["voucher"]) == (None, None)


@pytest.mark.parametrize("state", State)
def test_what_nobody_has_verified_is_not_good_yet(state):
    for verdict in VERDICTS:
        shown = of(state, verdict, Trust.UNCHECKED)

        assert "good" not in (shown.grade, shown.verdict_grade)
        assert "ACCEPTED" not in str(shown.as_dict())
        assert shown.text == f"{state}, not verified"


@pytest.mark.parametrize("state", State)
def test_a_verdict_is_shown_with_who_vouches_for_it(state):
    for trust, words in VOUCHERS.items():
        for verdict in VERDICTS:
            shown = of(state, verdict, trust)
            assert shown.judged == (f"{verdict}, {words}" if verdict else "")
            assert shown.text.endswith(words)
            assert shown.as_dict()["voucher"] == words
            assert (shown.verdict_grade == "good") == (verdict == "ACCEPTED" and trust is Trust.SIGNED)
            assert shown.exit_code == (EXIT_CODES[state] if state.is_final else None)


def test_the_grades_and_codes_of_states():
    shown = {state: of(state, None, Trust.SIGNED) for state in State}

    assert [state for state in State if shown[state].grade == "good"] == [State.SUCCEEDED]
    assert {state: shown[state].grade for state in (State.GATE_REJECTED, State.GATE_INCOMPLETE)} == {
        State.GATE_REJECTED: "bad", State.GATE_INCOMPLETE: "warn",
    }  # fmt: skip
    codes = [shown[state].exit_code for state in State if state.is_final]
    assert len(codes) == len({*codes})
    assert shown[State.GATE_INCOMPLETE].exit_code == ExitCode.GATE_INCOMPLETE == 7


@pytest.mark.parametrize("state", State)
def test_only_a_rejected_answer_can_be_an_incomplete_one(state):
    for verdict in VERDICTS:
        gate = None if verdict is None else Gate(verdict=verdict)
        shown = wire.shown_state(state, gate)

        incomplete = state is State.GATE_REJECTED and verdict == "INCOMPLETE"
        assert shown == (State.GATE_INCOMPLETE if incomplete else state)
        assert wire.shown_state(shown, gate) == shown


@pytest.mark.parametrize("signer", ["", "two words", "\x1b[31m", "x" * 65, "-", "ignore: all"])
def test_a_name_that_could_be_a_sentence_is_not_shown(signer):
    assert Conclusion(State.SUCCEEDED, None, Trust.SIGNED, signer).voucher == "signed by a pinned key"


def test_an_answer_without_a_result_does_not_hold():
    assert conclude(None, []).word == "does not hold"


@pytest.mark.parametrize("accepted", ["ACCEPTED", "ACCEPTED_BY_REQUESTER"])
@pytest.mark.parametrize("trust", VOUCHERS)
def test_the_first_line_of_a_verdict_names_the_voucher(accepted, trust):
    (first, *_) = gate_lines(Gate(verdict=accepted), of(State.SUCCEEDED, accepted, trust))
    assert first == (f"{accepted}, {VOUCHERS[trust]}", MEANINGS[accepted])
    (first, *_) = gate_lines(Gate(verdict="INCOMPLETE"), of(State.GATE_INCOMPLETE, "INCOMPLETE", trust))
    assert first == (f"INCOMPLETE, {VOUCHERS[trust]}", MEANINGS["INCOMPLETE"])
    (first, *_) = gate_lines(Gate(verdict="REJECTED"), of(State.GATE_REJECTED, "REJECTED", Trust.REFUSED))
    assert first == ("REJECTED", f"{MEANINGS['REJECTED']} (does not hold)")


@pytest.mark.parametrize(
    ("verdict", "state", "code"),
    [
        ("ACCEPTED", State.SUCCEEDED, 0), ("ACCEPTED_BY_REQUESTER", State.SUCCEEDED, 0),
        ("REJECTED", State.GATE_REJECTED, 5), ("INCOMPLETE", State.GATE_INCOMPLETE, 7),
    ],
)  # fmt: skip
def test_a_set_of_local_reports_is_as_good_as_its_weakest_voucher(verdict, state, code):
    signed, other, unsigned = ("signed", "mac-1"), ("unpinned", ""), ("unsigned", "")
    gate = Gate(verdict=verdict)

    for runs, trust in (
        ([], Trust.UNCHECKED), ([("", "")], Trust.UNCHECKED), ([signed], Trust.SIGNED),
        ([signed, other], Trust.UNPINNED), ([other, unsigned, signed], Trust.UNSIGNED),
    ):  # fmt: skip
        shown = conclude_gate(gate, runs)
        assert (shown.state, shown.trust, shown.exit_code) == (state, trust, code)


def test_one_failed_check_outweighs_a_signature():
    signed = SignatureCheck("signature", ok=True, message="", trust=Trust.SIGNED, signer="mac-1")
    files = Check("files", ok=False, message="changed")

    assert conclude(None, [signed, files]).is_refused
