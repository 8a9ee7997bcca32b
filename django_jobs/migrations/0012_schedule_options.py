from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_jobs', '0011_token_rotation'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedule',
            name='at',
            field=models.DateTimeField(blank=True, help_text='Instead of a cron expression: it runs once.', null=True, verbose_name='single time'),
        ),
        migrations.AddField(
            model_name='schedule',
            name='every',
            field=models.CharField(blank=True, db_default='', default='', help_text='Instead of a cron expression: for example 90s, 15m, 2h, 1h30m or 1d.', max_length=40, verbose_name='interval'),
        ),
        migrations.AddField(
            model_name='schedule',
            name='expires_in',
            field=models.PositiveIntegerField(blank=True, help_text='Seconds after which a job that has not started is not run any more.', null=True, verbose_name='expires in'),
        ),
        migrations.AddField(
            model_name='schedule',
            name='priority',
            field=models.SmallIntegerField(blank=True, help_text='Leave it empty for the priority of the job.', null=True, verbose_name='priority'),
        ),
        migrations.AddField(
            model_name='schedule',
            name='queue',
            field=models.CharField(blank=True, db_default='', default='', help_text='Leave it empty for the queue of the job.', max_length=100, verbose_name='queue'),
        ),
        migrations.AlterField(
            model_name='schedule',
            name='cron',
            field=models.CharField(blank=True, help_text='Minute, hour, day of month, month, day of week. Six fields have seconds first.', max_length=200, verbose_name='cron expression'),
        ),
    ]
