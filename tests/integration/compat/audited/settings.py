CELERY_TASK_SERIALIZER = "pickle"
CELERY_BROKER_URL = "redis://localhost"
