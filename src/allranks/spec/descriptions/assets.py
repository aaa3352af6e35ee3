"""The keys of assets."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.job import DESCRIPTION, JOB, PROPERTIES, TAGS, VERSION

ASSETS: Mapping[str, Mapping[str, str]] = {
    "Compute": {
        "name": "The compute's name.",
        "type": "The engine: `local`, `slurm` or `ray`.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "size": "The machine size. Kept and shown.",
        "tier": "`low_priority` makes its jobs spot jobs, except those that name a tier.",
        "min_instances": "The number of nodes that `allranks compute wait` waits for.",
        "max_instances": "The most nodes that a job may have.",
        "gpus_per_node": "The number of GPUs of each node for jobs that do not say one.",
        "idle_time_before_scale_down": "Seconds. Kept and shown: the cluster decides itself.",
        "server_address": "The address of this server for the nodes; `dns:NAME` if only its name "
        "stays the same; or `mailbox` for messages by files on a shared disk.",
        "options": "The engine's options. In a file they stand at the top, beside the other keys.",
    },
    "AmlCompute": {"type": "A cluster in Azure. Its name may stand for a compute that exists."},
    "Datastore": {
        "name": "The datastore's name.",
        "type": "The kind of store.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "path": "The folder of a `file` datastore, as an absolute path.",
        "bucket": "The bucket of an `s3` or `gcs` datastore.",
        "prefix": "The prefix of everything in the datastore.",
        "endpoint": "The URL of a store that is not its provider's own, such as MinIO.",
        "region": "The region of an `s3` datastore.",
        "url": "The URL of an `https` datastore.",
        "account_name": "The storage account in Azure.",
        "container_name": "The container of an `azure_blob` datastore.",
        "filesystem": "The file system of an `azure_data_lake_gen2` datastore.",
        "protocol": "The protocol of an Azure datastore, such as `https`.",
    },
    "Data": {
        "name": "The data asset's name.",
        "version": VERSION,
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "type": "What the data is.",
        "path": "Where the data is: an absolute path, a URI or a datastore path.",
        "job": "The job that made the data. Set by the server.",
        "output": "The output of that job. Set by the server.",
    },
    "Model": {
        "name": "The model's name.",
        "version": VERSION,
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "type": "The type of the model. Found from its files if left out.",
        "flavors": "MLflow's flavors of the model. Found from its files if left out.",
        "stage": "Azure ML's stage of the model. Kept and shown.",
        "path": "The model's files: a path on this machine, or a path within the job.",
        "job": "The job that made the model.",
    },
    "NamedModel": {"name": "The model's name."},
    "ModelVersion": {
        "version": "The version.",
        "type": "The type of the model.",
        "labels": "The labels of the version.",
        "created_at": "When the version was registered.",
        "digest": "The digest of the model's manifest.",
        "files": "The number of files.",
        "size": "The size of the files in bytes.",
        "lineage": "The job, code, inputs and environment that made the model.",
        "deployments": "The online deployments that answer with it.",
    },
    "Schedule": {
        "schema_": JOB["JobKeys"]["schema_"],
        "name": "The schedule's name. Its jobs are named by it and their time.",
        "display_name": "A name to show.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "trigger": "When jobs are submitted.",
        "create_job": "The job: its file, a mapping with `job` as that file and keys that override "
        "it, or a whole job.",
        "catch_up": "Whether times missed while the server was down are made up for by one job.",
    },
    "_Trigger": {
        "start_time": "The first time. When the schedule is created if left out.",
        "end_time": "The last time.",
        "time_zone": "The time zone of times without one, by IANA's name or Windows'.",
    },
    "CronTrigger": {
        "type": "Times that match an expression.",
        "expression": "Minute, hour, day of the month, month and weekday.",
    },
    "RecurrenceTrigger": {
        "type": "Times at an interval.",
        "frequency": "The unit of the interval.",
        "interval": "The number of units between two times.",
        "schedule": "Times of the day, and days. Those of the start if left out.",
    },
    "ManualTrigger": {
        "type": "No times: the job is submitted by `allranks schedule trigger` or by HTTP."
    },
    "RecurrencePattern": {
        "hours": "Hours of the day.",
        "minutes": "Minutes of the hour.",
        "weekdays": "Days of the week, with the frequency `week`.",
        "month_days": "Days of the month, with the frequency `month`.",
    },
}
