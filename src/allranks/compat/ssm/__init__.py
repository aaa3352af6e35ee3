"""Lines and programs of simple-sagemaker, run by allranks: `allranks ssm run|shell|process|data`.

A task is the newest job with its tags; its state is a named state. What a job finds inside is made
by ``inside/allranks_ssm_task.py``, which travels with the code.
"""
