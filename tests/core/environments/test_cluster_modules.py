"""What modules and a prologue change on a node reaches its ranks, and nothing else does."""

from allranks.core.environments.cluster_modules import laid_over, read

BASE = {"PATH": "/usr/bin:/bin", "HOME": "/home/u"}


def test_what_is_new_or_changed_is_laid_over_and_the_rest_stays():
    before = {"PATH": "/bin", "KEPT": "1", "CHANGED": "1"}
    after = {"PATH": "/bin", "KEPT": "1", "CHANGED": "2", "NEW": "3"}
    assert laid_over(BASE, before, after) == {**BASE, "CHANGED": "2", "NEW": "3"}


def test_folders_are_added_in_front_once():
    before = {"PATH": "/bin"}
    after = {"PATH": "/opt/cuda/bin:/usr/bin:/bin"}
    assert laid_over(BASE, before, after)["PATH"] == "/opt/cuda/bin:/usr/bin:/bin"
    found = laid_over({"LD_LIBRARY_PATH": "/a"}, {}, {"LD_LIBRARY_PATH": "/opt/lib"})
    assert found == {"LD_LIBRARY_PATH": "/opt/lib:/a"}


def test_a_variable_that_is_one_folder_is_not_joined():
    base = {"CUDA_PATH": "/usr/local/cuda"}
    assert laid_over(base, {}, {"CUDA_PATH": "/opt/cuda-12"}) == {"CUDA_PATH": "/opt/cuda-12"}
    assert laid_over({}, {}, {"DATASET_PATH": "s3://b/x"}) == {"DATASET_PATH": "s3://b/x"}


def test_what_is_unset_is_unset():
    assert laid_over({"A": "1", "B": "2"}, {"A": "1"}, {}) == {"B": "2"}


def test_the_active_environment_stays_first():
    base = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv"}
    found = laid_over(base, {"PATH": "/bin"}, {"PATH": "/opt/python/bin:/bin"})
    assert found["PATH"] == "/venv/bin:/opt/python/bin:/bin"


def test_the_batch_systems_own_variables_and_ours_are_not_for_ranks():
    after = {"SLURM_JOB_ID": "1", "ALLRANKS_AGENT_TOKEN": "s", "SHLVL": "2", "PMI_RANK": "0"}
    assert laid_over(BASE, {}, after) == BASE


def test_an_environment_is_read_as_it_was_listed():
    assert read(b"A=1\0B=two\nlines=x\0C=\0\0") == {"A": "1", "B": "two\nlines=x", "C": ""}
