"""How many GPUs a node has, by the cloud's name for its size. Pure.

From the clouds' own lists of sizes. Azure writes `Standard_` before its names and AWS `ml.` before
those of SageMaker: a name counts with and without it, in upper and lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# A size is a name: what a map has no place for is not one.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_AZURE = {
    1: "NC6 NC6_Promo NC6s_v2 NC6s_v3 NC4as_T4_v3 NC8as_T4_v3 NC16as_T4_v3 NC24ads_A100_v4 "
    "NC40ads_H100_v5 NCC40ads_H100_v5 ND6s NV6 NV6s_v2 NV12s_v3 NV6ads_A10_v5 NV12ads_A10_v5 "
    "NV18ads_A10_v5 NV36ads_A10_v5 NV36adms_A10_v5 NV4as_v4 NV8as_v4 NV16as_v4 NV32as_v4",
    2: "NC12 NC12_Promo NC12s_v2 NC12s_v3 NC48ads_A100_v4 NC80adis_H100_v5 ND12s NV12 NV12s_v2 "
    "NV24s_v3 NV72ads_A10_v5",
    4: "NC24 NC24_Promo NC24r NC24r_Promo NC24s_v2 NC24rs_v2 NC24s_v3 NC24rs_v3 NC64as_T4_v3 "
    "NC96ads_A100_v4 ND24s ND24rs NV24 NV24s_v2 NV48s_v3",
    8: "ND40s_v3 ND40rs_v2 ND96asr_v4 ND96amsr_A100_v4 ND96is_H100_v5 ND96isr_H100_v5 "
    "ND96isr_H200_v5 ND96isr_MI300X_v5",
}
_ONE = "xlarge 2xlarge 4xlarge 8xlarge 16xlarge"
_AWS = {
    "p2": {1: "xlarge", 8: "8xlarge", 16: "16xlarge"},
    "p3": {1: "2xlarge", 4: "8xlarge", 8: "16xlarge"},
    "p3dn": {8: "24xlarge"},
    "p4d": {8: "24xlarge"},
    "p4de": {8: "24xlarge"},
    "p5": {1: "4xlarge", 8: "48xlarge"},
    "p5e": {8: "48xlarge"},
    "p5en": {8: "48xlarge"},
    "p6-b200": {8: "48xlarge"},
    "g3s": {1: "xlarge"},
    "g3": {1: "4xlarge", 2: "8xlarge", 4: "16xlarge"},
    "g4dn": {1: _ONE, 4: "12xlarge", 8: "metal"},
    "g4ad": {1: "xlarge 2xlarge 4xlarge", 2: "8xlarge", 4: "16xlarge"},
    "g5g": {1: "xlarge 2xlarge 4xlarge 8xlarge", 2: "16xlarge metal"},
    "g5": {1: _ONE, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g6": {1: _ONE, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g6e": {1: _ONE, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "gr6": {1: "4xlarge 8xlarge"},
}

# Every size that has GPUs, as its cloud writes it.
SIZES: Mapping[str, int] = {
    **{f"Standard_{name}": n for n, names in _AZURE.items() for name in names.split()},
    **{
        f"ml.{family}.{name}": n
        for family, sizes in _AWS.items()
        for n, names in sizes.items()
        for name in names.split()
    },
}
# Families of sizes without GPUs: Azure's A to M, AWS's by letter and generation.
_CPU = re.compile(
    r"standard_[a-m][a-z]*\d[a-z0-9_-]*|"
    r"(ml\.)?(c|d|hpc|i|inf|m|r|t|trn|u|x|z)\d+[a-z]*\.(nano|micro|small|medium|large|metal|\d*xlarge)"
)
# The families of ``_CPU`` in words, for a list of what is known.
CPU_FAMILIES = ("Standard_A… to Standard_M…", "ml.c…, ml.m…, ml.r…, ml.t… and the like")


def gpus(size: str, own: Mapping[str, int]) -> int | None:
    """How many GPUs a node of that size has: what the site says (``own``) counts before the shipped
    table; None where neither knows the size."""
    key = normalized(size)
    for table in (own, SIZES):
        for name, count in table.items():
            if normalized(name) == key:
                return count
    return 0 if _CPU.fullmatch(size.strip().lower()) else None


# Azure has an `r` among the letters behind the first number (ND40rs_v2). AWS names families.
_RDMA = re.compile(
    r"(standard_)?[hna][a-z]*\d+[a-z]*r[a-z]*(_.*)?|(ml\.)?(hpc\w+|p3dn|p4de?|p5\w*|p6[\w-]*|trn\w+)\..+"
)


def has_rdma(size: str) -> bool:
    """Whether machines of that size have RDMA between them in their cloud."""
    return _RDMA.fullmatch(size.strip().lower()) is not None


def normalized(size: str) -> str:
    """The name that all spellings of a size share."""
    return re.sub(r"^(standard_|ml\.)", "", size.strip().lower())
