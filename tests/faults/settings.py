"""The product's settings for processes of fault tests, with the quick adapter and two wishes:

TEST_CLOCK_OFFSET   seconds by which this process's wall clock is wrong
TEST_QUEUE_RETRY    seconds after which django-q2 delivers an unanswered message again
"""

import os

import time_machine

from paperclip.settings import *  # noqa: F403
from paperclip.settings import Q_CLUSTER
from tests.faults import quick

quick.register()

if os.environ.get("TEST_QUEUE_RETRY"):
    Q_CLUSTER["ALT_CLUSTERS"]["dispatch"]["retry"] = int(os.environ["TEST_QUEUE_RETRY"])

if os.environ.get("TEST_CLOCK_OFFSET"):
    import datetime

    _wrong = datetime.datetime.now(datetime.UTC) + datetime.timedelta(
        seconds=float(os.environ["TEST_CLOCK_OFFSET"])
    )
    # For the life of the process. The monotonic clock stays as it is, as with a wrong wall clock.
    _travel = time_machine.travel(_wrong, tick=True)
    _travel.start()
