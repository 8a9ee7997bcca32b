from celery import Celery

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_default_queue = "slow"
app.conf.update(timezone="UTC")
app.conf["timezone"] = "UTC"
app.autodiscover_tasks(related_name="jobs")
app.worker_main()
other = Celery("other", loader="x")
other.config_from_object("shop.celeryconfig")
