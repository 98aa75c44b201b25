"""What is counted, and which wishes are known by which key: to look at."""

from __future__ import annotations

from django.contrib import admin

from agents.meter_models import AgentTally, Counter, ProcessReport
from agents.wake_models import WakeKey
from companies.admin_base import Readable


@admin.register(Counter)
class Counters(Readable):
    list_display = ("name", "label", "value")
    search_fields = ("name", "label")


@admin.register(AgentTally)
class AgentTallies(Readable):
    list_display = ("day", "company", "agent", "name", "reason", "count")
    list_filter = ("name",)
    list_select_related = ("company", "agent")
    search_fields = ("reason", "=agent__slug", "=company__issue_prefix")
    date_hierarchy = "day"


@admin.register(ProcessReport)
class ProcessReports(Readable):
    list_display = ("instance", "kind", "pid", "at")
    list_filter = ("kind",)
    search_fields = ("instance", "=pid")
    date_hierarchy = "at"


@admin.register(WakeKey)
class WakeKeys(Readable):
    list_display = ("key", "company", "agent", "run")
    list_select_related = ("company", "agent", "run")
    search_fields = ("key", "=agent__slug", "=run__id")
