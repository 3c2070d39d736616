"""Writes the generated parts of docs/skill/SKILL.md: exit codes and tools. `make docs` runs it."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.common.errors import EXIT_MEANINGS, ExitCode
from bridge.mcp.tools import TOOLS

PAGE = Path(__file__).with_name("skill") / "SKILL.md"

# What an agent does next.
NEXT = {
    ExitCode.SUCCEEDED: "Fetch the answer. Report its `verified` and `gate` along with the figures.",
    ExitCode.FAILED: "Read the end of the log. If `verified` says NOT verified, use nothing from the answer.",
    ExitCode.USAGE: "Correct the call as `fix` says. Nothing was sent.",
    ExitCode.INFRASTRUCTURE: (
        "If a call failed, repeat it with the same idempotency key. If an answer has this code, ask again with a new "
        "key. If it fails again, run the doctor."
    ),
    ExitCode.REFUSED: "Do not repeat it. Tell a person the reason; only the machine's owner can change it.",
    ExitCode.GATE_REJECTED: "Quote no figure. Report what `untrusted_mend` says; run it again if you can fix it.",
    ExitCode.GATE_INCOMPLETE: "Quote no figure. `untrusted_mend` says what lacks; send it again, on a quiet machine.",
    ExitCode.CANCELLED: "Stop, unless you cancelled it to request something else.",
    ExitCode.BUG: "Report it with the lines above. Do not repeat the call.",
    ExitCode.TIMED_OUT: "Ask for less (fewer samples, fewer tokens); each preset has a fixed time limit.",
    ExitCode.INTERRUPTED: "The request continues: wait for it again, or cancel it.",
}


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in (("exit-codes", exit_codes()), ("tools", tools())):
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        text, count = re.subn(
            f"{begin}.*?{end}", lambda _, b=begin, r=rows, e=end: b + r + e, text, flags=re.DOTALL
        )
        assert count == 1, name
    PAGE.write_text(text, encoding="utf-8")


def exit_codes() -> str:
    rows = [f"| {int(code)} | {meaning} | {NEXT[code]} |\n" for code, meaning in EXIT_MEANINGS.items()]
    return "| code | meaning | what to do |\n|---|---|---|\n" + "".join(rows)


def tools() -> str:
    rows = []
    for name, tool in TOOLS.items():
        fields = ", ".join(f"`{field}`" for field in tool.takes.model_fields)
        rows.append(f"| `{name}` | {fields or 'none'} | {tool.description} |\n")
    return "| tool | arguments | what it does |\n|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    main()
