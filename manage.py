#!/usr/bin/env python
"""Run one of Paperclip's commands; `manage.py help` lists them."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "paperclip.settings")
    from django.core.management import execute_from_command_line
    from environs import EnvError

    from paperclip.postgres import PostgresError

    try:
        execute_from_command_line(sys.argv)
    except (EnvError, PostgresError) as error:
        # What the operator can put right is said in a sentence, not in a traceback.
        sys.exit(f"Paperclip cannot start: {error}")


if __name__ == "__main__":
    main()
