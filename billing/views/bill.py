"""Beside the provider's bill: upload its usage file, see where it and the books differ."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from billing import reconcile, tables
from billing.forms import BillForm
from billing.reconcile import Drift
from companies.errors import Refusal
from companies.views.door import PageRequest, page

MAX_BYTES = 10 * 1024 * 1024
SHOWN = 500


@page()
def bill(request: PageRequest) -> HttpResponse:
    return _show(request, BillForm())


@require_POST
@page()
def compare(request: PageRequest) -> HttpResponse:
    """Reads only; with `as=csv` the whole comparison as a file."""
    form = BillForm(request.POST, request.FILES)
    drifts: list[Drift] | None = None
    if form.is_valid():
        try:
            drifts = _compare(request, form)
        except Refusal as refusal:
            form.add_error("file", refusal.message)
    if drifts is not None and request.POST.get("as") == "csv":
        return tables.answer(
            "bill-beside-books",
            ["day", "model", "billed_usd", "booked_usd", "difference_usd"],
            (
                (
                    each.day.isoformat(),
                    each.model,
                    tables.usd(each.billed_micros),
                    tables.usd(each.booked_micros),
                    tables.usd(each.difference_micros),
                )
                for each in drifts
            ),
        )
    return _show(request, form, drifts)


def _compare(request: PageRequest, form: BillForm) -> list[Drift]:
    file = form.cleaned_data["file"]
    if file.size > MAX_BYTES:
        raise reconcile.unreadable("The file is larger than 10 MiB; send it month by month.")
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise reconcile.unreadable("The file is not UTF-8 text.") from error
    return reconcile.compare(
        company_id=request.company.id, provider=form.cleaned_data["provider"], text=text
    )


def _show(request: PageRequest, form: BillForm, drifts: list[Drift] | None = None) -> HttpResponse:
    context: dict[str, object] = {"section": "costs", "form": form, "drifts": drifts}
    if drifts is not None:
        differing = [each for each in drifts if each.difference_micros]
        context |= {
            "differing": differing[:SHOWN],
            "matched": len(drifts) - len(differing),
            "billed": sum(each.billed_micros for each in drifts),
            "booked": sum(each.booked_micros for each in drifts),
            "difference": sum(each.difference_micros for each in drifts),
        }
    return render(request, "billing/bill.html", context, status=422 if form.errors else 200)
