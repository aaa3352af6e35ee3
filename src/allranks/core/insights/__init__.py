"""What a finished job's record shows: bottlenecks, scaling, goodput.

Pure.
"""
