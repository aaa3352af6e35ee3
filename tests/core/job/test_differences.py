"""What is different between a job that failed and the last that did not."""

from allranks.core.job.comparison import Facts, differences
from allranks.core.job.differences import Change, Side, changes

SIDE = Side("python train.py", "pytorch", 1, 2, 0, "local")


def test_the_same_twice_is_no_change():
    assert changes(SIDE, SIDE) == []


def test_every_field_of_a_side_tells():
    """Total: a field that is new and forgotten here fails."""
    other = Side(
        command="python train.py --lr 1",
        distribution="mpi",
        nodes=2,
        procs=4,
        gpus=1,
        compute="cluster",
        code="b" * 64,
        files={"train.py": "2", "new.py": "1"},
        environment="mine:2",
        requirements=("torch==2.13.0",),
        inputs={"data": "birds:2"},
        hosts=("h2",),
        variables={"LR": "1"},
        hidden=frozenset(),
    )
    before = SIDE._replace(
        code="a" * 64,
        files={"train.py": "1", "old.py": "1"},
        requirements=("torch==2.12.0",),
        inputs={"data": "birds:1"},
        hosts=("h1",),
        variables={"LR": "2"},
    )
    found = {each.what: (each.before, each.after) for each in changes(before, other)}
    assert found == {
        "code: new.py": ("", "new"),
        "code: old.py": ("there", ""),
        "code: train.py": ("there", "changed"),
        "command": ("python train.py", "python train.py --lr 1"),
        "environment": ("", "mine:2"),
        "package torch": ("torch==2.12.0", "torch==2.13.0"),
        "input data": ("birds:1", "birds:2"),
        "variable LR": ("2", "1"),
        "compute": ("local", "cluster"),
        "distribution": ("pytorch", "mpi"),
        "nodes": ("1", "2"),
        "ranks on each node": ("2", "4"),
        "gpus": ("0", "1"),
        "hosts": ("h1", "h2"),
    }
    assert len(found) >= len(Side._fields) - 2  # code and files are one, hidden is none


def test_what_is_secret_is_not_shown():
    before = SIDE._replace(variables={"HF_TOKEN": "old"}, hidden=frozenset({"HF_TOKEN"}))
    after = before._replace(variables={"HF_TOKEN": "new"})
    assert changes(before, after) == [Change("variable HF_TOKEN", "another value", "another value")]
    assert changes(SIDE, after) == [Change("variable HF_TOKEN", "", "another value")]
    assert changes(before, before) == []


def test_code_that_cannot_be_looked_into():
    assert changes(SIDE._replace(code="a" * 64), SIDE._replace(code="b" * 64)) == [
        Change("code", "a" * 12, "b" * 12)
    ]


def test_packages_that_the_record_of_one_job_does_not_have_are_no_difference():
    """Those of a job that ran with the submitter's own Python, beside one that took it along."""
    several = ("torch==2.13.0", "numpy==2.0")
    local, slurm = SIDE._replace(requirements=None), SIDE._replace(requirements=several)
    newer = SIDE._replace(requirements=("torch==2.14.0", "numpy==2.0"))
    assert changes(local, slurm) == changes(slurm, local) == []
    assert differences([Facts(local), Facts(slurm)]) == []
    (row,) = differences([Facts(local), Facts(slurm), Facts(newer)])
    assert (row.name, row.values) == ("package torch", (None, "torch==2.13.0", "torch==2.14.0"))
    (row,) = differences([Facts(SIDE), Facts(SIDE._replace(requirements=several[:1]))])
    assert row.values == (None, "torch==2.13.0")
