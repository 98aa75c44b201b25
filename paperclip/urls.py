"""Every address of the instance."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path

from paperclip import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/", api.urls()),
]
