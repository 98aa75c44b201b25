"""The data fixers' admin as one site: its groups stand in the order of the floors, and in each what
can be repaired stands before what can only be read."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest

FLOORS = ("companies", "agents", "issues", "billing")


class DataSite(AdminSite):
    site_header = site_title = "Paperclip data"
    index_title = "For people who repair data"

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        apps = super().get_app_list(request, app_label)
        apps.sort(key=lambda app: (_floor(app["app_label"]), app["name"]))
        for app in apps:
            app["models"].sort(key=lambda one: (not self._repairs(one["model"]), one["name"]))
        return apps

    def _repairs(self, model: Any) -> bool:
        return bool(self._registry[model].actions)


def _floor(label: str) -> int:
    return FLOORS.index(label) if label in FLOORS else len(FLOORS)


class DataConfig(AdminConfig):
    default_site = "paperclip.data_site.DataSite"
