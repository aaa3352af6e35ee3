"""The job's state machine: fold events, decide the next step.

Pure.
"""
