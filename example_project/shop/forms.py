"""What visitors may send."""

from __future__ import annotations

from django import forms

from shop.models import Product


class OrderForm(forms.Form):
    """One product for one customer."""

    product = forms.ModelChoiceField(Product.objects.order_by("name"), to_field_name="slug", empty_label=None)
    quantity = forms.IntegerField(min_value=1, max_value=20, initial=1)
    customer = forms.CharField(max_length=80, initial="Ada Example")
    email = forms.EmailField(initial="ada@example.com")
    card = forms.CharField(max_length=30, initial="tok-ok", help_text="tok-declined plays a customer without money.")


class PhotoForm(forms.Form):
    """A new photo of a product."""

    photo = forms.ImageField()
