"""The ports on which a job's ranks meet, where its command or variables name them. Pure.

The port that allranks chooses for a job is free. One that the user fixes is free only if no other
job on the host fixes it, too: so jobs that name the same one wait for one another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLES = (
    "MASTER_PORT",
    "PET_MASTER_PORT",
    "PET_RDZV_ENDPOINT",
    "JAX_COORDINATOR_PORT",
    "JAX_COORDINATOR_ADDRESS",
)
# torchrun, DeepSpeed and Accelerate; scripts of PyTorch's examples take a URL.
_OPTIONS = r"(?:master|main[-_]process)[-_]port|rdzv[-_]endpoint|dist[-_]url|init[-_]method"
_IN_COMMAND = re.compile(
    rf"(?:(?<![\w-])--(?:{_OPTIONS})[ =]\s*|(?<![\w$])(?:{'|'.join(_VARIABLES)})=)"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s;&|)"']+)"""
)
# A port alone, or behind a host.
_PORT = re.compile(r"(?:^|.*:)(\d{1,5})$")


def fixed_ports(command: str, variables: Mapping[str, str]) -> tuple[int, ...]:
    """The ports, ascending. A port that only the script names is not among them."""
    values = [variables.get(name, "") for name in _VARIABLES]
    values += [match["value"].strip("\"'") for match in _IN_COMMAND.finditer(command)]
    numbers = {int(match[1]) for value in values if (match := _PORT.match(value.strip()))}
    return tuple(sorted(number for number in numbers if 0 < number < 65536))
