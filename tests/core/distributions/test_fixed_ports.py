"""The ports that a command or its variables fix."""

import pytest

from allranks.core.distributions.fixed_ports import fixed_ports


@pytest.mark.parametrize(
    ("command", "ports"),
    [
        ("torchrun --master_port 29501 train.py", (29501,)),
        ("torchrun --master-port=29501 train.py --port 80", (29501,)),
        ("torchrun --rdzv_backend c10d --rdzv_endpoint localhost:29400 train.py", (29400,)),
        ("torchrun --rdzv-endpoint='[::1]:29400' train.py", (29400,)),
        ("accelerate launch --main_process_port 29502 train.py", (29502,)),
        ("deepspeed --master_port=29503 train.py", (29503,)),
        ("MASTER_ADDR=localhost MASTER_PORT=29500 python train.py", (29500,)),
        ("export MASTER_PORT='29500'; python train.py", (29500,)),
        ("python main.py --dist-url tcp://127.0.0.1:23456 --dist-backend gloo", (23456,)),
        ('a --master_port 1; b --init_method "tcp://h:2"', (1, 2)),
        ("torchrun --rdzv_endpoint localhost:0 train.py", ()),
        ("torchrun --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT train.py", ()),
        ("torchrun --master_port $MASTER_PORT train.py", ()),
        ("torchrun --standalone --rdzv_endpoint=head train.py", ()),
        ("python train.py --my-master_port 5 --port 29500 --url http://h:80", ()),
        ("python train.py --dist-url env:// MY_MASTER_PORT=7 $MASTER_PORT=3", ()),
        ("torchrun --master_port 99999 train.py", ()),
        ("torchrun --master_port ${{inputs.port}} train.py", ()),
        ("", ()),
    ],
)
def test_a_port_in_the_command(command, ports):
    assert fixed_ports(command, {}) == ports


def test_a_port_in_the_variables():
    variables = {"MASTER_PORT": "29500", "JAX_COORDINATOR_ADDRESS": "host:1234", "PORT": "80"}
    assert fixed_ports("python train.py", variables) == (1234, 29500)
    assert fixed_ports("x", {"MASTER_PORT": "${{inputs.port}}", "PET_RDZV_ENDPOINT": "h"}) == ()
