import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0013_findings_in_the_audit_log'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='per_minute',
            field=models.PositiveIntegerField(blank=True, help_text='More are answered 429. Empty means no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='requests per minute'),
        ),
    ]
