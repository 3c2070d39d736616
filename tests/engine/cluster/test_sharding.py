import json
import sys

import pytest

from bridge.common.validation import hostfile
from engine.cluster import messages, rank, sharding
from engine.cluster.exits import explain
from engine.cluster.hosts import local, read_hostfile
from engine.cluster.state import RankState
from engine.errors import BadInput
from tests.engine.folders import QWEN3


def write(folder, **changes):
    (folder / "config.json").write_text(json.dumps({**QWEN3, "num_hidden_layers": 2, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "ranks", "split", "reason"),
    [
        ({"num_attention_heads": 9, "num_key_value_heads": 3}, 2, "auto", "do not divide n_heads = 9 and 2 ranks"),
        ({"num_attention_heads": 4, "num_key_value_heads": 2}, 4, "tensor", "4 ranks do not divide n_kv_heads = 2"),
        ({}, 2, "pipeline", "mlx-lm has no pipeline for this architecture"),
        ({"model_type": "qwen2"}, 2, "pipeline", "model.safetensors.index.json is missing"),
        ({"model_type": "qwen2"}, 3, "pipeline", "the model has 2 layers"),
        ({"model_type": "gemma3_text"}, 2, "tensor", "mlx-lm does not shard this architecture"),
    ],
)  # fmt: skip
def test_a_split_that_a_model_cannot_do_is_refused_from_its_configuration(
    tmp_path, changes, ranks, split, reason
):
    with pytest.raises(BadInput, match=reason):
        sharding.choose("name", write(tmp_path, **changes), ranks, split)


def test_the_refusal_names_the_numbers_that_work(tmp_path):
    folder = write(tmp_path, num_attention_heads=6, num_key_value_heads=6, intermediate_size=96)
    with pytest.raises(BadInput) as error:
        sharding.choose("name", folder, 4)
    assert error.value.fix == "numbers of ranks that work: tensor: 2, 3, 6"
    assert sharding.choose("name", folder, 3) == "tensor"


def test_lines_that_the_launcher_mixed_are_read_again():
    reader = messages.Reader()
    pieces = [
        b'noise\n\x1e{"event":"a"}\n',
        b'\x1e{"event":',
        b'\n\x1e{"event":"c"}\r\n',
        b'"b"}\n\n',
        b'\x1e{"x":1}\n',
    ]
    read = [message["event"] for piece in pieces for message in reader.add(piece)]
    assert read == ["a", "c", "b"]


def test_a_job_is_sent_in_lines_that_a_terminal_takes():
    lines = rank.encode({"prompt": "x" * 10_000}).split(b"\n")
    assert max(map(len, lines)) <= 1000
    assert lines[-2:] == [b".", b""]


EXITED = "Node with rank {} exited with code {}"


@pytest.mark.parametrize(
    ("errors", "reports", "expected"),
    [
        (f"{EXITED.format(0, -15)}\n{EXITED.format(1, -9)}", {}, "rank 1 was ended by SIGKILL"),
        (EXITED.format(0, 1), {0: "peer was lost", 1: "out of memory"}, "rank 1 failed with out of"),
        ("Node with rank 1 exited with code 3\nlast words", {0: "peer was lost"}, "rank 1 ended with exit code 3"),
        ("Node with rank 1 exited with code 255", {}, "rank 1 cannot be reached by ssh"),
        ("Node with rank 1 exited with code 127", {}, f"rank 1 cannot run {sys.executable} while starting"),
        ("Node with rank 0 exited with code 1", {}, "rank 0 could not load the package while starting"),
        ("", {1: "peer was lost"}, "rank 1 lost the connection to another rank"),
        ("Node with rank 1 was killed", {}, "rank 1 was ended while starting"),
        ("mlx.launch: error", {}, "mlx.launch ended before the ranks did"),
    ],
)  # fmt: skip
def test_the_rank_that_ended_first_is_named(errors, reports, expected):
    ranks = [RankState() for _ in range(2)]
    for number, text in reports.items():
        ranks[number].failed = {"message": text}
    assert explain(local(2), ranks, errors)[0].startswith(expected)


HOST = {"ssh": "mac-a", "ips": ["10.0.0.1"]}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("[", "is not JSON"),
        ([HOST], "hosts"),
        ([HOST, {"ssh": "-oProxyCommand=x", "ips": ["10.0.0.2"]}], "hosts.1.ssh"),
        ([HOST, {"ssh": "mac-b"}], "has no ips"),
        ([HOST, {**HOST, "python": "python3"}], "hosts.1.python"),
        ([HOST, {**HOST, "env": {"A B": "x"}}], "hosts.1.env"),
        ([HOST, {**HOST, "pythom": "/usr/bin/python3"}], "pythom"),
        ({"backend": "mpi", "hosts": [HOST, HOST]}, "backend"),
        ({"backend": "jaccl", "hosts": [HOST, HOST]}, "rdma"),
    ],
)
def test_a_hostfile_that_cannot_be_used_is_refused(tmp_path, document, reason):
    path = tmp_path / "hosts.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(BadInput, match=reason):
        read_hostfile(path)


def test_each_host_has_its_own_interpreter_and_environment(tmp_path):
    path = tmp_path / "hosts.json"
    second = {**HOST, "ssh": "mac-b", "python": "/opt/it's/python", "env": {"MLX_METAL_FAST_SYNCH": "1"}}
    path.write_text(json.dumps([HOST, second]))
    program = read_hostfile(path).command(7)[-3]
    assert (
        "1) export MLX_METAL_FAST_SYNCH=1; exec '/opt/it'\"'\"'s/python' -P -m engine.cluster.rank" in program
    )
    assert hostfile.read(path).hosts[1].env == {"MLX_METAL_FAST_SYNCH": "1"}
