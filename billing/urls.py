"""Addresses about money, below `/c/<prefix>/`."""

from django.urls import path

from billing.views import costs, price_list

urlpatterns = [
    path("costs/", costs.costs),
    path("costs/table.csv", costs.table),
    path("costs/prices", price_list.price_list),
    path("costs/prices/set", price_list.set_price),
    path("costs/budgets", costs.set_budget),
    path("costs/budgets/<uuid:budget_id>/remove", costs.remove_budget),
]
