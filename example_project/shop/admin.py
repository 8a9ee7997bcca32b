"""The shop's own tables in the admin, beside the jobs."""

from django.contrib import admin

from shop.models import Document, Order, Product

admin.site.register([Document, Order, Product])
