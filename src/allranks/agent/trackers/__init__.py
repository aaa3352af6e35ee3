"""What scripts log with W&B, TensorBoard and Trackio, read from the files that these write.

A reader for each format; nothing of theirs is imported.
"""
