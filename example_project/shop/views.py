"""The shop's pages.  Those that enqueue jobs answer at once and show the progress."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from django_jobs import Batch, WorkflowNotFound, get_workflow
from shop import documents, jobs, progress
from shop.forms import OrderForm, PhotoForm
from shop.models import Document, FrontPage, Order, OrderLine, Product, SentJob


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Show the products."""
    products = Product.objects.order_by("name")
    context = {"products": products, "front_page": FrontPage.objects.first(), "form": OrderForm(), "photo": PhotoForm()}
    return render(request, "shop/home.html", context)


@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    """Show the newest orders and their state."""
    return render(request, "shop/orders.html", {"orders": Order.objects.order_by("-pk")[:50]})


@require_POST
@transaction.atomic
def place_order(request: HttpRequest) -> HttpResponse:
    """Store the order; the workflow that fulfils it is enqueued when the order is committed, and only then."""
    form = OrderForm(request.POST)
    if not form.is_valid():
        context = {"products": Product.objects.order_by("name"), "form": form, "photo": PhotoForm()}
        return render(request, "shop/home.html", context, status=400)
    order = Order.objects.create(customer=form.cleaned_data["customer"], email=form.cleaned_data["email"])
    product = form.cleaned_data["product"]
    OrderLine.objects.create(order=order, product=product, quantity=form.cleaned_data["quantity"], price=product.price)
    order.workflow = jobs.fulfilment(order, form.cleaned_data["card"]).enqueue().id
    order.save(update_fields=["workflow"])
    messages.success(request, f"Thank you! Order {order.pk} is on its way.")
    return redirect(order)


@require_GET
@never_cache
def order(request: HttpRequest, pk: int) -> HttpResponse:
    """Show how far an order is.  The page asks for itself again while something may still happen."""
    found = get_object_or_404(Order, pk=pk)
    try:
        flow = get_workflow(found.workflow)
        info, steps = flow.info, flow.steps
    except WorkflowNotFound:  # it is kept for HISTORY["ttl"] after its end; the order's own times stay
        info, steps = None, []
    return render(request, "shop/order.html", {"order": found, "info": info, "steps": steps})


@require_POST
def upload_photo(request: HttpRequest, slug: str) -> HttpResponse:
    """Store a product's photo; its thumbnail and the search index follow."""
    product = get_object_or_404(Product, slug=slug)
    form = PhotoForm(request.POST, request.FILES)
    if not form.is_valid():
        messages.error(request, "That is not a picture.")
        return redirect("home")
    with transaction.atomic():
        product.photo.save(f"{slug}.jpg", form.cleaned_data["photo"])
        handle = jobs.make_thumbnail.enqueue(product.pk)
        jobs.build_search_index.enqueue_in(1)
    return redirect("job", job_id=handle.id)


@require_POST
def make_document(request: HttpRequest, kind: str) -> HttpResponse:
    """Start the sales report or the export, and show its progress."""
    makers = {Document.Kind.REPORT: jobs.make_sales_report, Document.Kind.EXPORT: jobs.export_orders}
    if kind not in makers:
        return HttpResponse(f"There is no document of kind {kind!r}.", status=404, content_type="text/plain")
    with transaction.atomic():
        document = Document.objects.create(kind=kind)
        handle = makers[Document.Kind(kind)].enqueue(document.pk)
    return redirect("job", job_id=handle.id)


@require_POST
def import_catalogue(request: HttpRequest) -> HttpResponse:
    """Import the catalogue, a job for each line; the search index is built once, when all have succeeded."""
    batch = Batch("catalogue", on_success=jobs.build_search_index.s())
    with batch:
        jobs.import_product.enqueue_many(documents.catalogue_lines())
    return redirect("import", batch_id=batch.id)


@require_GET
@never_cache
def catalogue_import(request: HttpRequest, batch_id: str) -> HttpResponse:
    """Show how far an import is.  The page asks for itself again until the import has ended."""
    try:
        info = get_workflow(batch_id).info
    except WorkflowNotFound as error:
        raise Http404 from error
    return render(request, "shop/import.html", {"info": info})


@require_GET
@never_cache
def work(request: HttpRequest) -> HttpResponse:
    """Show the newest jobs of this shop."""
    sent = [(each, progress.of(each)) for each in SentJob.objects.order_by("-pk")[:30]]
    return render(request, "shop/work.html", {"sent": sent, "documents": Document.objects.exclude(file="")})


@require_GET
@never_cache
def job(request: HttpRequest, job_id: str) -> HttpResponse:
    """Show one job: static/shop/progress.js updates the page; without it, the reload link does."""
    sent = get_object_or_404(SentJob, job_id=job_id)
    return render(request, "shop/job.html", {"sent": sent, "progress": progress.of(sent)})


@require_GET
@never_cache
def job_state(request: HttpRequest, job_id: str) -> JsonResponse:
    """Return the same for the script."""
    return JsonResponse(progress.of(get_object_or_404(SentJob, job_id=job_id)))
