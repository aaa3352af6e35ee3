"""The words by which a client knows that a job's nodes do not see an input of this machine."""


def unseen(path: str) -> str:
    return f"{path!r} is a path of this machine, and the nodes do not share its disk"
