from celery import Task, shared_task
from celery.exceptions import Ignore, WorkerShutdown
from celery.signals import task_failure, worker_ready
from celery.utils.log import get_task_logger

from elsewhere import Elsewhere

from audited.celery_app import app


class Base(Task):
    rate_limit = "1/s"

    def on_failure(self, *args): ...

    def run(self):
        self.retry(throw=False)


class Replacing(Base):
    def apply_async(self, *args, **options): ...


class Limited(app.Task):
    rate_limit: str = "1/s"


@shared_task
def plain(a): ...


@shared_task(base=Replacing)
def of_class(): ...


@shared_task(base=Elsewhere)
def of_another(): ...


@app.task(bind=True, max_retries=3)
def bound(self, a):
    self.update_state(state="PROGRESS")
    print(self.request.id)
    print(self.request.root_id)
    print(self.request.unheard_of)
    plain.delay(1).get()
    held = plain.delay(2)
    held.get()
    a.get(timeout=3)
    a.get("key")
    self.replace(plain.s(1))
    raise self.retry(countdown=3)


@app.task(bind=True)
def other(self):
    self.retry(queue="slow")


@shared_task(rate_limit="10/m")
def limited(): ...


@shared_task(colour="red")
def coloured(): ...


@shared_task
async def asynchronous(): ...


def of_an_app_of_its_own(app, plain):
    app.tokens
    plain.delay(1)
