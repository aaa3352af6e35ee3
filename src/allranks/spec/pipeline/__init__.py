"""Pipelines and components: their files as models, and the steps they describe.

May import what `spec` may."""
