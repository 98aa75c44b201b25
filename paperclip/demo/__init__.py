"""The demo company: a simulated company with a past, so that every page has something to show.

story.py   who works there and what has happened, as plain data
stage.py   plays the story into the database, by the same verbs as everywhere
"""
