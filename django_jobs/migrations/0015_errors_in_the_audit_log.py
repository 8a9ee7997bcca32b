from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0014_token_per_minute'),
    ]

    operations = [
        migrations.AlterField(
            model_name='auditentry',
            name='kind',
            field=models.CharField(choices=[('job', 'job'), ('bulk', 'bulk operation'), ('queue', 'queue'), ('worker', 'worker'), ('schedule', 'schedule'), ('workflow', 'workflow'), ('token', 'API token'), ('job_type', 'remote job type'), ('outbox', 'outbox'), ('finding', 'finding'), ('error', 'error')], editable=False, max_length=20, verbose_name='kind'),
        ),
    ]
