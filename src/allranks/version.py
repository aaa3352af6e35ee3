"""The version of allranks, importable by every module without the package's public names."""

__version__ = "0.1.0"
