"""The version of the installed package: that of configure, through pyproject.toml."""

from importlib import metadata

try:
    __version__ = metadata.version("partune")
except metadata.PackageNotFoundError:  # a source tree in PYTHONPATH
    __version__ = "unknown"
