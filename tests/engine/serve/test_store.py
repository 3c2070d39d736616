"""Prefixes on disk: another server gets the same bits from them, or nothing."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BadInput
from engine.mx import mx
from engine.serve.prefix_cache import block_file
from engine.serve.prefix_cache import store as store_module
from engine.serve.prefix_cache.block_file import RefusedError
from engine.serve.prefix_cache.folder import Folder
from engine.serve.prefix_cache.namespace import chain_of
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.prefix_cache.store import Store
from engine.serve.resident import load_resident
from tests.engine.serve.test_prefix import BLOCK, answer, arrays, prompt
from tests.properties import examples

ROOM = 1 << 30


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def resident(request):
    return load_resident(request.param, "auto", "float32")


@pytest.fixture(scope="module")
def tiny():
    return load_resident("tiny", "auto", "float32")


def opened(folder, budget=ROOM):
    return Store(folder, budget)


def ask(resident, folder, *, length=150, memory=ROOM, **options):
    """One answer of a server that has just been started over a folder: text, generation, store."""
    store = opened(folder)
    text, generation = answer(resident, prompt(resident, length), Prefixes(memory, BLOCK, store), **options)
    assert store.flush()
    return text, generation, store


def files(folder):
    return sorted(folder.glob("*/*.kv"), key=lambda path: path.stat().st_mtime_ns)


def test_folder_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match="other users may write"):
        opened(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folder_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(BadInput, match="belongs to another user"):
        opened(tmp_path)


def test_replaced_file_counts_once(tmp_path):
    folder = Folder(tmp_path, budget=1000)
    for size in (100, 300, 50):
        folder.write("shelf/block.kv", bytes(size))
        assert folder.nbytes == size
    folder.write("shelf/other.kv", bytes(900))
    assert sorted(path.name for path in tmp_path.glob("*/*.kv")) == ["block.kv", "other.kv"]
    assert folder.nbytes == 950


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "memory"),
    [("raw", ROOM), ("e8v@4.25", ROOM), ("affine@4g64", ROOM), ("e8@q38", ROOM), ("e8v@4.25", 0)],
)
def test_restarted_server_is_warm_and_exact(resident, tmp_path, spec, memory):
    cold, first = answer(resident, prompt(resident, 150), None, cache=spec, draft="dflash")
    filled, second, _ = ask(resident, tmp_path, cache=spec, draft="dflash", memory=memory)
    warm, third, store = ask(resident, tmp_path, cache=spec, draft="dflash", memory=memory)
    assert cold == filled == warm
    assert (second.cached, third.cached) == (0, 128)
    assert store.stats()["hit"] == 2
    for a, b in zip(arrays(first.caches), arrays(third.caches), strict=True):
        assert mx.array_equal(a, b)
    assert first.stats.accepted == third.stats.accepted > 0  # the drafter remembers the same


@pytest.mark.long
def test_packed_blocks_are_packed_on_disk(tiny, tmp_path):
    sizes = {}
    for spec in ("raw", "e8v@4.25"):
        ask(tiny, tmp_path / spec, cache=spec, draft="none")
        sizes[spec] = sum(path.stat().st_size for path in files(tmp_path / spec))
    assert sizes["e8v@4.25"] < sizes["raw"] / 4


@pytest.mark.long
def test_longer_prompt_goes_on_from_a_stored_beginning(tiny, tmp_path):
    ask(tiny, tmp_path, length=150)
    cold, _ = answer(tiny, prompt(tiny, 300), None)
    warm, generation, _ = ask(tiny, tmp_path, length=300)
    assert (warm, generation.cached) == (cold, 128)
    assert ask(tiny, tmp_path, length=300)[1].cached == 256


@pytest.mark.long
def test_other_options_do_not_meet(tiny, tmp_path):
    ask(tiny, tmp_path, cache="e8v@4.25", draft="dflash")
    for options in (
        {"cache": "raw", "draft": "dflash"},
        {"cache": "e8v@4.25", "draft": "none"},
        {"cache": "e8v@4.25", "draft": "dflash", "boundary": 1},
        {"cache": "e8v@3.25", "draft": "dflash"},
    ):
        _, generation, store = ask(tiny, tmp_path, **options)
        assert (generation.cached, store.stats()["hit"]) == (0, 0)


@pytest.mark.long
def test_shelves_differ_in_the_part_that_differs(tiny, tmp_path):
    store = opened(tmp_path)
    half = load_resident("tiny", "auto", "bfloat16")
    other = load_resident("tiny-hybrid", "auto", "float32")

    def parts(resident=tiny, spec="raw", boundary=0, block=BLOCK, drafts=True):
        return store.namespace(resident, spec, boundary, block, drafts=drafts).parts

    def differing(found):
        return {name for name, digest in parts().items() if digest != found[name]}

    assert differing(parts()) == set()
    assert "model" in differing(parts(resident=half))
    assert "model" in differing(parts(resident=other))
    assert differing(parts(spec="e8@q38")) == {"codec"}
    assert differing(parts(spec="e8v@4.25")) == {"codec", "layout"}
    assert differing(parts(block=32)) == {"layout"}
    assert differing(parts(drafts=False)) == {"model", "layout"}


PARTS = """
import json
from engine.serve.resident import load_resident
from engine.serve.prefix_cache.namespace import namespace_of
resident = load_resident("tiny", "none", "float32", once=ONCE)
print(json.dumps(namespace_of(resident, "raw", 0, 32, drafts=False).parts))
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="on a Mac, the system's library decides alone")
def test_processes_that_compute_other_bits_do_not_meet():
    def parts(once=False, **variables):
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "KAKEYA"))
        }
        argv = [sys.executable, "-P", "-c", PARTS.replace("ONCE", str(once))]
        env |= {"OPENBLAS_NUM_THREADS": "1", **variables}
        return json.loads(subprocess.run(argv, env=env, check=True, capture_output=True, timeout=300).stdout)

    own = parts()
    assert parts() == own
    others = [
        {"OPENBLAS_NUM_THREADS": "2"}, {"OPENBLAS_CORETYPE": "Nehalem"}, {"KAKEYA_OPENBLAS": "off"},
        {"MLX_ENABLE_TF32": "0"},
    ]  # fmt: skip
    for variables in others:
        found = parts(**variables)
        assert {name for name in own if own[name] != found[name]} == {"engine"}, variables


def opened_up(data):
    """Return the header of a file's safetensors, with our own fields as objects, and its payload."""
    content = data.partition(b"\n")[2]
    end = 8 + int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8:end])
    metadata = tensors.pop("__metadata__")
    own = {name: json.loads(metadata[name]) for name in ("parts", "snapshots")}
    return {"id": metadata["id"], **own, "tensors": tensors}, content[end:]


def resigned(data, change):
    """Return a file whose header was changed by somebody who then wrote the right digest."""
    header, payload = opened_up(data)
    payload = change(header, payload) or payload
    own = {"id": header["id"], **{name: json.dumps(header[name]) for name in ("parts", "snapshots")}}
    tensors = header["tensors"] if isinstance(header["tensors"], dict) else {"x": header["tensors"]}
    head = json.dumps({"__metadata__": own, **tensors}).encode()
    head += b" " * (-len(head) % 8)
    return signed(len(head).to_bytes(8, "little") + head + payload)


def signed(content):
    digest = hashlib.sha256(content).hexdigest()
    return f"kakeya-prefix 2 {len(content)} {digest}\n".encode() + content


def set_part(name):
    return lambda header, _: header["parts"].__setitem__(name, "0" * 64)


def in_first(change):
    return lambda header, _: change(header["snapshots"][0][0])


def in_tensor(**fields):
    return lambda header, _: header["tensors"]["0.0.0"].update(fields)


def reshaped(header, _):
    shape = header["tensors"]["0.0.0"]["shape"]
    header["tensors"]["0.0.0"]["shape"] = [*shape[:2], shape[3], shape[2]]


def renamed(header, _):
    header["tensors"]["9.9.9"] = header["tensors"].pop("0.0.0")


BENT = {
    "one byte": (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "damaged"),
    "one byte of the header": (lambda data: data.replace(b'"id"', b'"ie"', 1), "damaged"),
    "cut short": (lambda data: data[:-1], "truncated"),
    "longer": (lambda data: data + b"\0", "truncated"),
    "empty": (lambda _: b"", "damaged"),
    "no line": (lambda _: b"\0" * 5000, "damaged"),
    "a pickle": (lambda _: b"\x80\x04cposix\nsystem\n(S'touch here'\ntR.", "damaged"),
    "another version": (lambda data: data.replace(b"kakeya-prefix 2", b"kakeya-prefix 1", 1), "version"),
    "header is no JSON": (lambda data: signed(data.partition(b"\n")[2].replace(b"{", b"[", 1)), "damaged"),
    "foreign model": (lambda data: resigned(data, set_part("model")), "foreign"),
    "foreign tokenizer": (lambda data: resigned(data, set_part("tokenizer")), "foreign"),
    "foreign codec": (lambda data: resigned(data, set_part("codec")), "foreign"),
    "foreign layout": (lambda data: resigned(data, set_part("layout")), "foreign"),
    "foreign engine": (lambda data: resigned(data, set_part("engine")), "foreign"),
    "no parts": (lambda data: resigned(data, lambda h, _: h.__setitem__("parts", [])), "foreign"),
    "another block": (lambda data: resigned(data, lambda h, _: h.__setitem__("id", "0" * 64)), "foreign"),
    "fewer caches": (lambda data: resigned(data, lambda h, _: h["snapshots"][0].pop() and None), "layout"),
    "no drafter": (lambda data: resigned(data, lambda h, _: h["snapshots"].pop() and None), "layout"),
    "another codec inside": (
        lambda data: resigned(data, in_first(lambda s: s.__setitem__(1, "e8v"))),
        "layout",
    ),
    "another kind": (lambda data: resigned(data, in_first(lambda s: s.__setitem__(0, "ring"))), "layout"),
    "numbers of a ring": (lambda data: resigned(data, in_first(lambda s: s[2].append(64))), "layout"),
    "another type": (lambda data: resigned(data, in_tensor(dtype="I8")), "layout"),
    "another shape": (lambda data: resigned(data, reshaped), "layout"),
    "a huge shape": (lambda data: resigned(data, in_tensor(shape=[1, 2, 1 << 62, 64])), "damaged"),
    "a shape of text": (lambda data: resigned(data, in_tensor(shape="many")), "damaged"),
    "another name": (lambda data: resigned(data, renamed), "layout"),
    "fewer bytes": (lambda data: resigned(data, lambda _, payload: payload[:-1]), "damaged"),
    "more bytes": (lambda data: resigned(data, lambda _, payload: payload + b"\0"), "damaged"),
    "far too long": (lambda data: data + b"\0" * (4 << 20), "layout"),
}


@pytest.fixture(scope="module")
def filled(tiny, tmp_path_factory):
    """A folder with the two blocks of a prompt, and the answer."""
    folder = tmp_path_factory.mktemp("filled")
    text, _, _ = ask(tiny, folder, draft="dflash")
    return folder, text


@pytest.mark.rows(1)
@pytest.mark.parametrize(("bend", "reason"), BENT.values(), ids=BENT)
def test_bent_file_is_refused_said_and_counted(tiny, filled, tmp_path, caplog, bend, reason):
    folder, text = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    second = next(path for path in files(tmp_path) if path.name == blocks(tiny, tmp_path)[1])
    second.write_bytes(bend(second.read_bytes()))
    again, generation, store = ask(tiny, tmp_path, draft="dflash")
    assert (again, generation.cached) == (text, 64)
    assert store.stats()["refused"] == {reason: 1}
    assert second.name in caplog.text
    if reason == "truncated":
        _, healed, store = ask(tiny, tmp_path, draft="dflash")  # the good block replaced it
        assert (healed.cached, store.stats()["refused"]) == (128, {})


def blocks(resident, folder):
    """Return the names of the files of the prompt's blocks, in its order."""
    namespace = opened(folder).namespace(resident, "raw", 0, BLOCK, drafts=True)
    return [f"{block_id}.kv" for block_id in chain_of(namespace.key, prompt(resident, 150), BLOCK)]


def test_link_and_folder_in_place_of_a_file(tiny, filled, tmp_path):
    folder, text = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    first, second = (next(tmp_path.glob(f"*/{name}")) for name in blocks(tiny, tmp_path))
    shutil.move(second, tmp_path / "elsewhere")
    second.symlink_to(tmp_path / "elsewhere")
    _, generation, store = ask(tiny, tmp_path, draft="dflash")
    assert (generation.cached, store.stats()["refused"]) == (64, {"damaged": 1})
    first.unlink()
    os.mkfifo(first)
    again, generation, store = ask(tiny, tmp_path, draft="dflash")
    assert (again, generation.cached, store.stats()["refused"]) == (text, 0, {"damaged": 1})


def test_one_answer_heals_all_blocks_of_its_prompt(tiny, filled, tmp_path):
    """Whatever stands behind the first damaged block is not read, but replaced as well."""
    folder, text = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for path in files(tmp_path):
        path.write_bytes(b"")
    again, generation, store = ask(tiny, tmp_path, draft="dflash")
    assert (again, generation.cached, store.stats()["written"]) == (text, 0, 2)
    _, healed, _ = ask(tiny, tmp_path, draft="dflash")
    assert healed.cached == 128


def test_folder_in_place_of_a_file_is_refused_and_left_closed(tiny, filled, tmp_path):
    folder, text = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    first = next(tmp_path.glob(f"*/{blocks(tiny, tmp_path)[0]}"))
    first.unlink()
    first.mkdir()
    again, generation, store = ask(tiny, tmp_path, draft="dflash")
    assert (again, generation.cached, store.stats()["refused"]) == (text, 0, {"damaged": 1})
    mine = psutil.Process().num_fds()
    for _ in range(5):
        with pytest.raises(RefusedError, match="regular"):
            Folder(tmp_path, ROOM).read(f"{first.parent.name}/{first.name}", 1 << 20)
    assert psutil.Process().num_fds() == mine


def test_store_that_somebody_deleted_comes_back(tiny, tmp_path):
    store = opened(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, store), draft="dflash")
    assert store.flush()
    assert (store.stats()["written"], store.stats()["error"]) == (2, 0)
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    _, generation, _ = ask(tiny, tmp_path / "store", draft="dflash")
    assert generation.cached == 128


@pytest.fixture(scope="module")
def block(tiny, filled):
    folder, _ = filled
    namespace = opened(folder).namespace(tiny, "raw", 0, BLOCK, drafts=True)
    block_id = chain_of(namespace.key, prompt(tiny, 150), BLOCK)[0]
    return next(folder.glob(f"*/{block_id}.kv")).read_bytes(), namespace, block_id


@given(st.data())
@examples(60)
def test_any_changed_byte_is_refused(block, data):
    whole, namespace, block_id = block
    at = data.draw(st.one_of(st.integers(0, 3000), st.integers(0, len(whole) - 1)))
    bent = bytearray(whole)
    bent[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RefusedError):
        block_file.decoded(bytes(bent), namespace, block_id, BLOCK)


@given(st.data())
@examples(60)
def test_any_cut_is_refused(block, data):
    whole, namespace, block_id = block
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RefusedError):
        block_file.decoded(whole[:end], namespace, block_id, BLOCK)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
@examples(150)
def test_signed_lies_are_refused_or_harmless(block, data):
    """Whoever can write the folder can sign; what is read then still has exactly the expected shapes."""
    whole, namespace, block_id = block
    head, _ = opened_up(whole)

    def lie(header, _):
        where, key = header, data.draw(st.sampled_from(sorted(header)))
        while isinstance(where[key], list | dict) and where[key] and data.draw(st.booleans()):
            where = where[key]
            keys = sorted(where) if isinstance(where, dict) else range(len(where))
            key = data.draw(st.sampled_from(keys))
        where[key] = data.draw(JSON)

    try:
        found = block_file.decoded(resigned(whole, lie), namespace, block_id, BLOCK)
    except RefusedError:
        return
    told = [[[each.kind, each.codec, each.numbers] for each in group] for group in found]
    assert told == head["snapshots"]
    shapes = [x.shape for group in found for each in group for x in each.arrays]
    assert sorted(shapes) == sorted(tuple(each["shape"]) for each in head["tensors"].values())


def test_files_are_private_and_whole(filled):
    folder, _ = filled
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) == 2
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o700}


def test_folder_keeps_its_budget_and_the_longest_unused_go_first(tmp_path):
    folder = Folder(tmp_path, 8_000)
    for i in range(7):
        folder.write(f"a/{i}.kv", b"x" * 1000)
        os.utime(tmp_path / f"a/{i}.kv", (i + 1, i + 1))
    folder.touch(["a/0.kv"])
    gone = folder.write("a/7.kv", b"x" * 1000) + folder.write("a/8.kv", b"x" * 1000)
    left = {path.name for path in tmp_path.glob("a/*")}
    assert gone == 9 - len(left) >= 1
    assert sum(path.stat().st_size for path in tmp_path.glob("a/*")) <= 8_000
    assert {"0.kv", "7.kv", "8.kv"} <= left
    assert "1.kv" not in left


def test_anothers_deletion_and_writing_are_tolerated(tiny, filled, tmp_path):
    folder, text = filled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    ours, theirs = opened(tmp_path), opened(tmp_path)
    first, second = (next(tmp_path.glob(f"*/{name}")) for name in blocks(tiny, tmp_path))
    second.unlink()
    found, generation = answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, ours), draft="dflash")
    assert (found, generation.cached, ours.stats()["miss"]) == (text, 64, 1)
    assert ours.flush()
    _, generation = answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, theirs), draft="dflash")
    assert generation.cached == 128
    shutil.rmtree(first.parent)
    namespace = ours.namespace(tiny, "raw", 0, BLOCK, drafts=True)
    ours.used(namespace, ["0" * 64])
    assert ours.flush()
    Folder(tmp_path, 10)


def test_eviction_by_two_at_once(tmp_path):
    folders = [Folder(tmp_path, 20_000) for _ in range(2)]
    failures = []

    def fill(folder, name):
        try:
            for i in range(150):
                folder.write(f"k/{name}{i}.kv", bytes(1000))
                folder.read(f"k/{name}{i}.kv", 1000)
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    threads = [threading.Thread(target=fill, args=each) for each in zip(folders, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(path.stat().st_size for path in tmp_path.glob("k/*.kv")) <= 2 * 20_000
    assert not list(tmp_path.glob("k/*.tmp"))


def test_leavings_of_a_dead_server_are_removed_later(tmp_path):
    (tmp_path / "k").mkdir()
    for name, age in (("old.tmp", 7200), ("new.tmp", 10)):
        (tmp_path / "k" / name).write_bytes(b"half")
        os.utime(tmp_path / "k" / name, (time.time() - age,) * 2)
    Folder(tmp_path, 100)
    assert [path.name for path in tmp_path.glob("k/*")] == ["new.tmp"]


def test_folder_that_hangs_delays_nobody_for_long(tiny, filled, monkeypatch):
    folder, text = filled
    monkeypatch.setattr(store_module, "READ_SECONDS", 0.2)
    store = opened(folder)
    asleep = threading.Event()
    monkeypatch.setattr(Folder, "read", lambda *_: asleep.wait(120))
    began = time.monotonic()
    found, generation = answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, store), draft="dflash")
    again, _ = answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, store), draft="dflash")
    asleep.set()
    assert (found, again, generation.cached) == (text, text, 0)
    assert store.events["slow"] == 1  # then it rests
    assert not store.stats()["reachable"]
    assert time.monotonic() - began < 100


def test_full_disk_costs_nothing_but_the_files(tiny, tmp_path, monkeypatch, caplog):
    store = opened(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "write", full)
    cold, _ = answer(tiny, prompt(tiny, 150), None, draft="dflash")
    found, _ = answer(tiny, prompt(tiny, 150), Prefixes(ROOM, BLOCK, store), draft="dflash")
    assert store.flush()
    assert (found, store.stats()["error"]) == (cold, 2)
    assert caplog.text.count("No space left on device") == 1  # a full disk does not fill the log too


def test_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used"):
        opened(tmp_path / "file" / "below")
