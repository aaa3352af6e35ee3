"""Dockerfiles as environments."""

import pytest

from allranks.core.environments.dockerfile import environment_of
from allranks.errors import SpecError

WHOLE = """\
# syntax=docker/dockerfile:1
FROM mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest
ARG VERSION=1
ENV PATH=/opt/conda/bin:$PATH DATA_DIR=/data "NAME=two words"
ENV OLD style of one
LABEL maintainer="me"
WORKDIR /app
COPY requirements/train.txt /tmp/requirements.txt
COPY "setup files" /app/
RUN apt-get update && apt-get clean && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir -U pip setuptools wheel && \\
    # a comment within
    pip3 install -q 'torch>=2.0,<3' \\
        scikit-learn==1.5.1 --extra-index-url https://x.example/simple
RUN python -m pip install --no-cache-dir -r /tmp/requirements.txt
CMD ["python", "train.py"]
"""


def test_a_dockerfile_of_packages():
    assert environment_of(WHOLE) == {
        "image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest",
        "pip": [
            "torch>=2.0,<3",
            "scikit-learn==1.5.1",
            "--extra-index-url https://x.example/simple",
            "-r requirements/train.txt",
        ],
        "conda_file": {
            "dependencies": [],
            "variables": {"DATA_DIR": "/data", "NAME": "two words", "OLD": "style of one"},
        },
        "left_out": ["ARG", "LABEL", "CMD"],
    }


def test_conda():
    text = "FROM continuumio/miniconda3\nCOPY . /src\nRUN conda env create -n e -f /src/env.yml\n"
    assert environment_of(text) == {"image": "continuumio/miniconda3", "conda_file": "env.yml"}
    text = "FROM continuumio/miniconda3\nCOPY conda.yaml .\nRUN conda env update --file conda.yaml"
    assert environment_of(text)["conda_file"] == "conda.yaml"
    text = "from a\nrun conda install -y -c conda-forge python=3.11 numpy && conda clean -afy"
    assert environment_of(text)["conda_file"]["dependencies"] == ["python=3.11", "numpy"]


@pytest.mark.parametrize(
    ("copies", "named", "file"),
    [
        ("COPY requirements.txt /tmp/", "/tmp/requirements.txt", "requirements.txt"),
        ("COPY a/requirements.txt /tmp/r.txt", "/tmp/r.txt", "a/requirements.txt"),
        ("COPY ./a/needs.txt .", "needs.txt", "a/needs.txt"),
        ("WORKDIR /app\nCOPY a b /app/", "./b", "b"),
        ("WORKDIR app\nWORKDIR sub\nCOPY . .", "/app/sub/x/r.txt", "x/r.txt"),
        ("COPY docker /build", "/build/r.txt", "docker/r.txt"),
        ("COPY a /x/\nCOPY b /x/y/", "/x/y/b", "b"),
        ("COPY . /", "/r.txt", "r.txt"),
    ],
)
def test_files_that_were_copied(copies: str, named: str, file: str):
    text = f"FROM a\n{copies}\nRUN pip install -r {named}"
    assert environment_of(text)["pip"] == [f"-r {file}"]


def test_nothing_is_installed():
    assert environment_of("FROM --platform=linux/amd64 python:3.11 AS base\nENV A=1\n") == {
        "image": "python:3.11"
    }


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("FROM a\nRUN apt-get install -y \\\n  ffmpeg", 2, "no counterpart"),
        ("FROM a\n\nRUN pip install x && make", 3, "no counterpart"),
        ("FROM a\nRUN pip install .", 2, "installs ., which is no package"),
        ("FROM a\nRUN pip install --target /x y", 2, "--target"),
        ("FROM a\nFROM b", 2, "another stage"),
        ("FROM ${BASE}", 1, "names no image"),
        ("FROM a\nRUN pip install x==$VERSION", 2, "installs x==$VERSION, which"),
        ("FROM a\nCOPY --from=b /x /y", 2, "names no files of the build context"),
        ("FROM a\nADD https://x.example/y /y", 2, "no counterpart"),
        ('FROM a\nSHELL ["/bin/sh", "-c"]', 2, "no counterpart"),
        ("FROM a\nRUN <<END\npip install x\nEND", 2, "no counterpart"),
        ("FROM a\nCOPY", 2, "names no files"),
        ('FROM a\nCOPY ["a", "b"]', 2, "names no files"),
        ('FROM a\nCOPY "a', 2, "cannot be read"),
        ("FROM a\nRUN pip install 'x", 2, "cannot be read"),
        ("FROM a\nNONSENSE x", 2, "no counterpart"),
        ("# nothing", 1, "no FROM"),
        ("", 1, "no FROM"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_line(text: str, line: int, said: str):
    with pytest.raises(SpecError) as caught:
        environment_of(text)
    first = caught.value.problems[0]
    assert (first.line, said in first.message) == (line, True), first.message
    assert first.hint


def test_every_line_is_told_at_once():
    with pytest.raises(SpecError) as caught:
        environment_of("FROM a\nRUN make\nRUN pip install x\nRUN cmake .\n")
    assert [each.line for each in caught.value.problems] == [2, 4]
