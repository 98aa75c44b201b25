"""Addresses about money, below `/c/<prefix>/`."""

from django.urls import path

from billing.views import costs

urlpatterns = [
    path("costs/", costs.costs),
    path("costs/table.csv", costs.table),
    path("costs/budgets", costs.set_budget),
    path("costs/budgets/<uuid:budget_id>/remove", costs.remove_budget),
]
