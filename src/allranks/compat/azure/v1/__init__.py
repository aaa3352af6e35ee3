"""Azure ML's first Python SDK (`azureml.core` and what belongs to it), answered by allranks.

Programs that submit jobs use these classes; inside of jobs ``Run`` is
``agent/inside/azureml_run.py``. Arguments without effect here are taken; what would change a job
and is not there raises ``NotThere``.
"""
