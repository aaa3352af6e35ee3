"""What an environment means: packages, Python, image.

Pure.
"""
