"""What a reader takes from the bus and from servers at most. The table in docs/security.md says what happens beyond.

Sizes are in bytes. Each bound holds before the thing is read into memory; tests/attacks/test_reader_rows.py feeds each
limit and one more.
"""

from __future__ import annotations

_MIB = 1 << 20

# Files of one answer, as its result lists them. A preset may collect 1,000 reports, and has at most 16 logs.
ANSWER_FILES = 2_000
# All files of one answer together: what `fetch` writes and `verify` hashes.
ANSWER_BYTES = 512 * _MIB
# Files that may lie in the folders of an answer, and paths that may differ between a request and its answer.
PATHS = 20_000
# Characters of a path, from the root of the tree.
PATH_LENGTH = 1_024
# One folder of a tree, as git stores it: about 100,000 names.
TREE_BYTES = 4 * _MIB
# One commit, message included.
COMMIT_BYTES = _MIB
# The piece of log in one commit. A runner streams a quarter of a mebibyte at a time.
PIECE_BYTES = _MIB // 2
# All pieces of log on one branch; what comes after them is not shown.
STREAM_BYTES = 256 * _MIB
# A log that is shown or returned as text. `fetch` writes longer ones to disk.
LOG_BYTES = 32 * _MIB
# Reports that are read into memory to be judged or shown, together.
REPORTS_BYTES = 64 * _MIB
# Files that `kakeya gate` looks at in the folders that it is given.
GATE_FILES = 10_000
# An answer of GitHub's REST interface, and the seconds until all of it must be there.
API_BYTES = _MIB
API_SECONDS = 10.0
