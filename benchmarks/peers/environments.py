"""Peers in environments of their own, under the cache folder: what they depend on cannot disturb us or one another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MINUTES = 10  # that an installation may take
MARKER = "whole"  # written last: a folder without it was interrupted, and is begun anew


class Peer(NamedTuple):
    """What is installed: one package of a known version, and what it needs to be built or run besides."""

    package: str
    version: str
    also: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Its environment."""
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(root) / "driftls-benchmarks" / f"{self.package}-{self.version}"

    @property
    def pins(self) -> list[str]:
        """For pip."""
        return ["numpy", "scipy", *self.also, f"{self.package}=={self.version}"]


PEERS = {
    peer.package: peer
    for peer in (
        Peer("vowpalwabbit", "9.11.9"),
        Peer("contextualbandits", "0.3.30", ("cython", "setuptools")),
        Peer("river", "0.26.1"),
        Peer("bayesianbandits", "1.5.0"),
        Peer("mabwiser", "2.7.4"),
        Peer("scikit-learn", "1.9.1"),
    )
}


class NotInstalled(Exception):
    """A peer that could not be installed; the message is the reason that is shown."""


def environment(peer: Peer, *options: str) -> str:
    """The interpreter of the peer's environment, which is made on first use; `options` are for pip."""
    python = peer.folder / "bin" / "python"
    marker = peer.folder / MARKER
    if not marker.exists():
        shutil.rmtree(peer.folder, ignore_errors=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        _do([sys.executable, "-m", "venv", str(peer.folder)], peer)
        _do([*pip, "install", "--quiet", *options, *peer.pins], peer)
        _do([*pip, "check"], peer)
        marker.write_text(_do([*pip, "freeze"], peer))
    return str(python)


def _do(command: list[str], peer: Peer) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{peer.package} {peer.version} was not installed in {MINUTES} minutes") from None
    if done.returncode:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        # pip's own last lines are hints; the reason is the last line that it calls an error
        errors = [line for line in said if line.lower().startswith("error")] or said or ["pip did not say why"]
        raise NotInstalled(f"{peer.package} {peer.version}: {errors[-1].removeprefix('ERROR: ')}")
    return done.stdout
