"""Compile a job's specification into its plan.

Pure; imports the rest of `plan` but diagnosis and insights.
"""
