"""The keys of a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.job import JOB

SEED = "A number that makes the draws repeatable. The sweep's name if left out."
SWEEP: Mapping[str, Mapping[str, str]] = {
    "SweepJob": {
        "type": "The type of the job.",
        "services": JOB["CommandJob"]["services"],
        "trial": "What each trial runs.",
        "sampling_algorithm": "How parameters are chosen: `random`, `grid`, `bayesian` or `asha`, "
        "or a mapping. `random` if left out.",
        "search_space": "How each parameter is drawn, by name. A trial finds its value as "
        "`${{search_space.x}}` in its command and as the variable `AZUREML_SWEEP_x`.",
        "objective": "The metric that trials are compared by.",
        "limits": "How many trials run, and for how long.",
        "early_termination": "When a trial that falls behind is stopped.",
        "resources": "What each trial asks of the compute, unless `trial` says so.",
        "reuse_nodes": "Whether trials run on the nodes of those that have ended, without a new "
        "place in the cluster's queue.",
    },
    "Objective": {
        "goal": "Whether a lower or a higher value is better.",
        "primary_metric": "The name of the metric, however trials report it.",
    },
    "SweepLimits": {
        "max_total_trials": "The number of trials. A grid ends after its last combination.",
        "max_concurrent_trials": "The number of trials at a time. All if left out.",
        "timeout": "Seconds after which the sweep ends and its trials are canceled.",
        "trial_timeout": "Seconds after which a trial fails.",
    },
    "RandomSampling": {
        "type": "Each trial is drawn independently.",
        "seed": SEED,
        "rule": "`sobol` spreads the draws evenly.",
        "logbase": "The base of the bounds of `loguniform` and `qloguniform`, or `e`.",
    },
    "GridSampling": {"type": "Every combination of the values of choices."},
    "BayesianSampling": {"type": "Drawn where earlier results promise the best.", "seed": SEED},
    "AshaSampling": {
        "type": "Drawn at random. Of the trials that reach a rung, all but the best are stopped.",
        "seed": SEED,
        "min_resource": "The first rung, in reports of the primary metric.",
        "reduction_factor": "One of so many trials continues, and each rung is so many times "
        "the one before.",
    },
    "Choice": {
        "type": "One of several values.",
        "values": "Texts, numbers, or mappings with parameters that exist only with that value.",
    },
    "Uniform": {
        "type": "A number between two bounds.",
        "min_value": "The lower bound. Of `loguniform` and `qloguniform`, its logarithm.",
        "max_value": "The upper bound. Of `loguniform` and `qloguniform`, its logarithm.",
    },
    "LogUniform": {"type": "`exp` of a number between two bounds."},
    "QUniform": {"type": "`uniform`, rounded.", "q": "Values are multiples of it."},
    "QLogUniform": {"type": "`loguniform`, rounded.", "q": "Values are multiples of it."},
    "Normal": {
        "type": "A number of a normal distribution.",
        "mu": "Its mean; of `lognormal` and `qlognormal`, that of the logarithm.",
        "sigma": "Its standard deviation; of `lognormal` and `qlognormal`, of the logarithm.",
    },
    "LogNormal": {"type": "`exp` of a number of a normal distribution."},
    "QNormal": {"type": "`normal`, rounded.", "q": "Values are multiples of it."},
    "QLogNormal": {"type": "`lognormal`, rounded.", "q": "Values are multiples of it."},
    "Randint": {"type": "A whole number from 0.", "upper": "The first number above the range."},
    "_Policy": {
        "evaluation_interval": "Judge after every so many reports of the primary metric.",
        "delay_evaluation": "Do not judge before so many reports.",
    },
    "Bandit": {
        "type": "Stops a trial whose best value is worse than the best trial's by more than the "
        "slack.",
        "slack_factor": "The slack as a ratio to the best value.",
        "slack_amount": "The slack as an amount.",
    },
    "MedianStopping": {
        "type": "Stops a trial whose best value is worse than the median of all trials' averages."
    },
    "TruncationSelection": {
        "type": "Stops the worst trials at each interval.",
        "truncation_percentage": "The percentage of trials that is stopped, from 1 to 99.",
        "exclude_finished_jobs": "Whether ended trials are left out of the comparison.",
    },
}
