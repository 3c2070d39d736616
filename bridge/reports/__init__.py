"""The contract of reports, shared by engine, gate and pages: schema, kinds, statistics, claims and digests.

Nothing here imports MLX or git. ``kinds``, ``statistics``, ``claims`` and ``digests`` work on plain parsed JSON;
``models`` holds the typed schema and needs pydantic.
"""

SCHEMA_VERSION = 3
