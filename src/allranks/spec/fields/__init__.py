"""What the models' fields are made of: text values, references, metric patterns, problems.

Imports no other spec package.
"""
