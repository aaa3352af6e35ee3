"""The names of ``azure.ai.ml.sweep``: search spaces, sampling, early termination."""

from __future__ import annotations

from allranks.spec.sweep.early_termination import Bandit as BanditPolicy
from allranks.spec.sweep.early_termination import MedianStopping as MedianStoppingPolicy
from allranks.spec.sweep.early_termination import TruncationSelection as TruncationSelectionPolicy
from allranks.spec.sweep.job import AshaSampling as AshaSamplingAlgorithm
from allranks.spec.sweep.job import BayesianSampling as BayesianSamplingAlgorithm
from allranks.spec.sweep.job import GridSampling as GridSamplingAlgorithm
from allranks.spec.sweep.job import Objective, SweepJob
from allranks.spec.sweep.job import RandomSampling as RandomSamplingAlgorithm
from allranks.spec.sweep.job import SweepLimits as SweepJobLimits
from allranks.spec.sweep.search_space import (
    Choice,
    LogNormal,
    LogUniform,
    Normal,
    QLogNormal,
    QLogUniform,
    QNormal,
    QUniform,
    Randint,
    Uniform,
)

__all__ = [
    "AshaSamplingAlgorithm",
    "BanditPolicy",
    "BayesianSamplingAlgorithm",
    "Choice",
    "GridSamplingAlgorithm",
    "LogNormal",
    "LogUniform",
    "MedianStoppingPolicy",
    "Normal",
    "Objective",
    "QLogNormal",
    "QLogUniform",
    "QNormal",
    "QUniform",
    "Randint",
    "RandomSamplingAlgorithm",
    "SweepJob",
    "SweepJobLimits",
    "TruncationSelectionPolicy",
    "Uniform",
]
