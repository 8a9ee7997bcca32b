"""URLs of the shop."""

from django.urls import path

from shop import rehearsal, views

urlpatterns = [
    path("", views.home, name="home"),
    path("orders/", views.orders, name="orders"),
    path("orders/place/", views.place_order, name="place-order"),
    path("orders/<int:pk>/", views.order, name="order"),
    path("products/<slug:slug>/photo/", views.upload_photo, name="upload-photo"),
    path("documents/<str:kind>/", views.make_document, name="make-document"),
    path("catalogue/import/", views.import_catalogue, name="import-catalogue"),
    path("catalogue/import/<str:batch_id>/", views.catalogue_import, name="import"),
    path("rehearsal/", rehearsal.page, name="rehearsal"),
    path("rehearsal/state.json", rehearsal.state, name="rehearsal-state"),
    path("work/", views.work, name="work"),
    path("work/<str:job_id>/", views.job, name="job"),
    path("work/<str:job_id>/state.json", views.job_state, name="job-state"),
]
