"""Run the public suite `llm-comply` against this server and mlx-lm's, on the same bundled model; print both scores.

make parity                              # installs the suite
python benchmarks/conformance.py --keep  # writes conformance.json too, from which docs/results.md shows the scores
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata, util
from pathlib import Path
from typing import Any

import httpx
from server import served

from engine.models import registry

FORMATS = {
    "openai-chat": "OpenAI chat",
    "anthropic": "Anthropic messages",
    "open-responses": "Open Responses",
}
KEPT = Path(__file__).with_suffix(".json")
# The suite asks for thoughts only if the model's name is one of those that it knows to think.
NAME = "tiny-chat-gpt-5-claude-3-5"


def score(client: httpx.Client, model: str, form: str) -> list[dict[str, Any]]:
    """Return the results of one format."""
    argv = [sys.executable, "-m", "llm_comply.cli", "--json", "--format", form, "--model", model]
    argv += ["--base-url", f"{client.base_url}".rstrip("/") + "/v1", "--api-key", "none", "--timeout", "120"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="write the scores to conformance.json")
    options = parser.parse_args()
    if util.find_spec("llm_comply") is None:
        print("llm-comply is not installed: make parity")
        return 1
    scores: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / NAME
        shutil.copytree(registry.data() / "tiny-chat", pair)
        target = str(pair / "target")
        servers = {
            "kakeya-engine serve": (
                ["engine", "serve", "--model", str(pair), "--dtype", "float32"],
                "/health",
                NAME,
            ),
            "mlx_lm.server": (["mlx_lm", "server", "--model", target], "/v1/models", target),
        }
        # mlx-lm's server wants the folder as the model's name; the suite reads the known names in it.
        for name, (argv, ready, model) in servers.items():
            with served(argv, ready) as client:
                for form, title in FORMATS.items():
                    results = score(client, model, form)
                    passed = sum(each["status"] == "passed" for each in results)
                    print(f"{name}: {title} {passed} of {len(results)}")
                    failed = [each["id"] for each in results if each["status"] != "passed"]
                    score_of = {"server": name, "format": title, "passed": passed, "of": len(results)}
                    scores.append({**score_of, "failed": failed})
                    for each in results:
                        if each["status"] != "passed":
                            print(f"  {each['id']}: {each['status']}, {'; '.join(each['errors'])[:160]}")
    if options.keep:
        packages = ("llm-comply", "kakeya-bridge", "mlx", "mlx-lm")
        about: dict[str, Any] = {"measured": time.strftime("%Y-%m-%d", time.gmtime()), "model": "tiny-chat"}
        about["versions"] = {name: metadata.version(name) for name in packages}
        KEPT.write_text(json.dumps({**about, "scores": scores}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
