"""The forms of the shop's visitors."""

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


class RehearsalForm(forms.Form):
    """How many jobs, and how they misbehave."""

    kind = forms.ChoiceField(choices=[(kind, kind) for kind in ("email", "webhook", "thumbnail", "invoice")])
    number = forms.IntegerField(min_value=1, max_value=1000, initial=20)
    milliseconds = forms.IntegerField(label="Takes (ms)", min_value=0, max_value=60_000, initial=200)
    fail = forms.IntegerField(label="Fails (%)", min_value=0, max_value=100, initial=10)
    hang = forms.IntegerField(label="Hangs until its time limit (%)", min_value=0, max_value=100, initial=0)
    crash = forms.IntegerField(label="Kills its process (%)", min_value=0, max_value=100, initial=0)


class PhotoForm(forms.Form):
    """A new photo of a product."""

    photo = forms.ImageField()
