"""The most that is taken from the bus of each kind of thing. docs/security.md shows this table; a test feeds each + 1.

A limit is applied to a size that git tells, before the thing itself is read.
"""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20

# Names and numbers.
BRANCH_CHARS = 250
BRANCH_PART_CHARS = 200
# Far above what honest runners count to, and far below what a JSON integer may have here (18 digits).
COUNTER = 10**12

# Git objects, in bytes. A folder of 2 MiB has some 50,000 entries.
COMMIT_BYTES = 1 * MIB
TREE_BYTES = 2 * MIB
PATH_PARTS = 64

# What the bus lists. Beyond this number a random part of the request branches is looked at in each poll.
BRANCHES = 50_000
# A listing of up to so many bytes is kept until it is compared with the one before.
LISTING_BYTES = 8 * MIB
LINE_BYTES = 8 * KIB

# Git's own processes in the runner: address space, and how long a poll waits for new branches.
GIT_MEMORY_BYTES = 1024 * MIB
FETCH_S = 5.0
SEARCH_S = 3.0

# How often the runner may die over one commit before it leaves that commit alone.
CRASHES = 3
