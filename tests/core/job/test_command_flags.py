"""Parameters that are read from command lines."""

import pytest

from allranks.core.job.command_flags import command_flags


@pytest.mark.parametrize(
    ("command", "parameters", "rest"),
    [
        ("python train.py --lr 0.1", {"lr": "0.1"}, "python train.py"),
        ("python train.py --lr=0.1 data/", {"lr": "0.1"}, "python train.py data/"),
        ("torchrun --nproc-per-node 4 a.py --lr 1 --bf16", {"lr": "1", "bf16": "true"}, None),
        ("torchrun -m pkg.train --weight-decay -1e-4", {"weight_decay": "-1e-4"}, None),
        ("python a.py --layers 64 32 out/ --name 'a b'", {"layers": "64 32", "name": "a b"}, None),
        ("python a.py ++optim.lr=0.1 x=1", {"optim.lr": "0.1", "x": "1"}, "python a.py"),
        ("pip install --upgrade x && python a.py \\\n --lr 1\nls --all", {"lr": "1"}, None),
        ("LR=1 ./train --lr 0.1 | tee --append log", {"lr": "0.1"}, None),
        ("cd x && ./train --lr 0.1", {"lr": "0.1"}, "cd x && ./train"),
        ("python -m pip install --upgrade x; ./train --lr 2", {"lr": "2"}, None),
        ("python a.py --api-key k --lr $LR", {}, "python a.py --api-key k --lr $LR"),
        ("python a.py --db s3://me:pw@host/x", {"db": "s3://********@host/x"}, None),
        ("python - <<'END'\nprint('it')\nEND'", {}, "python - <<'END'\nprint('it')\nEND'"),
        ("python -m http.server --bind 127.0.0.1", {}, "python -m http.server --bind 127.0.0.1"),
        ("python -m pip install --upgrade x", {}, None),
        ("python -m cProfile -m pkg.train --lr 1", {"lr": "1"}, None),
        ("python -m trace --count a.py --lr 1", {"lr": "1"}, None),
        ("", {}, ""),
    ],
)
def test_flags(command: str, parameters: dict[str, str], rest: str | None) -> None:
    found = command_flags(command)
    assert found.parameters == parameters
    assert rest is None or found.rest == rest
