"""Which ranks run where and which variables each gets, for every framework.

Pure.
"""
