"""What can go wrong, by name.

Every message says what was expected, what came, and what to do.
"""

from __future__ import annotations

__all__ = [
    "ConditioningWarning",
    "CorruptFileError",
    "DimensionError",
    "DivergenceError",
    "DriftlsError",
    "FileFormatError",
    "InputError",
    "LearningWarning",
    "LogFormatError",
    "MissingExtraError",
    "NewerFileError",
    "OlderFileError",
    "SettingsError",
    "TruncatedFileError",
    "missing_extra",
]


class DriftlsError(Exception):
    """The base of all errors that driftls raises on purpose."""


class InputError(DriftlsError, ValueError):
    """A row, reward or index that cannot be used; nothing was changed."""


class DimensionError(InputError):
    """The number of features does not fit."""


class LogFormatError(InputError):
    """A line of a log that is not in its format."""


class SettingsError(DriftlsError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class DivergenceError(DriftlsError, ArithmeticError):
    """The iterate is running away; raised while every number is still finite."""


class FileFormatError(DriftlsError, ValueError):
    """A file that is not what it should be."""


class TruncatedFileError(FileFormatError):
    """The file ends too early."""


class CorruptFileError(FileFormatError):
    """The bytes of the file are not the ones that were saved."""


class NewerFileError(FileFormatError):
    """The file was written by a later version of the format."""


class OlderFileError(FileFormatError):
    """The file was written by an earlier version, whose format is no longer read."""


class MissingExtraError(DriftlsError, ImportError):
    """An optional dependency is not installed."""


class ConditioningWarning(UserWarning):
    """An exact tracker left its fast route because rounding errors had grown too large."""


class LearningWarning(UserWarning):
    """A tracker learns less than its rows allow; `tracker.health` says why and what to do."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The one sentence that every optional feature says when its package is missing."""
    return MissingExtraError(f"{purpose} needs {package}, which is not installed. Run: pip install 'driftls[{extra}]'")
