"""The program `penstock`, also as `python -m penstock`."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it. Ctrl-C ends the program quietly also while it is still loading."""
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from penstock.cli import main as run_command

    if handles_interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


if __name__ == "__main__":
    main()
