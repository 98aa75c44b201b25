"""What a long-lived process tells the garbage collector."""

import subprocess
import sys

SAID = """
import gc
from paperclip import garbage
before = gc.get_threshold()
garbage.keep_what_is_there()
held = [{} for _ in range(garbage.AFTER - 1_000)]
print(gc.get_freeze_count() > 1_000, gc.get_threshold()[1:] == before[1:])
gc.collect()
print(len(gc.get_objects()) < 2 * len(held))
"""


def test_what_was_loaded_is_never_looked_through_again():
    """In a process of its own: the collector is one for all tests."""
    done = subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True"] * 3
