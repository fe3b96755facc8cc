"""`driftls` and `python -m driftls`."""

from __future__ import annotations

import sys

from driftls.errors import MissingExtraError


def main() -> None:
    """Run the command line; without its packages, say which ones to install."""
    try:
        from driftls import cli
    except MissingExtraError as error:
        print(f"driftls: {error}", file=sys.stderr)
        sys.exit(2)
    cli.run()


if __name__ == "__main__":
    main()
