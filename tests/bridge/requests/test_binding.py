"""What a requester's signature binds: which addresses are the same repository."""

from __future__ import annotations

import pytest

from bridge.requests.binding import repository_name

NAMES = {
    "https://github.com/owner/name.git": "github.com/owner/name",
    "https://user:secret@GitHub.com:443/owner/name": "github.com/owner/name",
    "git@github.com:owner/name.git": "github.com/owner/name",
    "ssh://git@github.com:22/owner/name": "github.com/owner/name",
    "ssh://git@localhost:2222/owner/name": "localhost:2222/owner/name",
    "https://localhost:2222/owner/name": "localhost:2222/owner/name",
    "http://localhost/owner/name": "localhost/owner/name",
    "http://[::1]:8080/owner/name": "[::1]:8080/owner/name",
    "http://[::1]/owner/name": "::1/owner/name",
    "https://localhost:443x/owner/name": "localhost:443x/owner/name",
    "/srv/bus.git": "file:/srv/bus.git",
}


@pytest.mark.parametrize(("url", "name"), NAMES.items())
def test_addresses_of_one_repository_have_one_name_and_others_have_another(url, name):
    assert repository_name(url) == name
