"""Why a lie about a field may pass."""


def reason_for(kind, place):
    return None
