"""Metric names and patterns, and what a job is in MLflow.

Pure.
"""
