"""The shop's own tables in the admin, next to the jobs."""

from django.contrib import admin

from shop.models import Document, Order, Product

admin.site.register([Document, Order, Product])
