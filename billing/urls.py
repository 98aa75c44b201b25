"""Addresses about money, below `/c/<prefix>/`."""

from django.urls import path

from billing.views import archived, bill, costs, estimate, incidents, kept, price_list

urlpatterns = [
    path("costs/", costs.costs),
    path("costs/table.csv", costs.table),
    path("costs/prices", price_list.price_list),
    path("costs/prices.csv", price_list.table),
    path("costs/prices/set", price_list.set_price),
    path("costs/budgets", costs.set_budget),
    path("costs/budgets/<uuid:budget_id>/remove", costs.remove_budget),
    path("costs/incidents/<uuid:incident_id>/acknowledge", incidents.acknowledge),
    path("costs/incidents/<uuid:incident_id>/raise", incidents.raise_limit),
    path("costs/incidents/<uuid:incident_id>/keep", incidents.keep),
    path("costs/kept", kept.kept),
    path("costs/kept.csv", kept.table),
    path("costs/kept/<uuid:reservation_id>/release", kept.release),
    path("costs/kept/<uuid:reservation_id>/book", kept.book),
    path("costs/bill", bill.bill),
    path("costs/bill/compare", bill.compare),
    path("costs/estimate", estimate.estimate),
    path("costs/archive", archived.months),
    path("costs/archive/take", archived.take),
]
