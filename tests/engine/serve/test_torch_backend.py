"""What only the backend over torch has; the other files run over it too, where they say so."""

import queue
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

from engine.checkpoints import files  # noqa: E402
from engine.dflash.sampling import Sampling  # noqa: E402
from engine.errors import BadInput  # noqa: E402
from engine.models import registry  # noqa: E402
from engine.models.target import load_tokenizer as mlx_tokenizer  # noqa: E402
from engine.mx import mx  # noqa: E402
from engine.serve.backend import Failed, Job, Options  # noqa: E402
from engine.serve.formats.call_forms import form_of  # noqa: E402
from engine.serve.formats.calls import form_name  # noqa: E402
from engine.serve.metrics import Metrics  # noqa: E402
from engine.serve.settings import Settings  # noqa: E402
from engine.serve.torch.chooser import Chooser, probabilities  # noqa: E402
from engine.serve.torch.device import device_of, dtype_of  # noqa: E402
from engine.serve.torch.kit import TorchThread  # noqa: E402
from engine.serve.torch.tokenizer import load_tokenizer  # noqa: E402

torch.set_num_threads(1)
TEMPLATES = Path(__file__).parent / "templates"
SAMPLINGS = [
    {"temperature": 0.7}, {"temperature": 1.0, "top_k": 5}, {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 2.0, "min_p": 0.1}, {"temperature": 1e-12},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
]  # fmt: skip


@pytest.fixture
def engine():
    thread = TorchThread(Settings(models=("tiny",), backend="torch"), Metrics())
    thread.start()
    yield thread
    assert thread.stop(60)


def answers(engine, model, ids, **options):
    """Return the tokens and the last report of an answer."""
    events = queue.Queue()
    engine.load(model).result(120)
    job = Job(0, model, ids, Options(token_ids=True, **options), events.put, time.monotonic() + 120)
    engine.submit([job])
    while True:
        event = events.get(timeout=120)
        if isinstance(event, Failed):
            raise event.error
        if event.finish_reason:
            return event.report["token_ids"], event.report


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_tokens_are_drawn_from_the_distribution_of_the_other_backend(sampling):
    logits = np.random.default_rng(3).standard_normal(200).astype(np.float32) * 4
    ours = probabilities(torch.from_numpy(logits), Options(1, **sampling)).numpy()
    theirs = np.array(Sampling(**sampling).probabilities(mx.array(logits)))
    assert np.abs(ours - theirs).max() < 1e-6
    assert ((ours > 0) == (theirs > 0)).all()


def test_a_seed_repeats_and_another_differs():
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))

    def drawn(seed):
        chooser = Chooser(Options(9, seed=seed), [1], 500, frozenset())
        return [chooser.choose(logits, 9)[0] for _ in range(20)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_penalties_and_biases_change_the_choice():
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0])
    greedy = {"max_tokens": 9, "temperature": 0.0}
    assert Chooser(Options(**greedy), [], 4, frozenset()).choose(logits, 9) == [0]
    assert Chooser(Options(**greedy, bias={2: 10.0}), [], 4, frozenset()).choose(logits, 9) == [2]
    assert Chooser(Options(**greedy, repetition=4.0), [0], 4, frozenset()).choose(logits, 9) == [1]
    chooser = Chooser(Options(**greedy, frequency=0.6), [], 4, frozenset())
    chooser.commit((0, 0))
    assert chooser.choose(logits, 9) == [1]


def test_log_probabilities_are_of_the_unchanged_logits():
    logits = torch.tensor([2.0, 1.0, 0.0])
    chooser = Chooser(Options(9, temperature=0.0, bias={2: 9.0}, logprobs=2), [], 3, frozenset())
    ((token, value, best),) = chooser.report(logits, (2,))
    assert (token, [each for each, _ in best]) == (2, [0, 1])
    assert value == pytest.approx(logits.log_softmax(-1)[2].item())


def test_devices_and_types_that_are_not_here_are_refused():
    assert device_of("cpu").type == "cpu"
    assert device_of(None) == device_of("auto")
    assert dtype_of(None, torch.device("cpu")) == torch.float32
    assert dtype_of(None, torch.device("mps")) == torch.float16
    assert dtype_of("stored", torch.device("cpu")) is None
    with pytest.raises(BadInput, match="no such type"):
        dtype_of("int4", torch.device("cpu"))
    absent = next(each for each in ("mps", "cuda", "tpu") if each != device_of(None).type)
    with pytest.raises(BadInput, match="no such device"):
        device_of(absent)


@pytest.mark.parametrize(
    ("option", "value"),
    [("draft", "some/drafter"), ("prefix_store", Path("store")), ("device", "tpu"), ("dtype", "int4")],
)
def test_options_that_can_never_be_followed_are_refused_at_the_start(option, value):
    with pytest.raises(BadInput):
        TorchThread(Settings(models=("tiny",), backend="torch", **{option: value}), Metrics())


@pytest.mark.long
def test_a_machine_without_torch_is_told_how_to_install_it(python):
    blocked = "import sys; sys.modules['torch'] = None; from engine.cli.sidecar import main_on_torch; "
    done = python("-c", f"{blocked}sys.argv[1:] = ['--model', 'tiny']; main_on_torch()")
    assert done.returncode == 1
    assert "pip install '.[torch]'" in done.stderr


@pytest.mark.parametrize("name", ["tiny", "tiny-chat"])
def test_the_tokenizer_is_that_of_the_other_backend(name):
    folder = registry.data() / name / "target"
    ours, theirs = (load(folder, files.read_config(folder)) for load in (load_tokenizer, mlx_tokenizer))
    text = "def main():\n    return 'ä\N{GRINNING FACE}'\n"
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))
    turns = [{"role": "user", "content": "Hello"}]
    if ours.has_chat_template:
        assert ours.apply_chat_template(turns, add_generation_prompt=True) == list(
            theirs.apply_chat_template(turns, add_generation_prompt=True)
        )
    for attribute in ("eos_token_ids", "think_start", "think_end", "has_chat_template"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute


@pytest.mark.rows(1)
@pytest.mark.parametrize("template", sorted(path.stem for path in TEMPLATES.iterdir()))
def test_calls_and_thoughts_are_marked_as_over_the_other_backend(template, tmp_path):
    """The form of calls comes from the chat template, thoughts from the vocabulary."""
    for path in (registry.data() / "tiny-chat" / "target").glob("tokenizer*"):
        shutil.copy(path, tmp_path)
    shutil.copy(TEMPLATES / f"{template}.jinja", tmp_path / "chat_template.jinja")
    ours, theirs = (load(tmp_path, {}) for load in (load_tokenizer, mlx_tokenizer))
    for attribute in ("think_start", "think_end", "tool_call_start", "tool_call_end"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    (mine, *marks), (other, *those) = (
        (form_name(form[2]), *form[:2]) for form in map(form_of, (ours, theirs))
    )
    assert (mine, marks) == (other, those)


CODE = (
    "import os\n\n\ndef main(argv):\n    for name in argv:\n        print(name)\n\n\ndef main(argv):\n    for"
)
KINDS = [
    {"temperature": 0.0}, {"temperature": 0.9, "seed": 3}, {"temperature": 0.0, "frequency": 0.6, "logprobs": 2},
    {"temperature": 0.0, "cache": "e8v@4.25"},
]  # fmt: skip


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_drafts_from_the_text_change_no_token(engine, kind):
    """Neither with sampling or penalties, nor over codes; the sliding layers of the second model forget them too."""
    for name in ("tiny", "tiny-hybrid"):
        ids = engine.load(name).result(120).encode(CODE)
        plain, report = answers(engine, name, ids, max_tokens=20, draft="none", **kind)
        assert (report["draft"], report["rounds"], report["accept_length"]) == ("none", 0, None)
        tokens, report = answers(engine, name, ids, max_tokens=20, draft="lookup", **kind)
        assert tokens == plain
        assert report["draft"] == "lookup"
        assert 0 < report["rounds"] <= report["proposed"] > report["accepted"]
        assert report["accept_length"] == report["accepted"] / report["rounds"]
        assert (report["agreement"]["rows"], report["agreement"]["same_tokens"]) == (16, True)
        assert report["agreement"]["difference"] < 1e-3
        assert answers(engine, name, ids, max_tokens=20, **kind)[0] == plain


def saved(folder, kind, **sizes):
    """Save a small model of transformers with random weights, and a tokenizer."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=512, eos_token_id=0, **sizes)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    for path in (registry.data() / "tiny" / "target").glob("tokenizer*"):
        shutil.copy(path, folder)
    return str(folder)


def test_a_model_with_states_reads_its_prompt_at_once_if_parts_change_it(engine, tmp_path):
    """Transformers' Mamba forgets its state before each part of several tokens."""
    folder = saved(tmp_path, "Mamba", hidden_size=32, num_hidden_layers=2, state_size=8)
    loaded = engine.load(folder).result(120)
    assert not loaded.chunked
    engine.kit._settings = Settings(models=(folder,), backend="torch", prefill_chunk=8)
    ids = list(range(3, 43))
    tokens, report = answers(engine, folder, ids, max_tokens=6, temperature=0.0, draft="lookup")
    own = loaded.net.generate(torch.tensor([ids]), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert tokens == own[0, 40:].tolist()
    assert report["draft"] == "none"
    assert "cannot forget rejected drafts" in report["fallback"]


def test_a_model_with_a_cache_of_its_own_is_refused(engine, tmp_path):
    folder = saved(tmp_path, "Rwkv", hidden_size=32, num_hidden_layers=2, attention_hidden_size=32)
    with pytest.raises(BadInput, match="RwkvForCausalLM keeps what it has read in a form of its own"):
        engine.load(folder).result(120)


@pytest.mark.long
def test_answers_in_turns_are_those_alone(engine):
    prompts = [[5, 6, 7, 8], [9, 10, 11], list(range(20, 120))]
    alone = [answers(engine, "tiny", ids, max_tokens=6, temperature=0.0)[0] for ids in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(
            pool.map(lambda ids: answers(engine, "tiny", ids, max_tokens=6, temperature=0.0)[0], prompts)
        )
    assert together == alone


def test_packed_caches_are_a_quarter_and_are_reported(engine):
    ids = list(range(3, 67))
    _, raw = answers(engine, "tiny", ids, max_tokens=4, temperature=0.0)
    _, packed = answers(engine, "tiny", ids, max_tokens=4, temperature=0.0, draft="none", cache="e8v@4.25")
    assert packed["cache_bytes"] <= 0.275 / 2 * raw["cache_bytes"]  # raw is float32
    assert (packed["cache"], packed["draft"], packed["cached_tokens"]) == ("e8v@4.25", "none", 0)


def test_a_cancelled_answer_ends_and_the_next_goes_on(engine):
    engine.load("tiny").result(120)
    events = queue.Queue()
    job = Job(0, "tiny", [1, 2], Options(4000, temperature=0.0), events.put, time.monotonic() + 120)
    engine.submit([job])
    events.get(timeout=60)
    job.cancel()
    end = time.monotonic() + 60
    while engine.active and time.monotonic() < end:
        time.sleep(0.01)
    assert not engine.active
    assert len(answers(engine, "tiny", [1, 2], max_tokens=3, temperature=0.0)[0]) == 3


def test_answers_wait_for_memory_or_are_refused(engine):
    model = engine.load("tiny").result(120)
    small, large = (engine.kit.predicted(model, Options(8, cache=spec), 100) for spec in ("e8v@4.25", "raw"))
    assert small < large
    assert engine.kit.expected("tiny") == pytest.approx(model.nbytes, rel=0.1)


@pytest.mark.long
def test_greedy_tokens_are_those_of_the_other_backend(engine, server):
    ids = engine.load("tiny").result(120).encode(CODE)
    for spec in ("raw", "e8v@4.25"):
        asked = {"draft": "none", "cache": spec, "token_ids": True}
        body = {"model": "tiny", "prompt": CODE, "max_tokens": 24, "temperature": 0, "x_kakeya": asked}
        told = server.http.post("/v1/completions", json=body).json()["x_kakeya"]
        tokens, _ = answers(engine, "tiny", ids, max_tokens=24, temperature=0.0, draft="none", cache=spec)
        assert told["token_ids"] == tokens, spec


WITHOUT_MLX = """
import sys
sys.modules.update(dict.fromkeys(("mlx", "mlx.core", "mlx_lm", "scipy_openblas32")))
from engine.cli.sidecar import main_on_torch
main_on_torch()
"""


@pytest.mark.long
def test_the_sidecar_answers_where_mlx_is_absent(tmp_path):
    """The program of the earlier contract, on a machine that has no MLX."""
    argv = [sys.executable, "-P", "-c", WITHOUT_MLX, "--model", "tiny-chat", "--port", "0", "--device", "cpu"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log)
    try:
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), (tmp_path / "log").read_text()
        with httpx.Client(base_url=url, timeout=120) as http:
            assert http.get("/health").json()["variant"] == "B1"
            body = {
                "model": "tiny-chat@e8-q38",
                "messages": [{"role": "user", "content": "Hello"}],
                "max_tokens": 8,
            }
            answer = http.post("/v1/chat/completions", json={**body, "temperature": 0}).json()
            assert answer["choices"][0]["x_kakeya"]["cache"] == "e8@q38"
            about = http.get("/v1/models/tiny-chat@e8-q38").json()["x_kakeya"]
            assert 2 < about["stored_compression"] < about["est_compression"]
            assert about["lacks"]
            stats = http.get("/v1/kakeya/stats").json()
            assert (stats["device"], stats["dtype"], bool(stats["blas"])) == ("cpu", "float32", True)
    finally:
        process.terminate()
        assert process.wait(120) == 0
        process.stdout.close()
