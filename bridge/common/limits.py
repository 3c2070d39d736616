"""Limits on everything that is read from the bus and from servers, whoever wrote it.

docs/security.md says what happens beyond the most important limits; tests try each limit, and one more than that. Each
limit is checked before data is read into memory. Sizes are in bytes.
"""

KIB = 1 << 10
MIB = 1 << 20

# Names and numbers.
BRANCH_CHARS = 250
BRANCH_PART_CHARS = 200
# Far above the counts of honest runners, and far below the largest JSON integer that is accepted (18 digits).
COUNTER = 10**12

# The size of a commit with its message; of a folder as git stores it (about 100,000 names); and the depth of folders.
COMMIT_BYTES = 1 * MIB
TREE_BYTES = 4 * MIB
PATH_PARTS = 64

# Listed branches. If there are more, each poll handles only a part: new request branches first, the others in turn.
BRANCHES = 50_000
# At most this many branches at the same commit are examined at a time; at most one of them is a request.
COPIES = 1_000
# A listing of up to this many bytes is compared with the next one.
LISTING_BYTES = 8 * MIB
LINE_BYTES = 8 * KIB
# The newest branches that a client fetches to find out what else waits and who serves.
FETCHED = 2_000
# How long a client fetches listed branches; those that have not arrived by then are left out.
LISTED_S = 60.0

# The address space of a git process of the runner.
GIT_MEMORY_BYTES = 1024 * MIB
# The memory of the user's git while it talks to a server. Mapped packs do not count, and may be larger.
TALKING_GIT_BYTES = 2048 * MIB
# How long an HTTP server may be silent before git gives up.
SILENCE_S = 60.0
# A fetch leaves this much of the disk free: more than the 512 MiB below which a runner ends its jobs by default.
KEEP_FREE_BYTES = 1024 * MIB
FETCH_S = 5.0
SEARCH_S = 3.0
# How long the runner waits for a branch that somebody else pushed to while, or after, its job ran.
TIP_S = 15.0

# If a branch's tip is not signed, at most so many commits below it are searched for a signed state or the request.
UNSIGNED = 1_000
# How many commits a poll searches in this way, on all branches together. New branches come first.
UNSIGNED_A_POLL = 20_000

# How often the runner may die over one commit before it leaves that commit alone.
CRASHES = 3

# Runners' presence records: how many references are read and how many records are shown, the size of a
# record, its longest validity, and the lengths of its lists and of its reason. PRESENCE_S: how long a reader
# waits for all of them.
PRESENCES = 1_000
PRESENCES_SHOWN = 64
PRESENCE_BYTES = 64 * KIB
PRESENCE_VALID_S = 86_400
PRESENCE_LABELS = 32
PRESENCE_PRESETS = 256
PRESENCE_REASON = 200
PRESENCE_S = 10.0

# The definitions of presets in one record and in all records that a reader looks at: how many, and how many bytes.
PRESENCE_DEFINITIONS = 64
PRESENCE_DEFINITION_BYTES = 256 * KIB
OFFERED_DEFINITIONS = 256
OFFERED_BYTES = 2 * MIB

# `.kakeya/` on the bus's default branch: how many files are read, how large each and all together may be, and how long
# a command waits for them.
BUS_FILES = 200
BUS_FILE_BYTES = 64 * KIB
BUS_FOLDER_BYTES = 1 * MIB
BUS_FOLDER_S = 10.0

# Sessions' branches from which requests are forwarded: how many new commits of each are looked at, how many requests a
# poll forwards, and how many are remembered.
SESSION_COMMITS = 200
FORWARDED_A_POLL = 20
FORWARDED = 20_000

# Files of one answer, as its result lists them. A preset may collect 1,000 reports, and has at most 16 logs.
ANSWER_FILES = 2_000
# Other lists of one answer: its steps, each with one log; the arguments of a step; notes (skipped files,
# surviving processes, faults of the reports); named values, such as parameters and versions.
ANSWER_STEPS = 16
ANSWER_ARGUMENTS = 128
ANSWER_NOTES = 100
ANSWER_NAMES = 256
# All files of one answer together: what `fetch` writes and `verify` hashes.
ANSWER_BYTES = 512 * MIB
# Files that may lie in the folders of an answer, and paths that may differ between a request and its answer.
PATHS = 20_000
# Characters of a path, from the root of the tree.
PATH_LENGTH = 1_024
# One file of an answer, or one report: what is read into memory at once.
FILE_BYTES = 64 * MIB
# The files of the protocol: a state or a cancellation, a result, its signed statement.
STATE_BYTES = 16 * KIB
RESULT_BYTES = MIB
EVIDENCE_BYTES = 4 * MIB
# Commits of a branch above its request, as far as a reader reads them.
COMMITS = 20_000
# The piece of log in one commit. A runner streams a quarter of a mebibyte at a time.
PIECE_BYTES = MIB // 2
# All pieces of log on one branch; what comes after them is not shown.
STREAM_BYTES = 256 * MIB
# A log that is shown or returned as text. `fetch` writes longer ones to disk.
LOG_BYTES = 32 * MIB
# All reports that are read into memory together, to be judged or shown.
REPORTS_BYTES = 64 * MIB
# Seconds for judging all reports of a run. A report of the largest size takes a few seconds.
JUDGE_S = 30.0
# Files that `kakeya gate` looks at in the folders that it is given.
GATE_FILES = 10_000
# One report: large enough for a model with 64 layers, ten arms, fifty prompts and nine repeats, with every
# layer of every row. Reading takes up to ten times as much memory: one emoji makes each character of a text
# four bytes long, and text and value are in memory together. So reports of the request's own code have a
# lower limit.
REPORT_BYTES = 48 * MIB
REQUESTERS_REPORT_BYTES = 8 * MIB
# In one JSON text: all values; lists and objects; and names of values in objects. A list may take two bytes of text
# and 200 of memory, a name 6 and 260.
JSON_VALUES = 1_000_000
JSON_NESTS = 100_000
JSON_NAMES = 250_000
# The same limits for a report, in which equal objects are stored once; and limits of distinct objects and of
# the names in one object.
REPORT_VALUES = 6_000_000
REPORT_NESTS = 2_500_000
REPORT_NAMES = 8_000_000
REPORT_OBJECTS = 250_000
REPORT_OBJECT_NAMES = 10_000
