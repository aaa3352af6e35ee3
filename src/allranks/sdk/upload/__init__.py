"""Uploads of data of this machine: what there is, what of it the server lacks, how it gets there.

May import `allranks.sdk.connection`.
"""
