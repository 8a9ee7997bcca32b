from django.db import models


class Note(models.Model):
    """What a job wrote, in which attempt."""

    text = models.CharField(max_length=100)
    attempt = models.IntegerField(default=1)
