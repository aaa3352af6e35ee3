#!/usr/bin/env bash
# Builds Horovod for PyTorch, with gloo and MPI, into the environment of a Python that has torch. About five minutes.
# Its last release, 0.28.1, wants an older C++ than today's PyTorch is written in: two lines of its build say so.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 PYTHON   (the Python of an environment with torch, numpy, cloudpickle, psutil, packaging, cmake and an MPI)" >&2
    exit 2
fi
python=$(realpath -s "$1")
export PATH="$(dirname "$python"):$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation -d "$folder" horovod==0.28.1
tar -xf "$folder"/horovod-0.28.1.tar.gz -C "$folder"
cd "$folder/horovod-0.28.1"
sed -i 's/set(CMAKE_CXX_STANDARD [0-9]*)/set(CMAKE_CXX_STANDARD 20)/' CMakeLists.txt horovod/torch/CMakeLists.txt

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
if command -v mpicxx >/dev/null; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
"$python" -m pip install --quiet --no-build-isolation --no-deps .
cd /
"$python" -c 'import horovod.torch as hvd; print("gloo", hvd.gloo_built(), "mpi", hvd.mpi_built())'
