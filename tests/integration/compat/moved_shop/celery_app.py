from __future__ import annotations

from django_jobs.compat.celery import Celery, crontab

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

app.conf.beat_schedule = {
    "nightly": {"task": "shop.tasks.remind_all", "schedule": crontab(hour=3, minute=30)},
    "every-minute": {"task": "shop.tasks.import_prices", "schedule": 60.0, "args": ("main",)},
}
