"""Does it still fit? Readings for who grows, each with its reason and its fix.

`/scaling` and `manage.py doctor --scaling` show them. Every reading is a bounded statement; none
waits for another. Order: `reading` (what one is), `database`, `engine`, `machine`, `checklist`.
"""
