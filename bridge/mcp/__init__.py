"""``kakeya mcp``: the client's verbs as tools for agents. The branch is the handle; the server keeps no state."""
