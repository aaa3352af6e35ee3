"""The jobs that run on every engine, on three nodes of Kubernetes."""

import subprocess
from typing import Any

import pytest

# Only the functions: `there`, which they ask for, is that of this folder.
from tests.cluster.test_everywhere import (  # noqa: F401
    test_a_failure_is_told_with_its_host_and_what_it_printed,
    test_a_named_state_goes_with_jobs_from_here_to_there_and_back,
    test_a_restart_in_the_same_allocation_starts_warm_from_the_same_server,
    test_an_environment_is_made_once_for_all_hosts,
    test_cancel_while_it_runs,
    test_digits_are_learnt_as_well_as_here,
    test_jobs_run_on_the_hosts_of_a_session,
    test_mpi_without_ssh,
    test_state_is_found_again_after_a_restart_in_the_same_allocation,
    test_tensorflow,
)
from tests.support import Allranks

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(900)]


@pytest.fixture
def there(there: Allranks) -> Allranks:
    """Pods have the environment of their image: one beside it has to be on the job's PATH."""

    def run(*words: object, **more: Any) -> "subprocess.CompletedProcess[str]":
        if folder := (more.get("env") or {}).get("VIRTUAL_ENV"):
            words += ("--set", f"environment_variables.PATH={folder}/bin:/usr/bin:/bin")
        return there(*words, **more)

    return run
