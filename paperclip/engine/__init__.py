"""The engine: takes queued runs and carries them out.

Reading order:
    heartbeat.py   one heartbeat, first line to last
    opening.py     its blocking parts: how it begins,
    calls.py         what it asks for on the way,
    closing.py       how it ends
    turnstile.py   where its calls to a provider pass
    journal.py     what a run says, on its way to the rows
    writer.py      the one that writes them for all runs
    shift.py       the resident loop that carries hundreds of heartbeats
    station.py     where a shift lives: in a django-q2 worker, or in the foreground
    lease.py       how a shift stays alive, and how it stops in time when it does not
    bell.py        how a shift hears of wakes, cancellations and the end
    hands.py       the threads in which blocking verbs run
    recover.py     what happens to the runs of a dead shift
    presence.py    which shifts of this machine are certainly dead, before their lease says so
    tick.py        the minute hand: timers and sweeps
    upkeep.py      the table of runs, where nobody vacuums
    tasks.py       what django-q2 calls by name
    schedule.py    what `manage.py up` asks of the engine

Nothing here decides what a run, an issue or a cost may be; the engine calls the verbs that do.
"""
