import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0015_errors_in_the_audit_log'),
    ]

    operations = [
        migrations.AddField(
            model_name='remotejobtype',
            name='per_minute',
            field=models.PositiveIntegerField(blank=True, help_text='More jobs are posted later; they wait without a thread. Empty means no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='requests per minute'),
        ),
    ]
