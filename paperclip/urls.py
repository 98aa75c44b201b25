"""Every address of the instance."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from agents import urls as agents
from billing import urls as billing
from companies import urls as companies
from issues import urls as issues
from paperclip import api, dashboard, metrics, palette, styleguide
from paperclip.scaling import views as scaling

inside = [
    path("", dashboard.home),
    path("panels/<slug:name>", dashboard.panel),
    path("search", palette.search),
    *companies.urlpatterns,
    *agents.urlpatterns,
    *issues.urlpatterns,
    *billing.urlpatterns,
]

urlpatterns: list[URLPattern | URLResolver] = [
    # Asked for most, so looked for first.
    path("api/", api.urls()),
    path("api", api.unknown),
    path("events", api.not_an_event_stream),
    path("", dashboard.start),
    path("c/<str:prefix>/", include(inside)),
    *companies.outside,
    path("metrics", metrics.metrics),
    path("scaling", scaling.scaling),
    path("styleguide/", styleguide.styleguide),
    path("admin/", admin.site.urls),
]


# What Django refuses by itself (a strange host) before any of these addresses is looked at.
handler400 = "paperclip.api.refused_early"
