"""`allranks import FOLDER`: what would run of the files that people have written for Azure ML and
SageMaker."""
