from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ('django_jobs', '0005_audit_entry'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='dashboard',
            options={
                'base_manager_name': 'objects',
                'default_permissions': (),
                'managed': False,
                'permissions': [('view_jobs', 'Can see jobs, queues and workers'), ('view_arguments', 'Can see arguments and results of jobs'), ('retry_jobs', 'Can retry jobs and edit their arguments'), ('enqueue_jobs', 'Can enqueue jobs'), ('delete_jobs', 'Can delete, cancel and kill jobs'), ('pause_queues', 'Can pause and resume queues and job types'), ('run_schedules', 'Can run and pause schedules'), ('manage_workers', 'Can stop workers')],
                'verbose_name': 'jobs',
                'verbose_name_plural': 'jobs',
            },
        ),
    ]
