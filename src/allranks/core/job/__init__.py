"""Compile a job's specification into its plan.

Pure; imports the rest of `core` but diagnosis and insights.
"""
