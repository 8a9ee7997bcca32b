from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0010_outbox'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='old_digest',
            field=models.CharField(db_default='', db_index=True, default='', editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='old_until',
            field=models.DateTimeField(editable=False, null=True, verbose_name='old secret until'),
        ),
    ]
