import io
import json

import pytest

from engine import cli
from engine.dflash import Stats
from engine.dflash.loop import stream_generate
from engine.models import load
from tests.engine import folders

PROMPT = "def f(x):\n    return x\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def expected(pair):
    target, _, tokenizer = load(pair)
    steps = list(stream_generate(target, None, tokenizer, PROMPT, max_tokens=12, block_size=1))
    return [t for s in steps for t in s.tokens], "".join(s.text for s in steps)


@pytest.fixture
def generate(pair, capsys):
    """Run the command on the pair; return exit code, standard output and standard error."""

    def run(*argv):
        with pytest.raises(SystemExit) as ended:
            cli.main(["generate", "--model", str(pair), "--max-tokens", "12", *argv])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_text_and_figures(generate, expected):
    code, out, err = generate("--prompt", PROMPT)
    assert (code, out) == (0, expected[1] + "\n")
    assert err.startswith("12 tokens, ")
    assert "synchronisations a step, cache raw" in err
    figures, agreement = err.splitlines()
    assert figures.endswith("at the limit")
    assert agreement.startswith("blocks of 16 choose the same tokens as single rows")


@pytest.mark.parametrize(
    "options",
    [[], ["--no-adaptive"], ["--no-draft", "--no-lookup"], ["--block-size", "1"], ["--rollback", "late"]],
    ids=" ".join,
)
def test_lines(generate, expected, options):
    code, out, err = generate("--prompt", PROMPT, "--json", *options)
    *steps, done = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [token for step in steps for token in step["tokens"]] == expected[0]
    assert "".join(step["text"] for step in steps) == expected[1]
    assert {step["event"] for step in steps} == {"step"}
    assert (done["event"], done["tokens"], done["finish_reason"]) == ("done", 12, "length")
    assert done["cache_bytes"] > 0
    blocks = not {"--no-draft", "1"} & set(options)
    assert (done["agreement"] is not None) == blocks
    assert not blocks or done["agreement"]["same_tokens"]
    drafters = {step["drafter"] for step in steps}
    assert drafters == {"none"} if options[:1] in (["--no-draft"], ["--block-size"]) else drafters


def test_where_the_prompt_comes_from(generate, expected, tmp_path, monkeypatch):
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    assert generate("--prompt-file", str(file))[1] == expected[1] + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    assert generate()[1] == expected[1] + "\n"


def test_sampling_repeats_with_a_seed(generate):
    argv = ["--prompt", PROMPT, "--temperature", "1", "--top-p", "0.9", "--top-k", "50", "--min-p", "0.01"]
    texts = [generate(*argv, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_a_cache_and_a_stop(generate, expected):
    stop = expected[1][4]
    code, out, err = generate("--prompt", PROMPT, "--stop", stop)
    assert (code, out) == (0, expected[1].split(stop)[0] + "\n")
    assert err.splitlines()[0].endswith("stopped")
    assert "cache affine@8g64" in generate("--prompt", PROMPT, "--kv", "affine@8g64")[2]


def test_ctrl_c_ends_it_with_the_figures_so_far(generate, expected, monkeypatch):
    add = Stats.add

    def interrupted(stats, step):
        if stats.tokens >= 4:
            raise KeyboardInterrupt
        return add(stats, step)

    monkeypatch.setattr(Stats, "add", interrupted)
    code, out, err = generate("--prompt", PROMPT)
    assert (code, out[-1]) == (130, "\n")
    assert expected[1].startswith(out[:-1])
    assert err.rstrip().endswith("interrupted")
    code, out, _ = generate("--prompt", PROMPT, "--json")
    done = json.loads(out.splitlines()[-1])
    assert (code, done["event"], done["finish_reason"]) == (130, "done", "interrupted")
    assert 4 <= done["tokens"] < 12


class TestChat:
    """A model with a chat template answers; --raw continues the text."""

    TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"

    @pytest.fixture
    def chatting(self, tmp_path, capsys):
        folder = folders.write_pair(tmp_path / "pair")
        (folder / "target" / "chat_template.jinja").write_text(self.TEMPLATE)
        target, _, tokenizer = load(folder)

        def expected(text):
            ids = tokenizer.encode(text, add_special_tokens=False)
            steps = stream_generate(target, None, tokenizer, ids, max_tokens=12, block_size=1)
            return "".join(step.text for step in steps)

        def answer(*argv):
            with pytest.raises(SystemExit):
                cli.main(["generate", "--model", str(folder), "--max-tokens", "12", "--json", *argv])
            *steps, done = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            return "".join(step["text"] for step in steps), done["chat_template"]

        return answer, expected

    @pytest.mark.parametrize(
        ("argv", "prompt", "chat"),
        [
            ([], "<user>ab<assistant>", True),
            (["--system", "cd"], "<system>cd<user>ab<assistant>", True),
            (["--raw"], "ab", False),
        ],
        ids=["message", "system", "raw"],
    )
    def test_what_the_model_reads(self, chatting, argv, prompt, chat):
        answer, expected = chatting
        assert answer("--prompt", "ab", *argv) == (expected(prompt), chat)


def test_a_template_that_refuses_a_system_message_is_named(tmp_path, capsys):
    folder = folders.write_target(tmp_path / "model")
    template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(SystemExit) as ended:
        cli.main(["generate", "--model", str(folder), "--prompt", "a", "--system", "b"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "the model's chat template refuses this: no system role\n  leave out --system" in said


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--prompt", "a", "--system", "b", "--raw"], 2, "exclude"),
        (["--prompt", "a", "--system", "b"], 2, "no chat template"),
        (["--prompt", "a", "--prompt-file", __file__], 2, "exclude"),
        (["--prompt", "a", "--draft", "x", "--no-draft"], 2, "exclude"),
        (["--prompt-file", "nowhere.txt"], 2, "does not exist"),
        (["--prompt", "a", "--max-tokens", "0"], 2, "--max-tokens"),
        (["--prompt", "a", "--top-p", "0"], 2, "--top-p"),
        (["--prompt", "a", "--rollback", "magic"], 2, "--rollback"),
        (["--prompt", ""], 2, "prompt is empty"),
        (["--prompt", "a\udcff"], 2, "UTF-8"),
        (["--prompt", "a", "--kv", "magic"], 2, "no cache spec"),
        (["--prompt", "a", "--model", "/nowhere/at/all"], 2, "error:"),
    ],
)
def test_what_is_refused(generate, argv, code, says):
    ended, out, err = generate(*argv)
    assert (ended, out) == (code, "")
    assert says in err


def test_a_prompt_that_is_no_text(generate, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfa")
    code, _, err = generate("--prompt-file", str(tmp_path / "bytes"))
    assert code == 2
    assert "UTF-8" in err
