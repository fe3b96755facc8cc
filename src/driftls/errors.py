"""What can go wrong, by name.

Every message says what was expected, what came, and what to do.
"""

from __future__ import annotations

import errno


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


class StorageError(DriftlsError, OSError):
    """A file that cannot be read or written: no such folder, no permission, no room."""


class MissingFileError(StorageError, FileNotFoundError):
    """There is no file of that name."""


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


class ColumnWarning(UserWarning):
    """Features were told of a column that no record has."""


class MissingNumberWarning(UserWarning):
    """A record lacks a number that others have; it is left out, and counts as the mean, or as 0."""


class LearningWarning(UserWarning):
    """A tracker learns less than its rows allow; `tracker.health` says why and what to do."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The one sentence that every optional feature says when its package is missing."""
    return MissingExtraError(f"{purpose} needs {package}, which is not installed. Run: pip install 'driftls[{extra}]'")


_REMEDIES = {
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "A file is where a folder is needed: pass another path.",
    errno.EEXIST: "A file is where a folder is needed: pass another path.",
    errno.EISDIR: "Pass the name of a file.",
    errno.ENOSPC: "Make room on the disk, then try again.",
    errno.EACCES: "Pass a place where you have permission.",
    errno.EPERM: "Pass a place where you have permission.",
    errno.EROFS: "Pass a place that can be written to.",
    errno.ENAMETOOLONG: "Pass a shorter name.",
}


def storage_error(error: OSError, path: object = None) -> StorageError:
    """What the system says, of the path that the caller knows, with what to do about it."""
    name, said = path or error.filename, (error.strerror or str(error)).rstrip(".")
    kind = MissingFileError if error.errno == errno.ENOENT else StorageError
    remedy = _REMEDIES.get(error.errno or 0, "Check the path and the disk.")
    return kind(f"{name}: {said}. {remedy}" if name else f"{said}. {remedy}")
